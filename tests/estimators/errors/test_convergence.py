"""The verdict, and halves of the lanes that have met or have not."""

import numpy as np
import pytest
from cold_runs import cold_run
from lattice import Lattice

from omniinput_hpc.estimators.density.density import density_of_run, log_total
from omniinput_hpc.estimators.density.observations import _coldest
from omniinput_hpc.estimators.errors.convergence import (
    MAX_DISTANCE,
    ColdRungs,
    Mixing,
    check_cold_rungs,
    check_convergence,
    number_of_blocks,
    part_distances,
)

EDGES = (np.arange(len(Lattice().z_l()) + 1) - 0.5) * Lattice().unit
Z_B = np.arange(20) * 0.5
BETA_K = np.array([0.0, 10.0, 24.0, 28.0, 32.0])


def test_blocks_are_ten_times_longer_than_the_longest_memory():
    assert number_of_blocks(100, np.array([0.1, 0.02])) == 16
    assert number_of_blocks(100, np.array([0.1, 1.2])) == 8
    assert number_of_blocks(100, np.array([3.0])) == 0
    assert number_of_blocks(10, np.array([np.nan])) == 10
    assert number_of_blocks(3, np.array([0.01])) == 0


def verdict(
    lane=1.0, block=1.0, n_blocks=16, rhat=(1.0, 1.01), bins=9, tau=0.5, drawn=False,
    drift=(0.0, 1.0), lanes=(4096, 4096),
):  # fmt: skip
    error_b = np.r_[np.ones(8), 100.0, np.inf]
    return check_convergence(
        lane * error_b[:bins],
        block * error_b[:bins],
        n_blocks,
        Mixing(np.array(rhat), np.array([0.3, tau]), np.array(drift), np.array(lanes), 16, drawn),
        ["beta = 0", "beta = 4"],
    )


def test_verdict():
    assert verdict().converged and verdict().ratio == 1.0 and verdict().n_bins == 9
    assert verdict(lane=1.49).converged and verdict(block=1.49).converged
    assert verdict(rhat=(1.0, 1.049)).converged and not verdict(rhat=(1.0, 1.055)).converged
    assert verdict(drift=(1.0, -3.5)).converged and not verdict(drift=(1.0, -4.5)).converged
    assert "z still falls" in verdict(drift=(1.0, -9.0)).reasons[0]
    for bad in (verdict(lane=1.6), verdict(block=1.6)):
        assert not bad.converged and "factor" in bad.reasons[0]
    assert verdict(lane=2.0, n_blocks=4).converged  # four blocks know their error to a factor
    assert not verdict(lane=3.0, n_blocks=4).converged
    bad = verdict(rhat=(1.0, 1.2))
    assert not bad.converged and "beta = 4 (1.20)" in bad.reasons[0]
    assert "beta = 0" not in bad.reasons[0]
    few = verdict(n_blocks=0).reasons[0]
    assert "too few rounds" in few and "about 20 rounds are needed" in few  # 4 blocks of 10 x 0.5
    assert number_of_blocks(20, np.array([0.3, 0.5])) and not number_of_blocks(19, np.array([0.5]))
    assert "no bin" in verdict(bins=0).reasons[0]
    assert "1 of 2 rungs" in verdict(rhat=(1.0, np.nan)).reasons[0]
    assert len(verdict(lane=3.0, rhat=(2.0, 2.0)).reasons) == 2


def test_a_joined_run_of_few_walkers_does_not_excuse_the_other():
    """Each rung is judged by the number of its own run's walkers."""
    for few in ((2, 64), (64, 2)):
        own = int(np.argmax(few))
        for what, bad in (("R-hat", {"rhat": (1.15, 1.15)}), ("falls", {"drift": (-10.0, -10.0)})):
            (reason,) = verdict(lanes=few, **bad).reasons
            assert what in reason and f"beta = {4 * own}" in reason
            assert f"beta = {4 - 4 * own} (" not in reason
            assert verdict(lanes=(2, 2), **bad).converged


