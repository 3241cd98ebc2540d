"""The scripts that read score files: results, laws, and users' mistakes."""

import json
import shutil

import h5py
import numpy as np
import pytest
from run_files import EDGES, MODEL, write_exact, write_run
from score_files import RANGE, WIDTH, write_score_files
from script_tools import about, is_plain, is_png

from omniinput_hpc.annotation.join import join_scores
from omniinput_hpc.annotation.tasks import KeyItem, Task, write_key, write_tasks
from omniinput_hpc.estimators.precision_recall.from_scores import bin_scores
from omniinput_hpc.results.tables import read_table, write_table

NAMES = ["ana", "ben", "cai"]
COARSE = RANGE[0] + WIDTH * np.arange(round((RANGE[1] - RANGE[0]) / WIDTH) + 1)
R_B = MODEL.bin_sums(COARSE, MODEL.right_l()) / MODEL.bin_sums(COARSE, MODEL.count_l())


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    """Return a folder with a run, the run, and the names of its score files."""
    folder = tmp_path_factory.mktemp("written")
    run = write_run(folder / "lattice.h5", walkers=16, seed=1)
    write_exact(folder / "exact.csv")
    paths = write_score_files(folder / "lattice.h5", run, NAMES, bias=0.1)
    return folder, run, [path.name for path in paths]


@pytest.fixture
def scored(written, tmp_path):
    """Return a run with the scores of three annotators, who differ."""
    folder, run, names = written
    shutil.copytree(folder, tmp_path, dirs_exist_ok=True)
    return run, list(names)


@pytest.mark.parametrize("law", ["by-weight", "uniform"])
def test_joined_scores_estimate_r(tmp_path, law):
    run = write_run(tmp_path / "lattice.h5", walkers=16, seed=2, moves=60)
    paths = write_score_files(
        tmp_path / "lattice.h5", run, ["ana"], law=law, per_bin=150, bias=0.0, noise=0.0
    )
    joined = join_scores("exact", paths)
    scored = joined.scored
    np.testing.assert_allclose(scored.edges, COARSE)
    total = np.bincount(scored.bin_i, scored.weight_i)
    r_b = np.bincount(scored.bin_i, scored.weight_i * scored.score_i) / total
    assert (np.abs(r_b - R_B) < 4 * np.sqrt(R_B * (1 - R_B) / 100)).all()
    if law == "by-weight":
        np.testing.assert_array_equal(total, 150)  # repeats count once, gold not at all
    assert joined.first_ar.shape == joined.second_ar.shape == (1, 8)
    np.testing.assert_array_equal(joined.gold_g, [0, 0.25, 0.5, 0.75])
    np.testing.assert_array_equal(joined.given_ag, [joined.gold_g])


@pytest.mark.parametrize(("law", "expected"), [("by-weight", 0.75), ("uniform", 0.9)])
def test_each_law_weights_once_by_hand(tmp_path, law, expected):
    """Two inputs, of 0.9 and 0.1 of the weight, drawn 3 times and once, scored 1 and 0.

    Weighted twice they would give 27 / 28; by the other law, the other number.
    """
    items = [
        KeyItem("a", 0, 1.0, 1.1, float(np.log(0.9)), 3, [0], 0),
        KeyItem("b", 0, 1.0, 1.2, float(np.log(0.1)), 1, [1], 1),
    ]
    tasks_id = write_tasks(tmp_path / "r.tasks.jsonl", "text", [Task(i.id, "x") for i in items])
    header = {
        "tasks_id": tasks_id, "law": law, "width": 1.0, "range": [1.0, 2.0], "per_bin": 4,
        "runs": [{"path": "r.h5", "model_fingerprint": "m", "range": [1.0, 2.0]}], "duplicates": 0,
    }  # fmt: skip
    write_key(tmp_path / "r.tasks.key.jsonl", header, items)
    word = {"seconds": 1, "when": "2026-01-01T00:00:00Z", "guideline": None, "annotator": "ana"}
    said = [{"id": "a", "score": 1.0, **word}, {"id": "b", "score": 0.0, **word}]
    path = tmp_path / "r.scores.ana.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in said))
    scored = join_scores("m", [path]).scored
    assert bin_scores(scored).r_b[0] == pytest.approx(expected)


