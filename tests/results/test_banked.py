"""omniinput bank and --bank on two models: labels are added, weighed, shown, used and refused."""

import json
import shutil
from dataclasses import replace

import h5py
import model_pair
import numpy as np
import pandas
import pytest
from model_pair import is_right, number, table
from pair_files import write
from pair_runs import ABSOLUTE, RELATIVE
from script_tools import is_plain

import omniinput_hpc as oi
from omniinput_hpc.annotation.bank import read_bank, write_bank
from omniinput_hpc.estimators.density.density import density_of_run
from omniinput_hpc.estimators.density.wide_bins import in_bins
from omniinput_hpc.results.banked import labels_for
from omniinput_hpc.runfile.reader import open_run

RANGES = {"good": ("2", "6.5"), "worse": ("1.5", "6")}
FEW = ("--fewest-inputs", 10, "--fewest-lanes", 4)


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    """Return a folder with runs of both models, rescored, and ana's scores of tasks of each."""
    folder = tmp_path_factory.mktemp("bank")
    for seed, which in enumerate(RANGES):
        write(folder / f"{which}.h5", which, ABSOLUTE, seed)
        score(folder, which, "--width", "0.5", "--per-bin", "40", "--range", *RANGES[which])
    return folder


def score(folder, which, *about):
    """Choose tasks of a run, and write ana's scores of them."""
    from omniinput_hpc.cli.verbs import choose

    choose.main([str(folder / f"{which}.h5"), *about])
    key = (folder / f"{which}.tasks.key.jsonl").read_text().splitlines()
    right = {}
    for item in map(json.loads, key[1:]):
        right[item["id"]] = float(is_right(np.array([item["x"]]))[0])
    lines = [
        {"id": id_, "score": score, "seconds": 1.0, "when": "2026-01-01T00:00:00Z",
         "guideline": None, "annotator": "ana"}
        for id_, score in right.items()
    ]  # fmt: skip
    text = "".join(json.dumps(line) + "\n" for line in lines)
    (folder / f"{which}.scores.ana.jsonl").write_text(text)


@pytest.fixture
def here(written, tmp_path):
    shutil.copytree(written, tmp_path, dirs_exist_ok=True)
    return tmp_path


def add(inside, which):
    return inside(
        "bank.py", f"{which}.h5", "--bank", "bank.jsonl", "--scores", f"{which}.scores.ana.jsonl"
    )


def test_labels_are_added_once_with_their_place_and_probability(here, inside, undrawn):
    for _ in range(2):
        code, out, err = add(inside, "good")
        assert (code, err) == (0, "") and "scored inputs of good.h5 added" in out
    bank = read_bank(here / "bank.jsonl")
    assert len(bank.runs) == 1 and bank.runs[0].path == "good.h5"
    with open_run(here / "good.h5") as run:
        for item in bank.items[::17]:
            round_, rung, index = item.place
            assert run.round(round_, range(rung, rung + 1)).samples_x[0, index].tolist() == item.x
        edges = np.array(bank.runs[0].edges)
        error_b = in_bins(density_of_run(run.data), edges).log_g_error_b
    z = table("good")
    n_b, _ = np.histogram(z.astype(float), edges)
    for item in bank.items:
        assert item.scores == {"ana": is_right(np.array([item.x]))[0]}
        off = abs(item.log_g - np.log(n_b[item.bin]))
        assert off < 4.5 * error_b[item.bin] and (off < 0.5 or n_b[item.bin] == 10)  # the sparsest
        assert item.z == z[number(np.array(item.x))]
    assert len({item.bin for item in bank.items}) > 5 and np.nanmax(error_b[n_b > 0]) < 0.6
    columns = pandas.read_csv(here / "good.bank.csv")
    assert columns["labels"].sum() == len(bank.items)
    some = (columns["labels"] > 0).to_numpy()
    np.testing.assert_allclose(columns["represented"].to_numpy()[some], 1.0)