def test_errors_that_are_rounding_agree():
    """Of a constant output: log g is known to 1e-14, by lanes and by blocks, or exactly."""
    for lane, block in ((3e-15, 1e-14), (1e-13, 2e-16), (0.0, 1e-14), (0.0, 0.0)):
        found = verdict(lane, block)
        assert found.converged and found.ratio == 1.0 and found.n_bins == 9, (lane, block)
    assert not verdict(1e-3, 1e-14).converged  # lanes differ, and blocks of rounds do not show it
    assert not verdict(2e-9, 1e-14).converged
    assert verdict(np.inf, 1e-14).n_bins == 0  # one lane: the error is not known, not zero


def test_independent_draws_do_not_stay_correlated():
    """Half a sample is what independent ones give: 0.17 rounds of three samples each."""
    for tau, drawn in ((0.17, False), (0.17, True), (1.2, True)):
        few = verdict(n_blocks=0, tau=tau, drawn=drawn).reasons[0]
        assert "correlated" not in few and "rounds are needed" in few
    chains = verdict(n_blocks=0, tau=1.2).reasons[0]
    assert "z stays correlated for 1.2 rounds: about 48 rounds are needed" in chains


def counts(means_kg, n=4000, seed=1):
    """Return counts of groups that sample normal outputs around their own means."""
    random = np.random.default_rng(seed)
    out = np.zeros((*means_kg.shape, len(Z_B)), dtype=np.int64)
    for k, g in np.ndindex(*means_kg.shape):
        draws = np.clip(np.rint((means_kg[k, g] + random.normal(size=n)) / 0.5), 0, 19)
        out[k, g] = np.bincount(draws.astype(int), minlength=20)
    return out


def means(gap_of_coldest=0.0, gap_of_next=0.0, lanes=slice(8, None)):
    m = np.repeat(np.array([8.0, 6.0, 5.0, 4.0, 3.0])[:, None], 16, axis=1)
    m[4, lanes] += gap_of_coldest
    m[3, lanes] += gap_of_next
    return m


@pytest.mark.parametrize("n_parts", [2, 3])
def test_parts_of_one_law_are_not_apart(n_parts):
    apart = [part_distances(counts(means(), seed=s), Z_B, n_parts) for s in range(20)]
    assert np.shape(apart) == (20, 5, 1 if n_parts == 2 else 3)
    assert np.percentile(apart, 99) < MAX_DISTANCE and 0.3 < np.median(apart) < 1.2


def floor(counts_kgb, model_beta=24.0, round_trips=10, n_parts=2):
    return check_cold_rungs(counts_kgb, Z_B, BETA_K, model_beta, round_trips, n_parts).floor


@pytest.mark.parametrize(("lanes", "words"), [
    (slice(0, 6), "the model's own text and from repetitions"),
    (slice(6, 11), "the model's own text and from repetitions"),
    (slice(11, 16), "the model's own text and from texts found by a search"),
])  # fmt: skip
def test_a_third_that_is_apart_is_named(lanes, words):
    apart = counts(means(1.5, lanes=lanes))
    assert floor(apart, n_parts=3) < 5 and floor(counts(means()), n_parts=3) == -np.inf
    assert words in check_cold_rungs(apart, Z_B, BETA_K, 24.0, 10, 3).reason


def test_two_halves_would_not_tell_thirds():
    """Why the file says how many parts there are."""
    apart = counts(means(0.45, lanes=slice(6, 11)))
    assert floor(apart, n_parts=3) < 5 and floor(apart, n_parts=2) == -np.inf


def test_a_cold_ladder_whose_halves_disagree_is_marked_from_there_on():
    both = counts(means(1.5, 1.0))
    assert floor(both) == pytest.approx(4.5, abs=0.1)
    assert floor(counts(means(1.5))) == pytest.approx(3.75, abs=0.1)
    assert floor(counts(means())) == -np.inf
    assert "repetitions" in check_cold_rungs(both, Z_B, BETA_K, 24.0, 10, 2).reason