def test_a_score_taken_back_and_a_word_said_again(tmp_path, scored):
    path = tmp_path / scored[1][0]
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    before = join_scores("exact", [path]).scored
    lines += [{**lines[0], "score": None}, {**lines[1], "score": 0.125}]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    after = join_scores("exact", [path]).scored
    changed = np.flatnonzero(~(before.score_ai[0] == after.score_ai[0]))
    # the first items are shown again (repeats), so that the first has a score still
    assert 1 in changed and after.score_ai[0, 1] == 0.125


@pytest.mark.slow
def test_precision_recall_from_scores(tmp_path, inside, scored):
    code, out, err = inside(
        "precision_recall.py", "lattice.h5", "--scores", *scored[1], "--exact", "exact.csv"
    )
    assert (code, err) == (0, "")
    ends = ("pr.csv", "pr.png", "roc.png", "r.png")
    assert out.splitlines()[-4:] == [f"lattice.{end}" for end in ends]
    assert all(is_png(tmp_path / f"lattice.{end}") for end in ends[1:])
    assert all((tmp_path / f"lattice.{e[:-3]}pdf").read_bytes()[:5] == b"%PDF-" for e in ends[1:])
    header = about(tmp_path / "lattice.pr.csv")
    _, columns = read_table(tmp_path / "lattice.pr.csv", ["r", "log_wrong_high", "thin"])
    assert any("scores: ana, ben, cai" in line for line in header)
    bins = np.rint((columns["threshold"] - COARSE[0]) / WIDTH).astype(int) - 1
    np.testing.assert_array_equal(bins, np.arange(len(bins)))
    assert (np.abs(columns["r"] - R_B[bins]) < 4.5 * columns["r_error"]).all()
    low, high = columns["precision_low"], columns["precision_high"]
    assert (low <= columns["precision"]).all() and (columns["precision"] <= high).all()
    assert (high - low > 0.01).all()
    (line,) = [line for line in out.splitlines() if line.startswith("AUPR by annotator")]
    assert "over recall 10^" in line and ": ana 0." in line
    code, out, _ = inside(
        "precision_recall.py", "lattice.h5", "--scores", scored[1][0], "--side", "high"
    )
    assert out.splitlines()[-4] == "lattice.pr.ana-side=high.csv"  # nothing is overwritten
    _, columns = read_table(tmp_path / "lattice.pr.ana-side=high.csv", [])
    assert code == 0 and (np.diff(columns["threshold"]) < 0).all()


@pytest.mark.slow
def test_annotators(tmp_path, inside, scored):
    code, out, err = inside("annotators.py", "lattice.h5", "--scores", *scored[1])
    assert (code, err) == (0, "")
    header = about(tmp_path / "lattice.annotators.csv")
    _, columns = read_table(tmp_path / "lattice.annotators.csv", [])
    assert "Krippendorff's alpha (interval) of 3 annotators: 0.9" in out and header[0] in out
    assert "ben: 2" in out and "8 shown twice, differing by 0.0" in out
    r_ab = np.array([columns[f"r_{name}"] for name in NAMES])
    np.testing.assert_allclose(columns["mean"], r_ab.mean(axis=0))
    np.testing.assert_allclose(columns["deviation"], r_ab.std(axis=0, ddof=1))
    assert (np.diff(r_ab, axis=0) > 0).all()  # ana is strict, cai is lenient
    _, steps = read_table(tmp_path / "lattice.convergence.csv", [])
    np.testing.assert_array_equal(steps["per_bin"], [10, 20, 30, 40])
    width = steps["high"] - steps["low"]
    assert width[-1] < width[0]
    assert is_png(tmp_path / "lattice.annotators.png") and is_png(
        tmp_path / "lattice.convergence.png"
    )
    code, out, _ = inside("annotators.py", "lattice.h5", "--scores", scored[1][0])
    assert code == 0 and "alpha: not known" in out


