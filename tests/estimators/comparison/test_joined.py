"""Joined runs: where populations and a ladder disagree, the result has not converged."""

import numpy as np
import pytest
from configs import config_with
from lattice import LEVEL_EDGES, MODEL, ArrayRun, independent_run
from populations import BETA_K, annealed_run

from omniinput_hpc.estimators import EstimateError
from omniinput_hpc.estimators.comparison import joined
from omniinput_hpc.estimators.comparison.joined import agreement, joined_density
from omniinput_hpc.estimators.density import arrivals
from omniinput_hpc.estimators.density.density import density_of_run, density_of_runs
from omniinput_hpc.estimators.errors.convergence import Check

with np.errstate(divide="ignore"):
    EXACT_B = np.log(MODEL.bin_sums(LEVEL_EDGES, MODEL.count_l()))


def ladder(seed, missing=False, rounds=32, edges=LEVEL_EDGES):
    """Return a ladder of canonical rungs; with `missing` it never found half of the low inputs.

    What it lacks are inputs of low z, more often the lower z is.
    """
    run = independent_run(MODEL, BETA_K, edges, rounds=rounds, walkers=64, seed=seed)
    run.config = config_with(run={"seed": seed})
    if missing:
        random = np.random.default_rng(seed)
        x, z = run.x_rksd.copy(), run.z_rks.copy()
        lost = random.random(z.shape) < 0.5 * (z < 1.5)
        donor = random.permutation(np.argwhere(~lost[:, 2]))
        for r, k, s in np.argwhere(lost):
            keep = np.flatnonzero(~lost[r, k])
            take = keep[random.integers(len(keep))] if len(keep) else donor[0][1]
            x[r, k, s], z[r, k, s] = x[r, k, take], z[r, k, take]
        run = ArrayRun(x, z, run.walkers, run.beta_k, run.edges, run.n_values)
        run.config = config_with(run={"seed": seed})
    return run


def populations(seed, **options):
    return annealed_run(seed, rounds=32, **options)[0]


def reasons(annealed, others):
    """Return in what runs disagree."""
    return [check.reason for check in agreement(annealed, others) if not check.passed]


def test_right_runs_agree_and_join():
    """No false alarm in 5 pairs; two tests of 1 in 100 each."""
    alarms = [reasons([populations(seed)], [ladder(seed)]) for seed in range(5)]
    assert sum(map(bool, alarms)) <= 1
    both = joined_density([ladder(1), populations(1)])
    assert both.absolute and both.verdict.converged, both.verdict.reasons
    use = (both.effective_b >= 50) & np.isfinite(EXACT_B)
    score = (both.log_g_b[use] - EXACT_B[use]) / both.log_g_error_b[use]
    assert 0.4 < np.sqrt(np.mean(score**2)) < 1.6 and use.sum() > 10
    alone = density_of_run(populations(1))
    assert (both.effective_b >= alone.effective_b - 1e-9).all()


def test_a_ladder_that_missed_something_is_not_converged():
    runs = [ladder(1, missing=True), populations(1)]
    assert all("disagree" not in reason for reason in density_of_run(runs[0]).verdict.reasons)
    both = joined_density(runs)
    assert not both.verdict.converged
    assert any("disagree" in reason for reason in both.verdict.reasons)
    assert np.isnan(both.log_g_upper_b).all()


def test_populations_that_missed_something_are_not_converged():
    run = populations(2)
    run.log_q = run.log_q + 0.3 * (BETA_K[:, None, None] > 3.0)  # Z by exp(-0.3)
    both = joined_density([run, ladder(2)])
    (reason,) = [r for r in both.verdict.reasons if "ln Z(" in r]
    assert "ln Z(6) - ln Z(0)" in reason or "ln Z(4) - ln Z(0)" in reason
    assert not both.verdict.converged


def test_rungs_that_reach_beyond_the_bins_are_not_compared():
    """Without the lowest level, 1 and 5 % of the inputs at beta = 4 and 6 lie below the bins."""
    bins = {"rounds": 16, "edges": LEVEL_EDGES[1:]}
    run, _ = annealed_run(3, spread_k=np.array([0.0, 0.02, 0.02, 0.02]), **bins)
    checks = agreement([run], [ladder(2, **bins)])
    assert len(checks) == 2 and all(check.passed for check in checks), checks


def test_ladders_that_only_the_populations_connect_are_joined_untested():
    others = []
    for seed, keep in ((1, slice(0, 4)), (2, slice(8, None))):
        run = independent_run(MODEL, BETA_K[1:], LEVEL_EDGES, rounds=32, walkers=64, seed=seed)
        run.config, counts = config_with(run={"seed": seed}), run.counts_rkgb
        run.counts_rkgb = np.zeros_like(counts)
        run.counts_rkgb[..., keep] = counts[..., keep]
        others.append(run)
    with pytest.raises(EstimateError):
        density_of_runs(others)
    (check,) = agreement([populations(1)], others)
    assert check.passed and np.isnan(check.value)


def test_runs_of_one_kind_are_not_compared(monkeypatch):
    asked = Check("agreement", sentence="asked")
    monkeypatch.setattr(joined, "agreement", lambda *_: [asked])
    assert joined_density([ladder(1), ladder(2)]).verdict.converged
    assert joined_density([populations(1)]).verdict.converged
    assert "asked" in joined_density([ladder(1), populations(1)]).verdict.reasons


@pytest.mark.parametrize("hottest", [0.0, 2.0])
def test_where_no_rung_saw_all_inputs_the_ends_are_not_compared(hottest):
    """Draws make a density absolute, but from m upwards its sum over bins is not Z(0)."""
    beta_k = np.array([hottest, 4.0, 6.0])
    run, _ = annealed_run(1, beta_k=np.array([4.0, 6.0]), spread_k=np.array([0.0, 0.3]), rounds=32)
    other = independent_run(MODEL, beta_k, LEVEL_EDGES, rounds=32, walkers=64, seed=2)
    other.config = config_with(model={"kind": "causal-lm"}, run={"seed": 2})
    other.model_beta = 4.0
    found = density_of_runs([other, run])
    assert found.absolute
    assert (found.ends is not None) == (hottest == 0.0)
    assert found.pinned == (hottest != 0.0), "the lattice is no language model: Z(0) contradicts it"


def test_a_run_of_draws_beside_a_ladder_does_not_end_the_ladder_s_checks(monkeypatch):
    """Its walkers were hardly renewed; all of its bins have too few arrivals, the draws' do not."""
    followed = arrivals.Followed(np.zeros(len(LEVEL_EDGES) - 1), np.full(len(BETA_K), 0.9))
    monkeypatch.setattr(arrivals, "follow", lambda *_: followed)
    for some in ([ladder(1), populations(2)], [populations(2), ladder(1)]):
        density = density_of_runs(some)
        checks = [c for c in density.verdict.checks if c.name.startswith(arrivals.RENEWED)]
        assert [c.passed for c in checks] == [run.ancestral for run in some]
        (draws,) = (
            p.effective_b for p, run in zip(density.parts, some, strict=True) if run.ancestral
        )
        few = draws < arrivals.MIN_ARRIVALS
        assert few.any() and (density.effective_b[few] <= draws[few]).all()
        assert (density.effective_b[~few] > draws[~few]).any()
