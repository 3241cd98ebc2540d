"""The density of whole runs: absolute, relative, cut bins, missing data."""

import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest
from lattice import (
    ENERGY_V,
    ArrayRun,
    Lattice,
    canonical_log_weights,
    first_is_zero,
    independent_run,
)

from omniinput_hpc.estimators import EstimateError
from omniinput_hpc.estimators.comparison.to_exact import Exact
from omniinput_hpc.estimators.density import density
from omniinput_hpc.estimators.density.density import density_of_run
from omniinput_hpc.estimators.density.result import upper_bounds
from omniinput_hpc.estimators.density.rung_weights import RungWeights
from omniinput_hpc.estimators.density.wham import solve
from omniinput_hpc.estimators.precision_recall.from_rule import rule_curve, sum_scores
from omniinput_hpc.results.density import total_line

MODEL = Lattice()
BETA_K = np.array([-3.0, -1.5, 0.0, 1.5, 3.0])
LEVEL_EDGES = (np.arange(len(MODEL.z_l()) + 1) - 0.5) * MODEL.unit  # one level per bin


def exact_log_g(edges):
    with np.errstate(divide="ignore"):
        return np.log(MODEL.bin_sums(edges, MODEL.count_l()))


def assert_within_sigmas(result, edges, sigmas=4.0):
    """Every bin within 4 sigmas and the rms z-score within 0.5 to 1.5."""
    known = np.isfinite(result.log_g_error_b)
    assert known.sum() > 10
    delta_b = result.log_g_b[known] - exact_log_g(edges)[known]
    z_score = delta_b / result.log_g_error_b[known]
    assert np.abs(z_score).max() < sigmas
    assert 0.5 < np.sqrt((z_score**2).mean()) < 1.5


def test_absolute_density_within_its_errors():
    run = independent_run(MODEL, BETA_K, LEVEL_EDGES, walkers=16, seed=1)
    result = density_of_run(run)
    assert result.absolute and result.share_inside == 1.0 and result.whole == "all inputs"
    part = replace(result, share_inside=np.nan, log_measure=result.log_measure + 1.0)
    assert part.whole == "the inputs in visited bins"  # absolute, as by Z(m), but not all
    assert result.verdict.converged, result.verdict.reasons
    assert_within_sigmas(result, LEVEL_EDGES)
    total = np.logaddexp.reduce(result.log_g_b)
    assert total == pytest.approx(MODEL.n_sites * np.log(MODEL.n_values), abs=1e-9)
    np.testing.assert_allclose(result.f_k[BETA_K == 0], -total)
    assert 0.5 < np.median((result.log_g_error_b / result.block_error_b)[10:20]) < 2.0


def test_how_many_lie_between_two_outputs():
    exact_b, z_scores = np.exp(exact_log_g(LEVEL_EDGES)), []
    first, last = 2, 7
    ends = LEVEL_EDGES[first], LEVEL_EDGES[last]
    for seed in range(24):
        run = independent_run(MODEL, BETA_K, LEVEL_EDGES, walkers=16, rounds=6, seed=seed)
        total, *found = density.log_total(density_of_run(run), ends[0] - 0.01, ends[1] + 0.01)
        assert found == pytest.approx(ends)
        z_scores.append((total.value - np.log(exact_b[first:last].sum())) / total.error)
    assert 0.6 < np.sqrt(np.mean(np.square(z_scores))) < 1.5
    with pytest.raises(EstimateError, match="--range 90 91: no whole bin with counts"):
        density.log_total(density_of_run(run), 90.0, 91.0)


def test_outputs_around_a_million_have_the_same_density_and_errors():
    near = independent_run(MODEL, BETA_K, LEVEL_EDGES, walkers=16, seed=1)
    shift = 2.0**20  # a quarter is a number of float32 there
    z_rks = (near.z_rks + shift).astype(np.float32)
    far = ArrayRun(near.x_rksd, z_rks, 16, BETA_K, LEVEL_EDGES + shift, MODEL.n_values)
    one, other = density_of_run(near), density_of_run(far)
    assert other.verdict.converged, other.verdict.reasons
    np.testing.assert_allclose(other.log_g_b, one.log_g_b, atol=1e-6)
    np.testing.assert_allclose(other.log_g_error_b, one.log_g_error_b, rtol=1e-4)
    np.testing.assert_allclose(other.block_error_b, one.block_error_b, rtol=1e-4)