def test_outputs_on_the_last_edge_of_tasks_were_not_among_those_drawn(
    tmp_path, inside, undrawn, monkeypatch
):
    """Whole numbers: an input whose z is the end of --range is in the run's next bin."""
    x = model_pair.X_ID
    z = {"good": x.sum(axis=1), "worse": x[:, :5].sum(axis=1) + x[:, 5] % 2}
    monkeypatch.setattr(model_pair, "table", lambda which: z[which].astype(np.float32))
    for seed, (which, high) in enumerate({"good": "8", "worse": "10"}.items()):
        path = tmp_path / f"{which}.h5"
        write(path, which, np.array([-1.0, 0, 1]), seed, edges=np.arange(20.0), rounds=32)
        score(tmp_path, which, "--width", "1", "--per-bin", "150", "--range", "4", high)
        assert add(inside, which)[0] == 0
    for which in z:
        assert inside("bank.py", f"{which}.h5", "--bank", "bank.jsonl")[0] == 0
        columns = pandas.read_csv(tmp_path / f"{which}.bank.csv").query("4 <= z_lower < 8")
        off = (columns["represented"] - 1.0) / columns["represented_error"]
        assert len(off) == 4 and off.abs().max() < 3.5 and columns["represented"].min() > 0.85


def test_labels_of_one_model_give_the_other_ones_curve(here, inside, undrawn):
    assert add(inside, "good")[0] == 0
    code, out, err = inside("bank.py", "worse.h5", "--bank", "bank.jsonl")
    assert (code, err) == (0, "") and "labelled inputs by ana" in out
    columns = pandas.read_csv(here / "worse.bank.csv")
    z, right = table("worse").astype(float), is_right(np.array([i for i in np.ndindex(*[4] * 6)]))
    for low, high, r, error, n in zip(
        *(columns[name] for name in ("z_lower", "z_upper", "r", "r_error", "effective")),
        strict=True,
    ):
        if n > 10:
            inside_bin = (z >= low) & (z < high)
            assert abs(r - right[inside_bin].mean()) < 4 * error
    code, out, err = inside("precision_recall.py", "worse.h5", "--bank", "bank.jsonl", *FEW)
    assert (code, err) == (0, "")
    assert "labels of the bank" in out and "labels of this model's own draws" in out
    with oi.open(here / "worse.h5") as run:
        found = run.precision_recall_by_bank(here / "bank.jsonl", None, 10, 4)
    analyses = json.loads((here / "worse.results.json").read_text())["analyses"]
    assert repr(found.aupr.value) in json.dumps(analyses[-1])
    other = inside("next_scores.py", "worse.h5", "--bank", "bank.jsonl", *FEW)
    assert other[0] == 0, other
    code, _, err = inside("agreement.py", "worse.h5", "--bank", "bank.jsonl")
    assert is_plain(code, err, "scores of only one person")
    assert inside("annotators.py", "worse.h5", "--bank", "bank.jsonl", *FEW)[0] == 0
    words = ("export.py", "worse.h5", "--bank", "bank.jsonl", *FEW, "--to")
    assert inside(*words, "every-eval-ever")[0] == 0
    for path, said in (
        ("bank.jsonl", "bank.jsonl has no scores (bank)"),
        ("worse.h5", "worse.h5 is a run file; expected a score file"),
    ):
        code, _, err = inside("precision_recall.py", "worse.h5", "--scores", path)
        assert is_plain(code, err, said)
    code, _, err = inside(*words, "inspect")
    assert is_plain(code, err, "--to inspect takes score files")


def test_an_annotators_own_r_is_that_of_a_bank_of_only_their_labels(here, inside, undrawn):
    assert add(inside, "good")[0] == 0
    shutil.copy(here / "bank.jsonl", here / "ana.jsonl")
    other = here / "worse.scores.ana.jsonl"
    other.write_text(other.read_text().replace('"annotator": "ana"', '"annotator": "ben"'))
    assert add(inside, "worse")[0] == 0
    density = oi.open(here / "worse.h5").density().estimate
    with open_run(here / "worse.h5") as run:
        both, only = (
            labels_for(here / f"{name}.jsonl", [run], density).scored for name in ("bank", "ana")
        )
    assert list(both.annotators) == ["ana", "ben"]
    np.testing.assert_allclose(both.of(0).means().r_b, only.means().r_b)
    assert np.nanmax(np.abs(both.of(0).means().r_b - both.means().r_b)) > 0.01


