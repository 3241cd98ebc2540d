"""What is only looked at: warnings, without which a run has the same bytes."""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from run_tools import assert_same
from runs_in_progress import begin, config_of

from omniinput_hpc.sampling import loop

SMALL = ("run.rounds=3", "run.burn_in=2", "sampler.exchanges=2", "sampler.steps=4")


def test_without_it_a_run_has_the_same_bytes(tmp_path, log_lines):
    for name in ("with", "without"):
        (tmp_path / name).mkdir()
        run = begin(config_of(tmp_path / name, *SMALL, "bins.upper=1.125"))
        if name == "without":
            run.observer = SimpleNamespace(after_round=lambda round_, stats: None)
        log_lines.clear()
        loop.sample(run)
        run.writer.close()
        told = any("outputs fell outside the bins" in line for line in log_lines)
        assert told == (name == "with")
    assert_same(tmp_path / "with/run.h5", tmp_path / "without/run.h5")


def test_warnings_name_the_rungs(tmp_path, log_lines):
    run = begin(config_of(tmp_path, *SMALL))
    run.observer.counted.moves_k2[:] = [[10, 10], [10, 0], [0, 0], [10, 1]]
    run.observer.counted.swaps_k2[:] = [[8, 1], [8, 0], [0, 0]]
    log_lines.clear()
    run.observer.warn()
    assert log_lines == [
        "warning: rung 1 (beta = 0): all outputs fell outside the bins; widen [bins]",
        "warning: rungs 1 and 2 never swapped: add a rung between beta = 0 and 1.5",
    ]
    run.observer._rung_k3 = np.array([[0, 0, 0], [0, 40, 1], [0, 40, 6], [0, 40, 9]])
    run.observer.warn()  # Gaussian rungs may have one beta
    assert log_lines[-1].endswith("swapped: add a Gaussian rung whose z0 lies between theirs")
    run.observer._ladder = SimpleNamespace(lambdas=[0.0, 0.0, 1.0, 2.0])
    run.observer.warn()
    assert log_lines[-1].endswith("swapped: add a rung whose beta and lambda lie between theirs")
    run.observer._ladder, run.observer._rung_k3 = None, np.zeros((4, 3))
    del log_lines[2:]
    run.observer._first_round = 2  # resumed: what came before is not counted
    run.observer.warn()
    assert "all outputs since this start fell outside" in log_lines[2]
    assert "rungs 1 and 2 never swapped since this start: add" in log_lines[3]


@pytest.mark.parametrize("reasons", [["", "", ""], ["", "it waits", "other bits"]])
def test_ranks_without_graphs_are_counted_once(tmp_path, log_lines, monkeypatch, reasons):
    run = begin(config_of(tmp_path, *SMALL))
    monkeypatch.setattr(type(run.world), "texts", lambda world, own: [own, *reasons[1:]])
    loop.sample(run)
    run.observer.warn()
    run.writer.close()
    said = [line for line in log_lines if "without CUDA graphs" in line]
    if any(reasons):
        assert len(said) == 1  # it is looked at several times, because graphs come late
        assert "2 of 3 ranks evaluate the model without CUDA graphs" in said[0]
        assert said[0].endswith("wait for them: it waits (rank 1)")
    else:
        assert said == []


def test_a_models_reason_reaches_the_log(tmp_path, log_lines):
    run = begin(config_of(tmp_path, *SMALL))
    offers = run.rungs[0].walkers.model.offers
    run.rungs[0].walkers.model.offers = replace(offers, without_graphs=lambda: "it waits")
    run.observer.warn()
    run.writer.close()
    (line,) = log_lines
    assert "1 of 1 ranks" in line and "it waits" in line