@pytest.mark.slow
def test_hundreds_of_nats():
    """200 sites, log g from 0 to 274 nats, absolute at its middle alone: errors hold on the way.

    Each of some 580 bins within 5 sigmas of Student's t with 15 degrees of freedom.
    """
    model = Lattice(n_sites=200, unit=0.05)
    edges = (np.arange(len(model.z_l()) + 1) - 0.5) * model.unit
    run = independent_run(model, long_ladder(model), edges, rounds=8, walkers=16, moves=10)
    result = density_of_run(run)
    with np.errstate(divide="ignore"):
        exact_b = np.log(model.bin_sums(edges, model.count_l()))
    known = np.isfinite(result.log_g_error_b) & (result.effective_b >= 50)
    assert known.sum() > 500 and np.ptp(exact_b[known]) > 270
    score = (result.log_g_b - np.where(known, exact_b, 0.0))[known] / result.log_g_error_b[known]
    assert np.abs(score).max() < 5.0 and 0.5 < np.sqrt((score**2).mean()) < 1.5
    assert result.log_g_error_b[known].max() < 0.4
    curve = rule_curve(result, sum_scores(run, result, first_is_zero), whole=True)
    right = model.bin_sums(edges, model.right_l()).sum()
    assert curve.log_recall_t[-1] == pytest.approx(np.log(right), abs=0.15)
    assert np.log(right) > 275 and 0 < curve.aupr_error < 0.05


