"""Facts that no density breaks: right runs keep them, wrong ones are named, gaps are seen."""

from dataclasses import replace

import numpy as np
import pytest
from configs import config_with
from lattice import ArrayRun, Lattice, canonical, independent_run

from omniinput_hpc.estimators.density.density import density_of_run
from omniinput_hpc.estimators.density.facts import (
    MIN_ATTEMPTS,
    bins_to_search,
    broken_facts,
    gaps,
    length_in_trips,
    swaps_that_never_happened,
)
from omniinput_hpc.estimators.samples import inputs_of_bins

MODEL = Lattice()
BETA_K = np.array([-3.0, -1.5, 0.0, 1.5, 3.0])
EDGES = (np.arange(len(MODEL.z_l()) + 1) - 0.5) * MODEL.unit  # one level a bin


def broken(density, run):
    """Return the checks of a density of a run."""
    return broken_facts(density, [inputs_of_bins(run, density.edges, bins_to_search(density))])


@pytest.fixture(scope="module")
def run():
    return independent_run(MODEL, BETA_K, EDGES, walkers=16, seed=1)


@pytest.fixture(scope="module")
def right(run):
    return density_of_run(run)


def moved(density, bins, nats):
    log_g_b, log_g_jb = density.log_g_b.copy(), density.log_g_jb.copy()
    log_g_b[bins] += nats
    log_g_jb[:, bins] += nats
    upper_b = density.log_g_upper_b + log_g_b - density.log_g_b
    return replace(density, log_g_b=log_g_b, log_g_jb=log_g_jb, log_g_upper_b=upper_b)


def reasons(checks):
    """Return why checks failed."""
    return [check.reason for check in checks if not check.passed]


def test_right_runs_break_none():
    """The lowest levels hold 1, 9 and 45 inputs, all of which are recorded."""
    for seed in range(12):
        one = independent_run(MODEL, BETA_K, EDGES, walkers=16, seed=seed)
        density = density_of_run(one)
        assert not [r for r in density.verdict.reasons if "impossible" in r]
        assert all(check.passed for check in broken(density, one))


@pytest.mark.parametrize("level", [0, 5])
def test_an_inhabited_bin_holds_what_was_recorded_in_it(run, right, level):
    (reason,) = reasons(broken(moved(right, slice(level, level + 1), -60.0), run))
    assert "fewer inputs than were recorded in 1 bin(s)" in reason
    assert f"z = {EDGES[level]:g}" in reason and "different inputs were seen" in reason
    assert "where at least " in reason  # more than a bin of that size are not counted


def test_a_few_nats_too_low_are_seen_by_different_inputs(run, right):
    """Of level 2's inputs nearly all are seen: 3 nats less are too few for them."""
    (reason,) = reasons(broken(moved(right, slice(2, 3), -3.0), run))
    assert "fewer inputs than were recorded" in reason
    assert not reasons(broken(moved(right, slice(10, 11), -1.0), run))  # not to be known


def test_no_bin_and_no_density_holds_more_than_the_space(run, right):
    said = reasons(broken(moved(right, slice(8, 9), 20.0), run))
    assert any("more inputs than the whole space has in 1 bin(s)" in reason for reason in said)
    (reason,) = reasons(broken(moved(right, slice(None), 0.5), run))
    assert "the bins hold " in reason and "the whole space has" in reason


def test_bins_without_errors_break_nothing(run, right):
    unknown = replace(right, log_g_error_b=np.full(len(right.log_g_b), np.inf))
    assert not reasons(broken(moved(unknown, slice(0, 1), -60.0), run))


def test_a_wrong_run_is_not_converged_and_has_no_upper_bounds():
    """Walkers that stay where they are: a bin of 66,000 inputs gets the weight of its few."""
    z = np.zeros((8, 2, 16), np.float32)
    z[:, 0], z[:, 1] = 0.5, 1.5
    z[:, :, :2] = 1.5
    z[:, :, 2:4] = 0.5
    x = np.random.default_rng(1).integers(0, 4, size=(8, 2, 16, 6)).astype(np.uint8)
    density = density_of_run(ArrayRun(x, z, 16, [0.0, 200.0], [0.0, 1.0, 2.0], 4))
    assert not density.verdict.converged
    assert np.isnan(density.log_g_upper_b).all()