def test_a_lane_of_two_task_sets_of_one_run_counts_once(here, inside, undrawn):
    assert add(inside, "good")[0] == 0
    bank = here / "bank.jsonl"
    first, *rest = bank.read_text().splitlines()
    header, items = json.loads(first), [json.loads(line) for line in rest]
    header["runs"].append({**header["runs"][0], "tasks_id": "more"})
    items = [{**item, "run": n % 2} for n, item in enumerate(items)]
    bank.write_text("".join(json.dumps(line) + "\n" for line in (header, *items)))
    with open_run(here / "good.h5") as run:
        lane_i = labels_for(bank, [run], density_of_run(run.data)).scored.lane_i
    assert len(set(lane_i)) == len({item["lane"] for item in items})


def test_a_bank_of_inputs_that_were_sampled_again_is_refused(here, inside, undrawn):
    assert add(inside, "good")[0] == 0
    with h5py.File(here / "good.h5", "r+") as file:
        file["samples/x"][...] = file["samples/x"][...][::-1]
    code, _, err = inside("bank.py", "worse.h5", "--bank", "bank.jsonl")
    assert is_plain(code, err, "good.h5 no longer holds the inputs of bank.jsonl")


@pytest.mark.slow
def test_two_models_by_one_bank_are_paired(here, inside, undrawn):
    for which in RANGES:
        assert add(inside, which)[0] == 0
    scores = [f"{which}.scores.ana.jsonl" for which in RANGES]
    runs = ("good.h5", "worse.h5")
    widths = []
    for by in (("--scores", *scores), ("--bank", "bank.jsonl")):
        code, out, err = inside("compare.py", *runs, *by, *FEW)
        assert (code, err) == (0, "")
        assert ("errors from the same labels" in out) == (by[0] == "--bank")
        found = json.loads((here / "good.results.json").read_text())["analyses"][-1]
        one = found["values"]["AUPR of good less worse"]
        widths.append(one["high"] - one["low"])
    assert widths[1] < widths[0]
    assert (here / "good.compared.worse-bank=bank.csv").exists()


def test_models_scored_by_others_are_not_compared_without_a_word(here, inside, undrawn):
    path = here / "good.scores.ana.jsonl"
    text = path.read_text()
    for name, judge, found in (
        ("good.scores.cid.jsonl", "", "note: good was scored by cid and worse by ana: their"),
        ("good.judge-scores.lm.jsonl", ', "judge": "rule"', "their scores are not compared"),
    ):
        who = name.split(".")[-2]
        (here / name).write_text(text.replace('"annotator": "ana"', f'"annotator": "{who}"{judge}'))
        by = ("--scores", name, "worse.scores.ana.jsonl", *FEW)
        code, out, err = inside("compare.py", "good.h5", "worse.h5", *by)
        assert code == 2 * bool(judge) and found in out + err
    by = ("--scores", path.name, "worse.scores.ana.jsonl", *FEW)
    code, out, _ = inside("compare.py", "good.h5", "worse.h5", *by)
    assert code == 0 and "was scored by" not in out
    assert all(f"{which}: " in out and "inputs scored by ana; the curve" in out for which in RANGES)


def test_next_scores_for_two_models_by_one_bank_says_that_they_share_errors(here, inside, undrawn):
    for which in RANGES:
        assert add(inside, which)[0] == 0
    by = ("--bank", "bank.jsonl", *FEW)
    code, out, err = inside("next_scores.py", "good.h5", "--against", "worse.h5", *by)
    assert (code, err) == (0, "") and out.startswith("the labels of the bank count for both models")