@pytest.mark.slow
def test_next_scores(tmp_path, inside, scored, undrawn):
    code, out, err = inside("next_scores.py", "lattice.h5", "--scores", *scored[1], "--budget", 90)
    assert (code, err) == (0, "")
    assert sum(row[-1] for row in _rows(out)) == 90
    _, columns = read_table(tmp_path / "lattice.next.csv", [])
    assert columns["next_scores"].sum() == 90 and columns["error_share"].sum() == pytest.approx(1)
    write_run(tmp_path / "other.h5", walkers=16, seed=3)
    (tmp_path / "other.next.csv").write_text("its own")
    code, out, err = inside(
        "next_scores.py", "lattice.h5", "--scores", *scored[1], "--against", "other.h5"
    )
    assert (code, err) == (0, "")
    assert sum(row[-1] for row in _rows(out)) == 100
    for name in ("lattice.next", "other.next.lattice"):
        assert (tmp_path / f"{name}.other-ana+ben+cai.csv").exists()
    for of_lattice in ("lattice.next.csv", "lattice.next.other-ana+ben+cai.csv"):
        (tmp_path / of_lattice).unlink()
    inside("next_scores.py", "lattice.h5", "--scores", *scored[1], "--against", "other.h5")
    assert (tmp_path / "lattice.next.csv").exists()
    assert (tmp_path / "other.next.lattice.csv").exists()
    assert (tmp_path / "other.next.csv").read_text() == "its own"


@pytest.mark.slow
@pytest.mark.parametrize(("script", "name"), [("next_scores.py", "next.{}.csv"),
                                              ("report.py", "report.{}.html")])  # fmt: skip
def test_the_other_side_has_files_of_its_own(tmp_path, inside, scored, undrawn, script, name):
    for side in ((), ("--side", "high")):
        code, _, err = inside(script, "lattice.h5", "--scores", *scored[1], *side)
        assert (code, err) == (0, "")
    assert (tmp_path / f"lattice.{name.replace('.{}', '')}").exists()
    assert (tmp_path / f"lattice.{name.format('ana+ben+cai-side=high')}").exists()


@pytest.mark.parametrize(
    "words", [["--scores", "a"], ["--bank", "b.jsonl", "--against", "other.h5"]]
)
def test_scores_of_another_model_that_would_not_be_used_are_refused(inside, words):
    code, _, err = inside("next_scores.py", "lattice.h5", *words, "--against-scores", "s.jsonl")
    assert is_plain(code, err, "--against-scores is not used with"), err


def _rows(out):
    return [[float(w) for w in line.split()] for line in out.splitlines() if line[:3] == "   "
            and line.strip()[0].isdigit()]  # fmt: skip


@pytest.mark.slow
def test_two_models_by_peoples_scores(tmp_path, inside, undrawn):
    """The second model's inputs get 0.4 times the score: worse; scores by the same rule: alike."""
    for name, fingerprint, seed in (("one", "exact", 1), ("two", "another", 2)):
        run = write_run(tmp_path / f"{name}.h5", walkers=16, seed=seed)
        with h5py.File(tmp_path / f"{name}.h5", "r+") as file:
            file.attrs["model_fingerprint"] = fingerprint
        write_score_files(
            tmp_path / f"{name}.h5", run, ["ana"], seed=seed, bias=0, fingerprint=fingerprint
        )
    files = ["one.scores.ana.jsonl", "two.scores.ana.jsonl"]
    code, out, err = inside("compare.py", "one.h5", "two.h5", "--scores", *files)
    assert (code, err) == (0, "")
    assert "cannot tell" in out and "is better than" not in out
    path = tmp_path / files[1]
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    for line in lines:
        line["score"] = round(0.4 * line["score"], 3)
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    code, out, err = inside("compare.py", "one.h5", "two.h5", "--scores", *files)
    assert (code, err) == (0, "") and "one is better than two" in out
    code, _, err = inside("compare.py", "one.h5", "two.h5", "--scores", files[0])
    assert is_plain(code, err, "no score file is for the model of two.h5")


