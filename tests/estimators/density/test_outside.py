"""Inputs outside the bins: against the exact share of an enumerable model; side and bound."""

import numpy as np
import pytest
from configs import config_with
from lattice import BETA_K, MODEL, ancestral_run, independent_run
from lattice import LEVEL_EDGES as EDGES

from omniinput_hpc.estimators.density.density import density_of_run, density_of_runs
from omniinput_hpc.estimators.density.outside import Outside, outside_bins
from omniinput_hpc.plots.density import density_figure
from omniinput_hpc.results.density import DensityResult

CUTS = {"below": EDGES[4:], "above": EDGES[:16], "both": EDGES[4:16]}


def true_shares(edges):
    """Return the exact shares of all inputs below and above some bins."""
    share_l, z_l = MODEL.count_l() / MODEL.count_l().sum(), MODEL.z_l()
    return share_l[z_l < edges[0]].sum(), share_l[z_l > edges[-1]].sum()


def run_of(edges, **options):
    return independent_run(MODEL, BETA_K, edges, **{"walkers": 16, "rounds": 24, **options})


@pytest.mark.parametrize("cut", CUTS)
def test_mass_outside_is_named_by_share_and_side(cut):
    """The trap of missing mass: all else of these runs is well, and they have not converged."""
    edges = CUTS[cut]
    run = run_of(edges)
    density = density_of_run(run)
    sides = ["below", "above"] if cut == "both" else [cut]
    n = run.counts_kb[3].sum() + run.outside_k2[3].sum()
    for found, true in zip(
        (density.outside.below, density.outside.above), true_shares(edges), strict=True
    ):
        assert abs(found - true) <= 4 * np.sqrt(true * (1 - true) / n)
    verdict = density.verdict
    assert not verdict.converged and len(verdict.reasons) == len(sides)
    for side, reason in zip(sides, verdict.reasons, strict=True):
        share = getattr(density.outside, side)
        assert reason.startswith(f"{100 * share:.2g} % of all inputs lie {side} the bins")
        assert f"set bins.{'lower' if side == 'below' else 'upper'} to about" in reason
    result = DensityResult([run], [density])
    for words in (result.summary(), result.about()):
        assert all(f"not converged: {reason}" in words for reason in verdict.reasons)
    title = density_figure(density, "z").axes[0].get_title(loc="left")
    assert all(f"of all inputs lie {side} the bins" in title for side in sides)


@pytest.mark.slow
@pytest.mark.parametrize("cut", CUTS)
def test_the_named_bounds_hold_all_that_was_seen(cut):
    """A run in the bins that the message names has nothing outside, and converges."""
    first = run_of(CUTS[cut])
    lower, upper = CUTS[cut][0], CUTS[cut][-1]
    for reason in outside_bins([first]).checks(CUTS[cut]):
        bound = float(reason.remedy.split("to about ")[1].split()[0])
        lower, upper = (bound, upper) if "bins.lower" in reason.remedy else (lower, bound)
    edges = np.arange(round((upper - lower) / MODEL.unit) + 1) * MODEL.unit + lower
    again = density_of_run(run_of(edges, seed=9))
    assert again.outside.below + again.outside.above < 1e-3 and again.outside.shares() == []
    assert again.verdict.converged, again.verdict.reasons


def test_little_mass_outside_is_no_matter():
    """True share 0.02 %: below what is asked about; the share is known all the same."""
    edges = EDGES[:22]
    assert 0 < sum(true_shares(edges)) < 5e-4
    density = density_of_run(run_of(edges))
    assert density.verdict.converged, density.verdict.reasons
    assert density.outside.shares() == [] and density.outside.below == 0.0


@pytest.mark.slow
def test_runs_of_one_model_are_counted_together():
    edges = CUTS["below"]
    runs = [run_of(edges, seed=seed) for seed in (1, 2)]
    apart, together = [outside_bins([run]).below for run in runs], outside_bins(runs).below
    assert together == pytest.approx(np.mean(apart), rel=1e-12)
    for seed, run in enumerate(runs):
        run.config = config_with(run={"seed": seed})
    assert not density_of_runs(runs).verdict.converged


def test_without_a_uniform_rung_nothing_is_known():
    run = independent_run(MODEL, BETA_K[BETA_K != 0], CUTS["both"], walkers=16)
    found = outside_bins([run])
    assert np.isnan(found.below) and found.shares() == [] and found.checks(run.edges)[0].passed


def test_uniform_draws_of_an_ancestral_run_count_too():
    tilt_kd = np.array([[0.0] * MODEL.n_sites, [1.0] * MODEL.n_sites])
    run = ancestral_run(MODEL, tilt_kd, CUTS["below"], rounds=32)
    run.beta_k = np.array([0.0, 1.0])
    true = true_shares(CUTS["below"])[0]
    n = run.counts_kb[0].sum() + run.outside_k2[0].sum()
    assert abs(outside_bins([run]).below - true) <= 4 * np.sqrt(true * (1 - true) / n)


def test_a_bound_without_a_recorded_sample_says_the_direction():
    (check,) = Outside(below=0.02, above=0.0).checks(EDGES)
    said = check.reason
    assert said.endswith("set bins.lower further down")
    (all_,) = Outside(below=0.99999, above=0.0).shares()
    assert all_ == "99.999 % of all inputs lie below the bins"


def test_a_side_with_next_to_nothing_is_not_spoken_of():
    found = Outside(2e-3, 1e-7, -1.0, 9.0)
    assert found.shares() == ["0.2 % of all inputs lie below the bins"]
    assert len(found.checks(np.arange(5.0))) == 1
    assert Outside(1.0 - 1e-9, 0.0).shares()[0].startswith("99.9999 %")