def test_a_bank_knows_that_a_run_had_not_converged(here, inside, undrawn):
    for which in RANGES:
        assert add(inside, which)[0] == 0
    bank = read_bank(here / "bank.jsonl")
    assert all(run.converged for run in bank.runs)
    words = ("compare.py", "good.h5", "worse.h5", "--bank", "bank.jsonl", *FEW)
    assert "not converged" not in inside(*words)[1]
    worse = [replace(run, converged=run.path == "good.h5") for run in bank.runs]
    write_bank(replace(bank, runs=worse))
    code, out, _ = inside("precision_recall.py", "good.h5", "--bank", "bank.jsonl", *FEW)
    assert code == 0 and "not converged: worse.h5, when its scores were added" in out
    code, out, _ = inside(*words)
    assert code == 0 and "no model can be called better" in out
    assert "because worse.h5 has not converged" in out


def test_judges_are_left_out_if_people_scored(here, inside, undrawn):
    lines = (here / "good.scores.ana.jsonl").read_text().splitlines()
    judged = [{**json.loads(line), "annotator": "jim", "judge": "rule a:b"} for line in lines]
    path = here / "good.judge-scores.jim.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in judged))
    assert add(inside, "good")[0] == 0
    files = ["good.scores.ana.jsonl", path.name]
    assert inside("bank.py", "good.h5", "--bank", "bank.jsonl", "--scores", *files)[0] == 0
    assert set(read_bank(here / "bank.jsonl").annotators) == {"ana", "jim"}
    assert inside("agreement.py", "worse.h5", "--bank", "bank.jsonl")[0] == 0
    with open_run(here / "good.h5") as run:
        density = oi.open(here / "good.h5").density().estimate
        joined = labels_for(here / "bank.jsonl", [run], density)
        every = labels_for(here / "bank.jsonl", [run], density, people_first=False)
    assert joined.scored.annotators == ["ana"] and "left out (jim)" in joined.notes[0]
    assert list(every.scored.annotators) == ["ana", "jim"] and every.judges == [None, "rule a:b"]


def test_what_is_missing_is_named(here, inside, undrawn):
    assert add(inside, "good")[0] == 0
    (here / "good.rescored.worse.h5").unlink()
    words = ("precision_recall.py", "worse.h5", "--bank", "bank.jsonl", *FEW)
    code, _, err = inside(*words)
    assert is_plain(code, err, "omniinput rescore good.h5 worse.h5")
    code, out, _ = add(inside, "worse")  # added, but not yet of use
    assert code == 0 and "the labels cannot be weighed yet" in out
    write(here / "good.h5", "good", ABSOLUTE, 7)  # another run of that name
    code, _, err = inside(*words)
    assert is_plain(code, err, "good.h5 is not the run that bank.jsonl was made from")
    (here / "good.h5").unlink()
    code, _, err = inside(*words)
    assert is_plain(code, err, "good.h5")


def test_relative_densities_and_other_mistakes_are_refused(here, inside, undrawn):
    assert add(inside, "good")[0] == 0
    bank = here / "bank.jsonl"
    first, *rest = bank.read_text().splitlines()
    header = json.loads(first)
    twice = [{**header["runs"][0], "absolute": False} for _ in range(2)]
    items = [{**json.loads(line), "run": n % 2} for n, line in enumerate(rest)]
    lines = [{**header, "runs": twice}, *items]
    bank.write_text("".join(json.dumps(line) + "\n" for line in lines))
    code, _, err = inside("bank.py", "good.h5", "--bank", "bank.jsonl")
    assert is_plain(code, err, "give the ladder a rung with beta = 0")
    code, _, err = inside("precision_recall.py", "good.h5", "--bank", "none.jsonl")
    assert is_plain(code, err, "none.jsonl")
    write(here / "relative.h5", "good", RELATIVE, 3)
    bank.unlink()
    assert add(inside, "good")[0] == 0
    code, out, _ = inside("bank.py", "relative.h5", "--bank", "bank.jsonl")
    assert code == 0 and "not known" in out
