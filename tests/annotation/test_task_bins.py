"""Bins of tasks that could not be analysed are refused before anybody scores."""

import contextlib
import re
import shlex
import tomllib
from types import SimpleNamespace

import numpy as np
import pytest
from run_files import EDGES, MODEL, write_run
from run_tools import ROOT
from script_tools import is_plain

from omniinput_hpc.annotation import task_bins
from omniinput_hpc.annotation.drawing import Chosen
from omniinput_hpc.config import Bins
from omniinput_hpc.errors import UserError
from omniinput_hpc.estimators import EstimateError
from omniinput_hpc.estimators.density.wide_bins import spans_of


@pytest.mark.parametrize(
    ("low", "high", "width"), [(0, 1, 0.3), (1, 0, 0.1), (0, 1, -1), (0, 1, 2)]
)
def test_ranges_without_whole_bins(low, high, width):
    with pytest.raises(UserError, match="--range"):
        task_bins.bin_edges(low, high, width)
    assert len(task_bins.bin_edges(2.0, 4.0, 0.1)) == 21
    with pytest.raises(UserError, match=r"2e\+05 bins, more than 100,000; choose a larger --width"):
        task_bins.bin_edges(0.0, 20.0, 0.0001)


def test_edges_are_the_runs_own_numbers():
    """An output on an edge is in the same bin for tasks and for the density."""
    run = run_of(0.0, 12.0, 0.1)
    asked = task_bins.bin_edges(1.2, 4.2, 0.3)
    assert not np.isin(asked, run.edges).all()  # 1.5 and 1.5000000000000002
    got = task_bins.bins_of_run(run, 1.2, 4.2, 0.3).edges
    np.testing.assert_array_equal(got, run.edges[12:43:3])


def run_of(lower, upper, width, name="runs/a.h5", model="m", walkers=16):
    edges = Bins(lower=lower, upper=upper, width=width).edges
    return SimpleNamespace(path=name, fingerprint=model, edges=edges, walkers=walkers)


@pytest.mark.parametrize(("bins", "asked"), [
    ((0.0, 20.0, 0.0016), (4.0, 5.0, 0.1)),  # 62.5 bins of the run
    ((-0.25, 15.25, 0.5), (0.0, 10.0, 1.0)),  # a quarter off
    ((0.0, 12.0, 0.02), (1.0, 13.0, 0.5)),  # beyond the run's
    ((0.0, 12.0, 0.02), (1.0, 1.005, 0.005)),  # finer than the run's
    ((0.0, 1.0, 0.1), (-3.0, 40.0, 43.0)),
    ((-40.0, 40.0, 0.04), (-20.0, 18.0, 1.9)),
])  # fmt: skip
def test_bins_that_do_not_fit_are_refused_and_a_remedy_fits(bins, asked):
    run = run_of(*bins)
    with pytest.raises(UserError, match=r"those of runs/a.h5 go from .* in steps of") as caught:
        task_bins.bins_of_run(run, *asked)
    number = r"(-?[\d.e-]+)"
    found = re.search(rf"take --range {number} {number} --width {number}$", str(caught.value))
    low, high, width = map(float, found.groups())
    wanted = task_bins.bins_of_run(run, low, high, width)
    assert len(spans_of(run.edges, wanted.edges)) == len(wanted.edges) - 1 >= 1
    step = run.edges[1] - run.edges[0]
    assert abs(width - asked[2]) <= 0.5001 * step or width in (step, run.edges[-1] - run.edges[0])


def test_runs_of_one_model_need_the_same_bins():
    a, b = run_of(0.0, 12.0, 0.1), run_of(0.0, 12.0, 0.1, "runs/b.h5")
    other = run_of(6.0, 12.0, 0.1, "runs/c.h5", "another")
    wanted = task_bins.bins_of_run
    first, last = wanted(a, 7.0, 9.0, 0.5), wanted(other, 7.1, 9.1, 0.5)
    assert task_bins.of_one_model([first, last, wanted(b, 7.0, 9.0, 0.5)]) == [[0, 2], [1]]
    coarse = run_of(0.0, 12.0, 0.5, "runs/b.h5")
    for second in (wanted(b, 7.0, 8.5, 0.5), wanted(coarse, 7.0, 9.0, 0.5)):
        with pytest.raises(UserError, match=r"runs/a\.h5 and runs/b\.h5 are runs of one model"):
            task_bins.of_one_model([first, second])


def chosen(n, lanes, lower=1.0, first=0):
    """Return n different inputs of a bin, from some lanes."""
    return [
        Chosen(np.array([first + i, 0]), lower + 0.2, lower, -1.0, 1, i % lanes) for i in range(n)
    ]


def test_tasks_that_no_curve_would_take_are_noted():
    wanted = task_bins.bins_of_run(run_of(0.0, 12.0, 0.02), 1.0, 2.0, 0.5)

    assert task_bins.too_few_to_analyse([wanted], [chosen(30, 8)]) == []
    assert task_bins.too_few_to_analyse([wanted], [chosen(10, 2) + chosen(30, 8, 1.5, 50)]) == []
    for few, words in [(chosen(29, 8), "29 from 8"), (chosen(60, 7), "60 from 7")]:
        (note,) = task_bins.too_few_to_analyse([wanted], [few])
        assert f"(the best has {words})" in note and "raise --per-bin" in note
    # a run of four walkers never has eight lanes, however many inputs
    narrow = task_bins.bins_of_run(run_of(0.0, 12.0, 0.02, walkers=4), 1.0, 2.0, 0.5)
    (note,) = task_bins.too_few_to_analyse([narrow], [chosen(60, 4)])
    assert "are 4 walkers in all; later lower --fewest-lanes" in note and "per-bin" not in note