def test_gaps_that_no_rung_bridges():
    counts_kb = np.array([[3, 1, 0, 0, 0, 0], [0, 0, 0, 0, 2, 9], [0, 4, 0, 0, 0, 0]])
    (reason,) = reasons(gaps(counts_kb, np.arange(7.0)))
    assert "visited both sides of z = 2 to 4" in reason
    joined_kb = counts_kb + np.array([[1, 0, 0, 0, 0, 1], [0] * 6, [0] * 6])
    assert not reasons(gaps(joined_kb, np.arange(7.0)))
    assert not reasons(gaps(np.array([[5, 2, 0], [0, 0, 4]]), np.arange(4.0)))  # neighbours


def test_swaps_that_never_happened():
    swaps_k2 = np.array([[MIN_ATTEMPTS, 0], [MIN_ATTEMPTS, 1], [MIN_ATTEMPTS - 1, 0], [0, 0]])
    reason = swaps_that_never_happened(Ladder(0, swaps_k2)).reason
    assert "between beta = 0 and beta = 1, in 100 attempts" in reason and "beta = 2" not in reason
    assert swaps_that_never_happened(Ladder(0, swaps_k2[1:])).passed


class Ladder:
    """What the checks of swaps and trips ask of a run."""

    def __init__(self, rounds, swaps_k2=(100, 40), trips=0):
        self.rounds, self.walkers = rounds, 8
        self.config = config_with(sampler={"exchanges": 10})
        self.swaps_k2 = np.array(swaps_k2 if np.ndim(swaps_k2) == 2 else [swaps_k2] * 3)
        self.round_trips_v, self.is_part = np.array([0, trips]), False
        self.weights = canonical(np.arange(len(self.swaps_k2) + 1.0), np.arange(3.0))


def test_ends_of_a_ladder_that_never_met():
    """Four rungs that reject 60 %: an ideal lane makes a round trip in 11 exchanges."""
    reason = length_in_trips(Ladder(rounds=14), ends_renew=False).reason
    assert "from beta = 0 to beta = 3 and back in 140 exchanges" in reason
    assert "102 round trips were possible" in reason
    assert length_in_trips(Ladder(rounds=14, trips=1), ends_renew=False).passed
    assert length_in_trips(Ladder(rounds=13), ends_renew=False).passed  # 130 of 132 exchanges
    foreign = Ladder(rounds=14)
    foreign.config = config_with(sampler={"exchanges": "many"})
    assert length_in_trips(foreign, ends_renew=False).passed
    untried = Ladder(rounds=700)
    untried.swaps_k2[1] = 0
    assert length_in_trips(untried, ends_renew=False).passed


def test_a_run_is_longer_than_one_ideal_round_trip():
    """A walker of four rungs that reject 60 % needs 44 exchanges, of ones that reject 95 % 464."""
    assert length_in_trips(Ladder(rounds=5, trips=1), ends_renew=False).passed
    short = length_in_trips(Ladder(rounds=4, trips=1), ends_renew=False)
    assert short.value == pytest.approx(40 / 44) and "shorter than one round trip" in short.sentence
    assert short.remedy == "raise run.rounds to 5 or more"
    assert not length_in_trips(Ladder(40, (100, 5), trips=1), ends_renew=False).passed
    assert length_in_trips(Ladder(47, (100, 5), trips=1), ends_renew=False).passed


def test_half_a_trip_is_enough_between_ends_that_are_drawn():
    """Walkers forget their past at either end: here after 22 exchanges."""
    assert length_in_trips(Ladder(rounds=3, trips=1), ends_renew=True).passed
    short = length_in_trips(Ladder(rounds=2), ends_renew=True)
    assert "shorter than one passage" in short.sentence and "about 22 at best" in short.sentence
    assert short.remedy == "raise run.rounds to 3 or more"
