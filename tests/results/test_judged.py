"""People's score files with a judge's: what is joined, refused, printed and written."""

import json
import shutil
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from run_files import write_run
from score_files import MODEL, write_score_files
from script_tools import is_plain

import omniinput_hpc as oi
from omniinput_hpc.annotation.join import join_scores
from omniinput_hpc.errors import UserError
from omniinput_hpc.results import judged as judged_lines
from omniinput_hpc.results.judged import join_with_judges, with_judges
from omniinput_hpc.results.tables import read_table

RUN, OTHER = (SimpleNamespace(fingerprint=f, n_sites=MODEL.n_sites) for f in ("exact", "other"))
PEOPLE, JUDGE = "lattice.scores.ana.jsonl", "lattice.judge-scores.jim.jsonl"
FEW = ("--fewest-inputs", 10)


def rewritten(path, new, change):
    """Write the lines that `change` keeps or changes to a new file."""
    lines = [change(n, json.loads(line)) for n, line in enumerate(path.read_text().splitlines())]
    new.write_text("".join(json.dumps(line) + "\n" for line in lines if line is not None))


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    """Return a folder with a run, scores of every third task by ana, and of all by a judge."""
    folder = tmp_path_factory.mktemp("judged")
    run = write_run(folder / "lattice.h5", walkers=16, seed=1)
    names = ["ana", "jim"]
    paths = write_score_files(
        folder / "lattice.h5", run, names, per_bin=150, bias=0.1, noise=0.02, repeats=0
    )
    kept = np.random.default_rng(1).random(2000) < 1 / 3
    rewritten(paths[0], paths[0], lambda n, line: line if kept[n] else None)
    rewritten(paths[1], folder / JUDGE, lambda _, line: {**line, "judge": "rule x:y"})
    paths[1].unlink()
    return folder


@pytest.fixture
def judged(written, tmp_path):
    shutil.copytree(written, tmp_path, dirs_exist_ok=True)
    return tmp_path


def test_the_judge_is_joined_beside_the_people(written):
    joined = join_with_judges(RUN, [written / PEOPLE], [written / JUDGE], None)
    scored, alone = joined.scored, join_scores("exact", [written / PEOPLE]).scored
    assert list(scored.annotators) == ["ana"] and list(joined.judges) == [None]
    np.testing.assert_array_equal(scored.score_ai, alone.score_ai)
    judge = join_scores("exact", [written / JUDGE]).scored
    np.testing.assert_array_equal(scored.judge_i, judge.score_ai[0])
    assert joined.given_ag.shape == (1, 4) and with_judges(joined) == " with the judge jim"
    assert with_judges(join_scores("exact", [written / PEOPLE])) == ""


def test_files_in_the_wrong_place_are_refused(written):
    people, judge = written / PEOPLE, written / JUDGE
    with pytest.raises(UserError, match=r"jim.jsonl holds scores of a judge: give it only as"):
        join_with_judges(RUN, [people, judge], [judge], None)
    with pytest.raises(UserError, match=r"ana.jsonl holds no scores of a judge"):
        join_with_judges(RUN, [people], [people], None)
    with pytest.raises(UserError, match=r"jim.jsonl: no task belongs to this run's model"):
        join_with_judges(OTHER, [people], [judge], None)


def test_inputs_that_only_the_judge_scored_are_something_to_gain(written, monkeypatch):
    """Even if it scored fewer inputs than people did, because it left out some of theirs."""
    monkeypatch.setattr(judged_lines, "aupr_gain", lambda *_: np.nan)
    scored = join_with_judges(RUN, [written / PEOPLE], [written / JUDGE], None).scored
    people, rng = ~np.isnan(scored.score_i), np.random.default_rng(3)
    only_judge = ~people & (np.cumsum(~people) <= 30)
    for seen, gain in ((people, False), (people & (rng.random(len(people)) < 0.5), True)):
        seen = seen | only_judge if gain else seen
        some = replace(scored, judge_i=np.where(seen, scored.judge_i, np.nan))
        scores = some.means()
        assert scores.judged <= scores.inputs_b.sum()
        result = SimpleNamespace(scores=scores, used_b=np.ones(len(scores.r_b), dtype=bool))
        said = "\n".join(judged_lines.judge_lines(result, some))
        assert ("nothing to gain" in said) != gain


