"""Densities in wider bins: sums, bounds, edges that do not fit, and effective counts."""

from dataclasses import replace

import numpy as np
import pytest
from lattice import MODEL, ArrayRun, ancestral_run
from scored_model import FINE, WIDE, a_density, exact

from omniinput_hpc.estimators import EstimateError
from omniinput_hpc.estimators.density import wide_bins
from omniinput_hpc.estimators.density.density import density_of_run
from omniinput_hpc.estimators.density.wide_bins import coarsen, edges_of_width, for_picture


def test_coarse_bins_below_the_floor_have_neither_error_nor_bound():
    rare = replace(a_density(1), effective_b=np.full(len(FINE) - 1, 5.0))
    cold = coarsen(replace(rare, floor=float(WIDE[1])), WIDE)
    assert np.isfinite(coarsen(rare, WIDE).log_g_upper_b).all()
    assert np.isinf(cold.log_g_error_b[0]) and np.isnan(cold.log_g_upper_b[0])
    assert np.isfinite(cold.log_g_error_b[1:]).all() and np.isfinite(cold.log_g_upper_b[1:]).all()


def test_coarse_bins_hold_what_their_bins_hold():
    density = a_density(1)
    got = coarsen(density, WIDE)
    first = np.searchsorted(FINE, WIDE[0] - 1e-9)
    g_b = np.exp(density.log_g_b[first : first + 3])
    assert np.exp(got.log_g_b[0]) == pytest.approx(g_b.sum())
    assert got.z_b[0] == pytest.approx(np.average(density.z_b[first : first + 3], weights=g_b))
    assert got.count_b[0] == density.count_b[first : first + 3].sum()
    np.testing.assert_allclose(got.log_g_b, exact().log_g_b, atol=0.3)
    assert (got.log_g_error_b < 0.2).all()
    for edges in (WIDE + 0.1 * 0.25, np.array([-5.0, 1.0]), np.array([1.375, 1.375])):
        with pytest.raises(EstimateError, match=r"do not fit the run's"):
            coarsen(density, edges)


def test_joined_bins_are_worth_what_their_draws_are():
    """Ancestral draws: Kish's number of a wide bin's draws, as a run with wide bins counts it.

    Both pool over neighbours: to 40%.
    """
    tilt_kd = np.array([[-6.0], [0.0], [7.0]]) + np.linspace(-3.0, 3.0, MODEL.n_sites)
    runs = [ancestral_run(MODEL, tilt_kd, edges, moves=40, seed=3) for edges in (FINE, WIDE)]
    fine, wide = (density_of_run(run) for run in runs)
    got = coarsen(fine, WIDE)
    np.testing.assert_allclose(got.effective_b, wide.effective_b, rtol=0.4)
    np.testing.assert_array_equal(got.count_b, wide.count_b)
    first = int(np.searchsorted(FINE, WIDE[0] - 1e-9))
    added_b = np.add.reduceat(fine.effective_b, np.arange(first, first + 18, 3))
    assert (added_b[:6] > 1.5 * wide.effective_b[:6]).any()  # adding them up claims too many


def test_bins_of_equal_weights_add_up_and_empty_ones_count_nothing():
    density = a_density(1)
    alike = replace(density, log_g_b=np.log(np.maximum(density.effective_b, 1e-9)))
    first = int(np.searchsorted(FINE, WIDE[0] - 1e-9))
    got = coarsen(alike, WIDE).effective_b
    most = density.effective_b[first : first + 3].sum()
    assert 0.9 * most < got[0] <= most  # lanes differ a little by chance
    none = coarsen(replace(alike, effective_b=np.zeros(len(FINE) - 1)), WIDE)
    assert (none.effective_b == 0).all()


def test_edges_of_a_width_are_its_multiples_if_the_run_has_them():
    fine = 0.1 + 0.1 * np.arange(25)  # 0.1 to 2.5
    np.testing.assert_allclose(edges_of_width(fine, 0.5), [0.1, 0.5, 1.0, 1.5, 2.0, 2.5])
    np.testing.assert_allclose(edges_of_width(fine + 0.05, 1.0), [0.15, 1.15, 2.15, 2.55])
    np.testing.assert_array_equal(edges_of_width(fine, 0.1), fine)
    for width in (0.0, 0.04, 0.15, 2.5, np.inf):
        with pytest.raises(EstimateError, match="expected a multiple"):
            edges_of_width(fine, width)


def test_a_picture_has_few_enough_bins_and_all_inputs(monkeypatch):
    density = a_density(1)
    assert for_picture(density) is density
    monkeypatch.setattr(wide_bins, "MOST_IN_PICTURE", 5)
    drawn = for_picture(density)
    assert round(np.diff(drawn.edges)[1] / np.diff(FINE)[0]) in wide_bins.PICTURE_FACTORS[1:]
    assert np.count_nonzero(drawn.count_b) <= 6
    assert drawn.count_b.sum() == density.count_b.sum()
    total = np.logaddexp.reduce(density.log_g_b)
    assert np.logaddexp.reduce(drawn.log_g_b) == pytest.approx(total)


def test_one_stay_of_a_walker_counts_once_in_a_wide_bin():
    """Each lane stays four rounds below or above 1, and fills 20 bins there: 1,024 stays."""
    rounds, walkers, moves = 512, 16, 10
    rng = np.random.default_rng(1)
    above = np.repeat(rng.random((rounds // 4, walkers)) < 0.5, 4, axis=0)
    z = rng.random((rounds, moves, walkers)) + above[:, None]
    x = rng.integers(0, 4, (rounds, 1, moves * walkers, 8)).astype(np.uint8)
    z_rks, edges = z.reshape(rounds, 1, -1).astype(np.float32), np.linspace(0.0, 2.0, 41)
    density = density_of_run(ArrayRun(x, z_rks, walkers, [0.0], edges, 4))
    halves = np.array([0.0, 1.0, 2.0])
    assert (density.effective_b > 700).all()  # in each of the 40 bins
    for joined in (wide_bins.in_bins(density, halves), coarsen(density, halves)):
        assert ((joined.effective_b > 700) & (joined.effective_b < 2000)).all()
        assert joined.parts[0].counts_gb.shape == (16, 2)
        alone = wide_bins.in_bins(density, halves[:2])  # of the same rung, other bins or not
        assert alone.effective_b[0] == wide_bins.in_bins(density, halves).effective_b[0]