def test_without_a_round_trip_no_cold_rung_is_believed():
    assert floor(counts(means()), round_trips=0) == pytest.approx(4, abs=0.1)
    assert "round trip" in check_cold_rungs(counts(means()), Z_B, BETA_K, 24.0, 0, 2).reason


@pytest.mark.parametrize(
    ("n_groups", "n_parts", "few"), [(4, 3, True), (6, 3, False), (3, 2, True)]
)
def test_too_few_walkers_to_compare_starts_are_no_agreement(n_groups, n_parts, few):
    found = check_cold_rungs(counts(means())[:, :n_groups], Z_B, BETA_K, 24.0, 10, n_parts)
    assert found.floor == -np.inf and bool(found.reason) == few
    if few:
        assert f"sampler.walkers to {2 * n_parts} or more" in found.reason
    stuck = check_cold_rungs(counts(means())[:, :n_groups], Z_B, BETA_K, 24.0, 0, n_parts)
    assert stuck.floor > -np.inf and "round trip" in stuck.reason


def test_a_group_outside_the_bins_does_not_hide_that_others_differ():
    apart = counts(means(1.5, 1.0))
    apart[3, 0] = 0
    found = check_cold_rungs(apart, Z_B, BETA_K, 24.0, 10, 2)
    assert found.floor > -np.inf and "still differ" in found.reason


def test_no_joined_run_hides_the_reasons_of_another():
    few, stuck = ColdRungs(reason="too few"), ColdRungs(3.0, "not equilibrated", 2)
    for found in ([ColdRungs(n_apart=0), few], [few, ColdRungs(n_apart=0)]):
        assert _coldest(found).reason == "too few"
    both = _coldest([stuck, few])
    assert (both.floor, both.reason) == (3.0, "not equilibrated; too few")


def test_warm_ladders_are_left_alone():
    disagreeing = counts(means(1.5, 1.0))
    assert floor(disagreeing, model_beta=40.0, round_trips=0) == -np.inf
    assert floor(disagreeing, model_beta=np.nan, round_trips=0) == -np.inf


def test_no_errors_are_given_where_a_run_has_not_equilibrated():
    good, stuck = (density_of_run(cold_run(stuck)) for stuck in (False, True))
    assert good.floor == -np.inf and np.isfinite(good.log_g_error_b[good.effective_b > 50]).all()
    below = (stuck.count_b > 0) & (stuck.edges[:-1] < stuck.floor)
    above = (stuck.effective_b > 50) & ~below
    assert below.any() and np.isinf(stuck.log_g_error_b[below]).all()
    assert above.any() and np.isfinite(stuck.log_g_error_b[above]).all()
    assert not stuck.verdict.converged
    assert any("not equilibrated below" in reason for reason in stuck.verdict.reasons)
    assert not stuck.believed_b[below].any()
    for density, known in ((good, True), (stuck, False)):
        unknown = float(density.edges[0]), float(stuck.edges[:-1][above][0])
        assert np.isfinite(log_total(density, *unknown)[0].error) == known
        believed = log_total(density, stuck.floor, density.edges[-1])[0]
        assert np.isfinite(believed.error)
    trusted = log_total(stuck.trusting(), *unknown)[0]
    assert np.isfinite(trusted.error)


def test_a_density_that_trusts_them_believes_all_bins_and_says_so():
    good, stuck = (density_of_run(cold_run(stuck)) for stuck in (False, True))
    assert good.trusting() is good
    trusting = stuck.trusting()
    np.testing.assert_array_equal(trusting.believed_b, stuck.count_b > 0)
    assert (trusting.floor, trusting.trusted_below) == (-np.inf, stuck.floor)
    above = stuck.edges[:-1] >= stuck.floor
    np.testing.assert_array_equal(trusting.log_g_error_b[above], stuck.log_g_error_b[above])
    assert np.isfinite(trusting.log_g_error_b[~above & (stuck.effective_b > 50)]).all()
    assert not trusting.verdict.converged
    assert trusting.verdict.reasons[: len(stuck.verdict.reasons)] == stuck.verdict.reasons
    assert "counted as requested" in trusting.verdict.reasons[-1]