def test_runs_of_one_model_are_counted_together():
    """As the analysis joins them: 15 inputs from four lanes each are enough."""
    bins_of_run = task_bins.bins_of_run
    one, two = (
        bins_of_run(run_of(0.0, 12.0, 0.02, name, walkers=4), low, 2.0, 0.5)
        for name, low in (("runs/a.h5", 1.0), ("runs/b.h5", 0.5))
    )
    halves = chosen(15, 4), chosen(15, 4, first=15)
    assert task_bins.too_few_to_analyse([one, two], halves) == []
    (note,) = task_bins.too_few_to_analyse([one, two], [halves[0], halves[0]])
    assert "in the tasks of runs/a.h5, runs/b.h5" in note and "has 15 from 8" in note
    other = bins_of_run(run_of(0.0, 12.0, 0.02, "runs/b.h5", "another", walkers=4), 1.0, 2.0, 0.5)
    assert len(task_bins.too_few_to_analyse([one, other], halves)) == 2


def test_the_script_refuses_before_it_draws_and_takes_the_remedy(tmp_path, inside):
    model = (
        f'kind = "python"\nfactory = "toy_models:lattice"\noptions = {{n_sites = {MODEL.n_sites}}}'
    )
    write_run(tmp_path / "a.h5", walkers=16, model=model)
    before = sorted(p.name for p in tmp_path.iterdir())
    asked = ("choose.py", "a.h5", "--width", "1", "--range", "0", "4", "--per-bin", "5")
    code, _, err = inside(*asked)
    assert is_plain(code, err, "those of a.h5 go from -0.125"), err
    assert sorted(p.name for p in tmp_path.iterdir()) == before
    remedy = shlex.split(err.strip().partition("; take ")[2])
    code, out, err = inside("choose.py", "a.h5", "--per-bin", "5", *remedy)
    assert code == 0, err
    assert "note: in the tasks of a.h5 no bin has 30 distinct inputs" in out
    code, out, _ = inside("choose.py", "a.h5", "--per-bin", "5", *remedy)
    assert code == 0 and "held other tasks" not in out  # the same draws
    code, out, _ = inside("choose.py", "a.h5", "--per-bin", "4", *remedy)
    assert code == 0 and "note: a.tasks.jsonl held other tasks; scores of those" in out
    assert np.isclose(EDGES, float(remedy[1])).any()


def fits(run_edges, edges):
    """Whether the analysis takes scores in these bins."""
    with contextlib.suppress(EstimateError):
        return bool(spans_of(run_edges, edges))
    return False


def stated_commands():
    """Yield (page, words) of every choose command that the pages and input files print."""
    pages = [ROOT / "README.md", *(ROOT / "docs").rglob("*.md"), *(ROOT / "inputs").glob("*.toml")]
    for page in pages:
        for line in page.read_text(encoding="utf-8").replace("\\\n", " ").splitlines():
            found = re.search(r"omniinput choose (\S+\.h5 .*--range.*)$", line)
            if found:
                yield page.relative_to(ROOT), shlex.split(found[1], comments=True)


def bins_of(page, run_file):
    """Return the bins of the input file that makes a run file: one page prints its own."""
    if str(page) == "docs/own-model.md":
        text = (ROOT / page).read_text(encoding="utf-8")
        printed = tomllib.loads(re.search(r"```toml\n(.*?)```", text, re.DOTALL)[1])
        assert printed["run"]["output"] == run_file
        return Bins(**printed["bins"])
    toml = (ROOT / "inputs" / run_file.removeprefix("runs/")).with_suffix(".toml")
    return Bins(**tomllib.loads(toml.read_text(encoding="utf-8"))["bins"])


def test_every_stated_command_fits_its_runs_bins():
    stated = list(stated_commands())
    assert len(stated) >= 14
    for page, words in stated:
        at = words.index("--range")
        low, high = float(words[at + 1]), float(words[at + 2])
        edges = task_bins.bin_edges(low, high, float(words[words.index("--width") + 1]))
        assert fits(bins_of(page, words[0]).edges, edges), f"{page}: {' '.join(words)}"


def test_the_tutorials_own_model_can_be_scored_in_round_bins():
    text = (ROOT / "docs/tutorial.md").read_text(encoding="utf-8")
    toml = re.search(r"`my_model.toml`:\s+```toml\n(.*?)```", text, re.DOTALL)[1]
    edges = Bins(**tomllib.loads(toml)["bins"]).edges
    assert fits(edges, task_bins.bin_edges(0.0, 10.0, 1.0))
    z = np.unique(0.5 * np.arange(31)).astype(np.float32).astype(float)  # all that the model gives
    assert ((z >= edges[0]) & (z <= edges[-1])).all()