@pytest.mark.parametrize(("levels", "wide"), [(1, False), (3, False), (8, True)])
def test_wide_bins_are_corrected_and_too_wide_ones_not_believed(levels, wide, monkeypatch):
    """Levels at beta up to 14: with three a bin log g would be 0.2 too low; eight are too many."""
    model = Lattice(n_sites=100, unit=0.05)
    betas = np.array([0.0, 2.0, 5.0, 9.0, 14.0])
    edges = (np.arange(len(model.z_l()) // levels + 2) * levels - 0.5) * model.unit
    run = independent_run(model, betas, edges, walkers=16, rounds=16, moves=40)
    result = density_of_run(run)
    reason = [text for text in result.verdict.reasons if "too wide" in text]
    assert bool(reason) == wide
    with np.errstate(divide="ignore"):
        exact_b = np.log(model.bin_sums(edges, model.count_l()))
    firm = result.effective_b >= 50
    low_b = exact_b[firm] - result.log_g_b[firm]
    rms = np.sqrt(np.mean((low_b / result.log_g_error_b[firm]) ** 2))
    assert (rms > 5.0) if wide else (0.7 < rms < 1.3)
    if wide:
        about, width = (float(reason[0].split(word)[1].split()[0]) for word in ("about ", "of "))
        assert about == pytest.approx(low_b.max(), rel=0.3) and 0.02 < width < 0.2
    if levels == 3:
        monkeypatch.setattr(RungWeights, "mean_in_bins", lambda self, i: self.at_bins(i.z_b))
        wrong_b = exact_b[firm] - density_of_run(run).log_g_b[firm]
        assert np.sqrt(np.mean((wrong_b / result.log_g_error_b[firm]) ** 2)) > 2.0


def long_ladder(model):
    """Return betas from one end of the outputs to the other, 1.2 standard deviations apart."""
    sides = []
    for sign in (-1.0, 1.0):
        betas, mean, n = [0.0], 1.0, model.n_sites
        while 8 < n * mean < 592:
            p = np.exp(-betas[-1] * ENERGY_V)
            p /= p.sum()
            mean, square = p @ ENERGY_V, p @ ENERGY_V**2
            betas.append(betas[-1] + sign * 1.2 / np.sqrt(n * (square - mean**2)))
        sides.append(betas[:-1])
    return np.array(sides[0][:0:-1] + sides[1]) / model.unit


def test_absolute_density_when_inputs_lie_outside_the_bins():
    """The share outside is taken off: also in every replicate, or errors would be too small."""
    edges = LEVEL_EDGES[4:20]
    run = independent_run(MODEL, BETA_K, edges, walkers=16, seed=2)
    result = density_of_run(run)
    inside = MODEL.count_l()[4:19].sum() / MODEL.count_l().sum()
    assert result.absolute and 0.3 < result.share_inside < 0.99
    assert result.whole == "the inputs inside the bins"
    sigma = np.sqrt(inside * (1 - inside) / result.n_k[2])
    assert abs(result.share_inside - inside) < 4 * sigma
    assert_within_sigmas(result, edges)
    share_j = np.exp(np.logaddexp.reduce(result.log_g_jb, axis=1) - result.log_measure)
    spread = np.sqrt(15 / 16 * ((share_j - share_j.mean()) ** 2).sum())
    assert 0.4 * sigma < spread < 2.0 * sigma


def test_replicates_know_the_share_inside_for_groups_of_unequal_size():
    """24 lanes make 16 groups of 1 or 2: each replicate's total is its own lanes' moves."""
    edges = LEVEL_EDGES[4:20]
    run = independent_run(MODEL, BETA_K, edges, walkers=24, rounds=8, seed=7)
    result = density_of_run(run)
    lane_s = np.arange(run.samples_per_round) % 24
    z_s = run.z_rks[:, 2].astype(float)
    for j in range(16):
        z_rest = z_s[:, lane_s * 16 // 24 != j]
        share = np.mean((z_rest >= edges[0]) & (z_rest <= edges[-1]))
        log_total = np.logaddexp.reduce(result.log_g_jb[j])
        assert log_total == pytest.approx(result.log_measure + np.log(share), abs=1e-9)


def test_relative_density_without_a_uniform_rung():
    run = independent_run(MODEL, BETA_K[BETA_K != 0], LEVEL_EDGES, walkers=16, seed=3)
    result = density_of_run(run)
    assert not result.absolute and np.isnan(result.share_inside)
    assert result.whole == "the inputs in visited bins"
    assert np.logaddexp.reduce(result.log_g_b) == pytest.approx(0.0, abs=1e-12)
    known = np.isfinite(result.log_g_error_b)
    delta_b = result.log_g_b[known] - exact_log_g(LEVEL_EDGES)[known] + result.log_measure
    assert np.abs(delta_b / result.log_g_error_b[known]).max() < 4


def test_the_exact_share_stands_beside_a_relative_one():
    """Not the exact number of inputs: without beta = 0 the sum of g is 1."""
    run = independent_run(MODEL, BETA_K[BETA_K != 0], LEVEL_EDGES, walkers=16, seed=3)
    result, exact_b = density_of_run(run), exact_log_g(LEVEL_EDGES)
    ends = LEVEL_EDGES[[4, 12]]
    total, *_ = density.log_total(result, *ends)
    line = total_line(result, total, ends, Exact(exact_b, exact_b))
    share = np.exp(np.logaddexp.reduce(exact_b[4:12]) - np.logaddexp.reduce(exact_b))
    assert float(line.split("exactly ")[1]) == pytest.approx(share, rel=0.05)


def test_bin_centres_instead_of_mean_outputs_are_noticed():
    """Bins that a lattice of outputs fills unevenly: centres put the density far off."""
    edges = np.arange(-0.01, 7.0, 0.41)
    run = independent_run(MODEL, BETA_K, edges, walkers=16, moves=100, seed=4)
    result = density_of_run(run)
    good = exact_log_g(edges) > np.log(100)
    delta_b = result.log_g_b[good] - exact_log_g(edges)[good]
    assert np.abs(delta_b).max() < 0.1
    centres = 0.5 * (edges[:-1] + edges[1:])
    wrong_b = solve(run.counts_kb, canonical_log_weights(BETA_K, centres)).log_g_b
    wrong_b = wrong_b[good] - exact_log_g(edges)[good]
    assert np.abs(wrong_b - wrong_b.mean()).max() > 0.1


def test_bin_seen_by_one_group_has_no_error():
    run = independent_run(MODEL, BETA_K, LEVEL_EDGES, walkers=4, rounds=4, moves=5, seed=5)
    result = density_of_run(run)
    groups_b = (run.lane_counts_kgb.sum(axis=0) > 0).sum(axis=0)
    assert (groups_b == 1).any()
    assert np.isposinf(result.log_g_error_b[groups_b == 1]).all()
    assert np.isfinite(result.log_g_error_b[groups_b >= 2]).all()
    assert np.isnan(result.log_g_error_b[groups_b == 0]).all()
    assert np.isneginf(result.log_g_b[groups_b == 0]).all()


def test_fewer_than_50_effective_counts_get_an_upper_bound():
    log_g_b, error_b = np.array([3.0, 3.0, -np.inf]), np.array([0.1, 0.1, np.nan])
    bound_b = upper_bounds(log_g_b, error_b, np.array([49.9, 50.1, 0.0]), 16)
    assert 3.0 < bound_b[0] < 3.5 and np.isnan(bound_b[1:]).all()
    one = upper_bounds(np.zeros(1), np.full(1, np.inf), np.ones(1), 16)
    assert one[0] == pytest.approx(np.log(4.744), abs=1e-3)  # Garwood: 1 seen, below 4.744 in 95%


@pytest.mark.slow
def test_upper_bounds_hold():
    """Of bins with few counts the truth lies below the bound in 95%, below the estimate in fewer.

    100 runs; a bin is bounded in some tens of runs or more: at least 86% of them (3 sigmas).
    """
    exact_b, below, plain, n = exact_log_g(LEVEL_EDGES), 0, 0, 0
    for seed in range(100):
        run = independent_run(MODEL, BETA_K, LEVEL_EDGES, walkers=8, rounds=2, moves=3, seed=seed)
        found = density_of_run(run)
        assert np.isnan(found.log_g_upper_b).all()  # so short a run has not converged
        upper_b = upper_bounds(found.log_g_b, found.log_g_error_b, found.effective_b, 8)
        few = np.isfinite(upper_b)
        assert (found.effective_b[few] < 50).all() and few.sum() > 3
        below = below + (few & (exact_b <= upper_b))
        plain = plain + (few & (exact_b <= found.log_g_b))
        n = n + few
    often = n >= 50
    assert often.sum() > 10
    assert (below[often] / n[often]).min() > 0.86
    assert not (plain[often] / n[often]).min() > 0.86


def test_one_lane_gives_a_density_without_errors():
    result = density_of_run(independent_run(MODEL, BETA_K, LEVEL_EDGES, walkers=1, moves=100))
    assert np.isfinite(result.log_g_b[10]) and np.isposinf(result.log_g_error_b[10])
    assert not result.verdict.converged and "one lane" in result.verdict.reasons[0]


def test_one_round():
    result = density_of_run(independent_run(MODEL, BETA_K, LEVEL_EDGES, rounds=1, moves=200))
    assert np.isfinite(result.log_g_error_b[10])
    assert not result.verdict.converged and "too few rounds" in result.verdict.reasons[0]


def joined_by_one_lane(shared_lanes):
    """Return a run of two rungs whose histograms meet in a bin that only some lanes visit."""
    z = np.zeros((4, 2, 12), np.float32)
    z[:, 0], z[:, 1] = 0.5, 2.5
    z[:, :, :shared_lanes] = 1.5
    x = np.zeros((4, 2, 12, 3), np.uint8)
    return ArrayRun(x, z, 4, [0.0, 1.0], [0.0, 1.0, 2.0, 3.0], 4)


def test_replicates_that_cannot_be_solved_leave_the_error_open():
    result = density_of_run(joined_by_one_lane(1))
    assert np.isfinite(result.log_g_b).all() and np.isposinf(result.log_g_error_b).all()
    assert any("share no bin" in reason for reason in result.verdict.reasons)
    assert np.isfinite(density_of_run(joined_by_one_lane(2)).log_g_error_b).all()


def test_why_a_replicate_could_not_be_solved_is_said(monkeypatch):
    run = independent_run(MODEL, BETA_K, LEVEL_EDGES, seed=3)
    solve_all, calls = density.solve, []

    def fail_once(counts_kb, *arguments, **options):
        calls.append(options["f_k"])
        if len(calls) == 3:  # after the whole and the first replicate
            raise EstimateError("the equations did not converge")
        return solve_all(counts_kb, *arguments, **options)

    monkeypatch.setattr(density, "solve", fail_once)
    text = " ".join(density_of_run(run).verdict.reasons)
    assert "without one of the groups of lanes, the equations did not converge" in text


def test_plain_errors():
    with pytest.raises(EstimateError, match="between beta = 0 and beta = 1"):
        density_of_run(joined_by_one_lane(0))
    run = independent_run(MODEL, BETA_K, LEVEL_EDGES + 100.0, rounds=2)
    with pytest.raises(EstimateError, match="outside the bins"):
        density_of_run(run)
    run = independent_run(MODEL, BETA_K, LEVEL_EDGES, rounds=2)
    run.rounds = 0
    with pytest.raises(EstimateError, match="no committed round"):
        density_of_run(run)
    run = independent_run(MODEL, BETA_K, LEVEL_EDGES, rounds=2)
    run = replace(run.record(), counts_kb=run.counts_kb + 1)
    with pytest.raises(EstimateError, match="do not add up"):
        density_of_run(run)


def test_a_rung_outside_the_bins_is_named():
    run = independent_run(MODEL, np.array([-30.0, 0.0, 1.0]), LEVEL_EDGES[:20], moves=100)
    result = density_of_run(run)
    assert any("beta = -30" in reason for reason in result.verdict.reasons)
    assert np.isfinite(result.log_g_error_b[10])


def test_stuck_lanes_are_not_converged():
    run = independent_run(MODEL, BETA_K, LEVEL_EDGES, rounds=40, walkers=16, seed=6)
    x, z = run.x_rksd.copy(), run.z_rks.copy()
    stuck = np.arange(z.shape[2]) % 16 < 3
    x[:, 3, stuck], z[:, 3, stuck] = 0, 0.0
    result = density_of_run(ArrayRun(x, z, 16, BETA_K, LEVEL_EDGES, MODEL.n_values))
    assert not result.verdict.converged
    assert any("beta = 1.5" in reason for reason in result.verdict.reasons)


def test_estimators_import_numpy_and_scipy_alone():
    code = (
        "import sys, pkgutil, importlib, omniinput_hpc.estimators as e\n"
        "for m in pkgutil.iter_modules(e.__path__):\n"
        "    importlib.import_module(f'{e.__name__}.{m.name}')\n"
        "bad = {'torch', 'mpi4py', 'h5py', 'matplotlib', 'pydantic'} & set(sys.modules)\n"
        "sys.exit(f'imported {bad}' if bad else 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=400)
    assert done.returncode == 0, done.stderr
    assert density.__file__