@pytest.mark.slow
def test_users_mistakes_get_one_plain_line(tmp_path, inside, scored):
    run, paths = scored
    write_run(tmp_path / "empty.h5", rounds=2, committed=0)
    write_run(tmp_path / "fine.h5", rounds=2, edges=EDGES + 0.01)
    word = {"id": "nobody", "score": 0.5, "seconds": 1, "when": "", "guideline": None}
    bad = tmp_path / "lattice.scores.bad.jsonl"
    bad.write_text(json.dumps({**word, "annotator": "bad", "when": "now"}) + "\n")
    (tmp_path / "alone.scores.ana.jsonl").write_text("")
    write_score_files(tmp_path / "foreign.h5", run, ["ana"], fingerprint="another")
    few = write_score_files(tmp_path / "few.h5", run, ["ana"], per_bin=20)[0].name
    for name, files, word in [
        ("lattice.h5", ["lattice.scores.bad.jsonl"], "has a score of nobody"),
        ("lattice.h5", ["missing.scores.a.jsonl"], "missing.scores.a.jsonl"),
        ("lattice.h5", ["exact.csv"], "is not named RUN.scores.NAME.jsonl"),
        ("lattice.h5", ["alone.scores.ana.jsonl"], "alone.tasks.key.jsonl"),
        ("lattice.h5", ["foreign.scores.ana.jsonl"], "no task belongs to this run's model"),
        ("lattice.h5", [few], "no bin has scores of 30 distinct inputs from 8 lanes"),
        ("fine.h5", paths, "do not fit the run's"),
        ("empty.h5", paths, "no committed round"),
    ]:
        for script in ("precision_recall.py", "annotators.py", "next_scores.py"):
            code, _, err = inside(script, name, "--scores", *files)
            assert is_plain(code, err, word), (script, name, err)
    assert not list(tmp_path.glob("*.png")) and not list(tmp_path.glob("*.partial"))


def mark_as_judge(path):
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    path.write_text("".join(json.dumps({**line, "judge": "rule x:y"}) + "\n" for line in lines))


@pytest.mark.slow
def test_agreement_sets_judges_and_fid_beside_people(tmp_path, inside, scored):
    mark_as_judge(tmp_path / scored[1][2])
    n = len(COARSE) - 1
    fid = {
        "run": np.zeros(n, int), "z_lower": COARSE[:-1], "fid": np.linspace(1, 2, n),
        "fid_of_reference": np.full(n, 0.5),
    }  # fmt: skip
    write_table(tmp_path / "a.fid.csv", fid)
    words = ["lattice.h5", "--scores", *scored[1]]
    code, out, err = inside("agreement.py", *words, "--fid", "a.fid.csv")
    assert (code, err) == (0, "") and is_png(tmp_path / "lattice.agreement.png")
    assert (
        "cai (judge: rule x:y) against people" in out and "ana (a person) against the other" in out
    )
    assert "rank correlation" in out and "FID and people's r over" in out
    _, columns = read_table(tmp_path / "lattice.agreement.csv", ["alpha_cai", "bias_error_ana"])
    np.testing.assert_allclose(columns["z_lower"], COARSE[:-1])
    np.testing.assert_allclose(columns["fid"], fid["fid"])
    assert (columns["bias_cai"] > 0.05).mean() > 0.7  # the judge is one step above people
    code, _, err = inside("agreement.py", "lattice.h5", "--scores", scored[1][2])
    assert is_plain(code, err, "scores of only one judge")
    code, _, err = inside("agreement.py", "lattice.h5", "--scores", scored[1][0])
    assert is_plain(code, err, "scores of only one person")


@pytest.mark.slow
def test_agreement_sets_judges_beside_each_other_where_no_person_scored(tmp_path, inside, scored):
    for name in scored[1]:
        mark_as_judge(tmp_path / name)
    code, out, err = inside("agreement.py", "lattice.h5", "--scores", *scored[1])
    assert (code, err) == (0, "") and is_png(tmp_path / "lattice.agreement.png")
    assert f"alpha among {len(scored[1])} judges" in out
    assert "cai (judge: rule x:y) against the other judges" in out and "people" not in out
    read_table(tmp_path / "lattice.agreement.csv", ["r_judges", "alpha_judges", "bias_cai"])


@pytest.mark.slow
@pytest.mark.parametrize(
    "script", ["precision_recall.py", "annotators.py", "next_scores.py", "report.py"]
)
def test_people_and_judges_are_not_averaged(tmp_path, inside, scored, script):
    mark_as_judge(tmp_path / scored[1][2])
    code, _, err = inside(script, "lattice.h5", "--scores", *scored[1])
    assert is_plain(code, err, "judges (cai) are not averaged")
    if script == "precision_recall.py":  # a judge alone is as good as a person
        assert inside(script, "lattice.h5", "--scores", scored[1][2])[0] == 0
