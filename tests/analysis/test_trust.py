"""Scores below what has equilibrated: said before they are given, kept, and counted on demand."""

import json

import numpy as np
import pytest
from cold_runs import write_cold_run
from score_files import RANGE, WIDTH, write_score_files

from omniinput_hpc.cli.omniinput import main
from omniinput_hpc.results.tables import read_table
from omniinput_hpc.runfile.reader import open_run

pytestmark = pytest.mark.usefixtures("undrawn")

ENDS = ["--range", *map(str, RANGE), "--width", str(WIDTH)]
REMEDY = "raise run.rounds and run the same command again"


def call(capsys, *words):
    code = main([str(word) for word in words])
    said = capsys.readouterr()
    return code, said.out + said.err


@pytest.fixture
def cold(tmp_path):
    """Return a run whose coldest rung is stuck, and its score file."""
    path = tmp_path / "cold.h5"
    return path, write_score_files(path, write_cold_run(path), ["ana"], per_bin=60)[0]


def first_threshold(path):
    return read_table(path, ["threshold"])[1]["threshold"][0]


def test_choose_says_which_bins_no_curve_counts_yet(capsys, cold, tmp_path):
    path, _ = cold
    out = tmp_path / "new.tasks.jsonl"
    code, said = call(capsys, "choose", path, *ENDS, "--output", out)
    assert code == 0, said
    assert "note: 2 of 7 bins" in said and "begin below z = 1.585" in said
    assert REMEDY in said and "--trust-unequilibrated" in said
    marked = [line for line in said.splitlines() if "  not equilibrated" in line]
    assert [float(line.split()[0]) for line in marked] == [0.625, 1.375]
    write_cold_run(tmp_path / "well.h5", stuck=False, moves=60)
    well = tmp_path / "well.tasks.jsonl"
    with open_run(tmp_path / "well.h5") as run:
        assert run.model_beta == 3.0
    code, said = call(capsys, "choose", tmp_path / "well.h5", *ENDS, "--output", well)
    assert code == 0, said


def test_scores_below_are_kept_and_counted_on_demand(capsys, cold, tmp_path):
    path, scores = cold
    words = ["precision-recall", path, "--scores", scores, "--fewest-lanes", 1]
    code, said = call(capsys, *words)
    assert code == 0, said
    assert "scored inputs in 2 bins below z = 1.585 are kept but not counted" in said
    assert first_threshold(tmp_path / "cold.pr.csv") == 2.875  # the bin from 2.125 on
    before = scores.read_bytes()

    code, said = call(capsys, *words, "--trust-unequilibrated")
    assert code == 0, said
    assert "are kept but not counted" not in said
    assert "outputs below z = 1.59 have not equilibrated, but are counted as requested" in said
    assert "converged: no" in said
    found = [p for p in tmp_path.glob("cold.pr*.csv")]
    assert min(map(first_threshold, found)) == 1.375
    assert scores.read_bytes() == before
    record = json.loads((tmp_path / "cold.results.json").read_text())["analyses"]
    trusted = [one["parameters"]["trust_unequilibrated"] for one in record]
    assert trusted.count(True) == 1  # the last command alone asked for it
    reasons = [str(one["verdicts"]) for one in record if one["parameters"]["trust_unequilibrated"]]
    assert all("counted as requested" in text for text in reasons)


def test_a_curve_without_any_believed_bin_says_what_is_missing(capsys, cold, tmp_path):
    path, scores = cold
    lines = scores.read_text().splitlines()
    key = [json.loads(line) for line in (tmp_path / "cold.tasks.key.jsonl").open()]
    low = {one["id"] for one in key if one.get("z") is not None and one["z"] < 2.0}
    scores.write_text("".join(f"{line}\n" for line in lines if json.loads(line)["id"] in low))
    words = ["precision-recall", path, "--scores", scores, "--fewest-lanes", 1]
    words += ["--fewest-inputs", 1]
    code, said = call(capsys, *words)
    assert code == 2
    assert "the run has not equilibrated in any bin with enough scores" in said
    assert REMEDY in said
    code, said = call(capsys, *words, "--trust-unequilibrated")
    assert code == 0, said


@pytest.mark.slow
@pytest.mark.parametrize("verb", ["annotators", "next-scores", "report"])
def test_other_verbs_trust_as_well(capsys, cold, verb, tmp_path):
    path, scores = cold
    words = [verb, path, "--scores", scores, "--fewest-lanes", 1, "--trust-unequilibrated"]
    code, said = call(capsys, *words)
    assert code == 0, said
    records = json.loads((tmp_path / "cold.results.json").read_text())["analyses"]
    record = next(one for one in records if one["analysis"] == verb)
    if record["verdicts"]:
        assert "counted as requested" in str(record["verdicts"])


def test_figures_say_so(cold):
    from omniinput_hpc.estimators.density.density import density_of_run
    from omniinput_hpc.results.caption import caption_of

    with open_run(cold[0]) as run:
        density = density_of_run(run.data)
        plain, trusted = (caption_of([run], [one]).remark for one in (density, density.trusting()))
    assert plain == ""
    assert trusted == "outputs below z = 1.59 have not equilibrated but are counted"
    assert np.isfinite(density.trusting().log_g_error_b[density.effective_b > 50]).all()