@pytest.mark.slow
def test_the_curve_says_what_the_judge_saved_and_python_gives_the_same(judged, inside, undrawn):
    alone = ["lattice.h5", "--scores", PEOPLE, *FEW]
    words = [*alone, "--judge-scores", JUDGE]
    assert inside("precision_recall.py", *alone)[0] == 0
    code, out, err = inside("precision_recall.py", *words)
    assert (code, err) == (0, "") and "the judge jim scored " in out and "warning" not in out
    (line,) = [line for line in out.splitlines() if line.startswith("with the judge, ")]
    assert float(line.split(" saved, ")[1].split(" times")[0]) > 1.5
    _, table = read_table(judged / "lattice.pr.ana-judge=jim.csv", ["r_low", "r_high"])
    _, before = read_table(judged / "lattice.pr.csv", ["r_low", "r_high"])
    widths = [np.mean(columns["r_high"] - columns["r_low"]) for columns in (table, before)]
    assert widths[0] < 0.9 * widths[1]
    with oi.open("lattice.h5") as run:
        curve = run.precision_recall_with_judge([PEOPLE], [JUDGE], fewest_inputs=10)
    np.testing.assert_allclose(curve.precision, table["precision"])
    assert curve.by == "ana with the judge jim" and curve.plot_scores().axes[0].lines


@pytest.mark.slow
def test_other_verbs_take_the_judge(judged, inside, undrawn):
    words = ["lattice.h5", "--scores", PEOPLE, "--judge-scores", JUDGE, *FEW]
    code, out, err = inside("next_scores.py", *words)
    assert (code, err) == (0, "") and "choose more tasks for it" in out
    assert out.endswith("lattice.next.csv\n")
    code, out, err = inside("report.py", *words)
    page = next(judged.glob("*.html")).read_text()
    assert (code, err) == (0, "") and "ana with the judge jim" in page


@pytest.mark.slow
def test_mistakes_get_one_plain_line(judged, inside):
    few = judged / "lattice.judge-scores.few.jsonl"
    rewritten(judged / JUDGE, few, lambda n, line: {**line, "annotator": "few"} if n < 9 else None)
    for words, said in [
        (["--rule", "m:f", "--judge-scores", JUDGE], "give also --scores"),
        (["--scores", PEOPLE, JUDGE], "give them as --judge-scores"),
        (["--scores", PEOPLE, "--judge-scores", few.name], "inputs in common"),
        (["--scores", PEOPLE, "--judge-scores", "lattice.judge-scores.no.jsonl"], "no.jsonl"),
    ]:
        code, _, err = inside("precision_recall.py", "lattice.h5", *words)
        assert is_plain(code, err, said), err


@pytest.mark.slow
def test_choices_that_are_not_random_and_judges_of_no_use_are_said(judged, inside, undrawn):
    liked = {
        line["id"]
        for line in map(json.loads, (judged / JUDGE).read_text().splitlines())
        if line["score"] > 0.5
    }
    rng = np.random.default_rng(2)
    rewritten(
        judged / JUDGE,
        judged / "lattice.scores.bo.jsonl",
        lambda _, line: (
            {**line, "annotator": "bo", "judge": None}
            if line["id"] in liked or rng.random() < 0.2
            else None
        ),
    )
    words = ["lattice.h5", "--judge-scores", JUDGE, *FEW, "--scores"]
    code, out, _ = inside("precision_recall.py", *words, "lattice.scores.bo.jsonl")
    assert code == 0 and "warning: the judge's scores of the inputs that people scored" in out
    rewritten(
        judged / JUDGE,
        judged / "lattice.scores.cy.jsonl",
        lambda _, line: {**line, "annotator": "cy", "judge": None},
    )
    code, out, _ = inside("precision_recall.py", *words, "lattice.scores.cy.jsonl")
    assert code == 0 and "so there is nothing to gain" in out and ": 0 saved, 1.0 times" in out
