"""A round's statistics: one reduction over all ranks, and their totals over rounds."""

import numpy as np
import pytest
from runs_in_progress import WORLD, begin, config_of

from omniinput_hpc.histogram import Histogram
from omniinput_hpc.sampling import loop, stats
from omniinput_hpc.sampling.stats import RoundStats, Totals

SMALL = ("run.rounds=1", "run.burn_in=2", "sampler.exchanges=2", "sampler.steps=4")


@pytest.fixture
def seen(monkeypatch):
    """All outputs that histograms count, one array for each segment of a rung."""
    found, add = [], Histogram.add
    monkeypatch.setattr(Histogram, "add", lambda self, z: (found.append(z.copy()), add(self, z)))
    return found


def of_a_round(folder, *changes):
    """Return the statistics of a run's first round, and the run."""
    run = begin(config_of(folder, *SMALL, "run.burn_in=0", *changes))
    loop.sample(run)
    run.writer.close()
    return RoundStats.reduced(WORLD, run.geometry, run.rungs, run.exchanger), run


@pytest.mark.parametrize("blocks", [1, 2])
def test_they_are_those_of_all_outputs(tmp_path, seen, blocks):
    found, run = of_a_round(tmp_path, f"sampler.blocks={blocks}", "bins.upper=1.125")
    z_ik = np.array(seen).reshape(2, 4, -1).swapaxes(0, 1).reshape(4, -1).astype(np.float64)
    edges = run.config.bins.edges
    assert found.moves_k2[:, 0].tolist() == [z_ik.shape[1]] * 4
    inside_k = ((z_ik >= edges[0]) & (z_ik <= edges[-1])).sum(axis=1)
    np.testing.assert_array_equal(found.moves_k2[:, 1], inside_k)
    assert (inside_k < z_ik.shape[1]).any()
    np.testing.assert_allclose(found.moments_k3[:, 1], z_ik.sum(axis=1))
    np.testing.assert_allclose(found.moments_k3[:, 2], (z_ik**2).sum(axis=1))
    assert found.extremes.tolist() == [z_ik.min(), z_ik.max()]
    np.testing.assert_array_equal(found.parameters_k3[:, 0], [-2.0, 0.0, 1.5, 4.0])
    assert found.swaps_k2[:, 0].tolist() == [8, 8, 8] and not found.imbalance_w.any()


def test_only_pairs_that_were_tried_have_a_rate(tmp_path):
    found, _ = of_a_round(tmp_path, "sampler.exchanges=1")
    assert len(found.swap_rate_p) == 2 and (found.swap_rate_p <= 1).all()


def test_totals_add_rounds(tmp_path):
    found, _ = of_a_round(tmp_path)
    totals = Totals.zeros(4)
    totals.add(found), totals.add(found)
    np.testing.assert_array_equal(totals.moves_k2, 2 * found.moves_k2)
    np.testing.assert_array_equal(totals.swaps_k2, 2 * found.swaps_k2)
    assert totals.extremes.tolist() == found.extremes.tolist()


@pytest.mark.parametrize(("extremes", "words"), [
    ((-6.0, -2.0), "z ranged from -6 to -2; bins begin at 5"),
    ((6.0, 14.5), "z ranged from 6 to 14.5; bins end at 12"),
    ((-1.0, 30.0), "z ranged from -1 to 30; bins begin at 5 and bins end at 12"),
])  # fmt: skip
def test_where_outputs_outside_the_bins_were(extremes, words):
    assert stats.outside_words(np.array(extremes), (5.0, 12.0)) == words
