"""Burn-in: what it counts, when it freezes, and that counted rounds learn nothing."""

import numpy as np
import pytest
from runs_in_progress import begin, config_of

from omniinput_hpc.errors import UserError
from omniinput_hpc.histogram import Histogram
from omniinput_hpc.sampling import loop
from omniinput_hpc.sampling.rung import Rung

SMALL = ("run.rounds=3", "run.burn_in=2", "sampler.exchanges=2", "sampler.steps=4")


def test_the_extremes_of_burn_in_are_those_of_all_its_outputs(tmp_path, monkeypatch):
    seen, add = [], Histogram.add
    monkeypatch.setattr(Histogram, "add", lambda self, z: (seen.append(z.copy()), add(self, z)))
    run = begin(config_of(tmp_path, *SMALL))
    loop.sample(run)
    run.writer.close()
    burn_in = np.concatenate(seen[: 2 * 2 * 4])  # rounds, exchanges, rungs
    assert run.burn_in.seen.moves_k2[:, 0].sum() == burn_in.size
    assert run.burn_in.seen.extremes.tolist() == [burn_in.min(), burn_in.max()]


@pytest.mark.parametrize(("burn_in", "first"), [(1, -1), (4, -2), (8, -3)])
def test_learning_is_frozen_before_the_last_quarter(tmp_path, monkeypatch, burn_in, first):
    run, frozen = begin(config_of(tmp_path, *SMALL, f"run.burn_in={burn_in}")), set()
    monkeypatch.setattr(Rung, "freeze", lambda rung: frozen.add(run.next_round))
    loop.sample(run)
    run.writer.close()
    assert frozen == set(range(first, 0))


def test_outputs_outside_all_bins_end_the_run_before_its_last_burn_in_round_counts(tmp_path):
    run = begin(config_of(tmp_path, *SMALL, "bins.lower=20.0", "bins.upper=21.0"))
    with pytest.raises(UserError, match="all outputs of burn-in fell outside the bins"):
        loop.sample(run)
    run.writer.close()
    assert run.next_round == -1
