"""Bins, ladders and lengths chosen by arithmetic, judged by densities that are known exactly."""

import numpy as np
import pytest
from exact_moments import levels_of, moments

from omniinput_hpc.pilot import commented, proposal, settings
from omniinput_hpc.pilot.proposal import Aim, Proposal
from omniinput_hpc.pilot.question import Reach
from omniinput_hpc.pilot.rehearse import Seen
from omniinput_hpc.pilot.settings import Rehearsal, Spread
from omniinput_hpc.sampling import restart
from omniinput_hpc.tempering import ladder
from omniinput_zoo.exact import Lattice, Occupation


def exact_rejections(model, beta_k):
    """Return the share of swaps that neighbours reject in equilibrium, by summing over all z."""
    z_l, _ = levels_of(model)
    _, p_kl = moments(model, beta_k)
    rejections = []
    for k in range(len(beta_k) - 1):
        gap = beta_k[k + 1] - beta_k[k]
        # x at the lower beta, y at the upper: a = exp((beta_k+1 - beta_k) (y - x))
        accept_ll = np.exp(np.minimum(0.0, gap * (z_l[None, :] - z_l[:, None])))  # [x, y]
        rejections.append(1.0 - p_kl[k] @ accept_ll @ p_kl[k + 1])
    return np.array(rejections)


MODELS = {
    "16 sites": (Lattice(16, 4, 0.5), np.linspace(-3.0, 4.0, 15)),
    "200 sites": (Lattice(200, 5, 1.0), np.linspace(-2.0, 8.0, 61)),
}


@pytest.mark.parametrize("name", MODELS)
def test_neighbours_of_a_chosen_ladder_reject_a_half(name):
    model, beta_i = MODELS[name]
    spread, _ = moments(model, beta_i)
    beta_k = settings.ladder(spread.beta_i, settings.barrier(spread), (0.0,))
    assert 0.0 in beta_k and len(beta_k) % 4 == 0
    assert beta_k[0] == beta_i[0] and beta_k[-1] == beta_i[-1]
    rejection_k = exact_rejections(model, beta_k)
    assert rejection_k.max() < 0.62 and np.median(rejection_k) > 0.2


def test_equal_steps_of_beta_would_not_do():
    """The same number of rungs, spaced without the spread: some neighbours hardly swap."""
    model, beta_i = MODELS["200 sites"]
    spread, _ = moments(model, beta_i)
    n = len(settings.ladder(spread.beta_i, settings.barrier(spread), (0.0,)))
    assert exact_rejections(model, np.linspace(beta_i[0], beta_i[-1], n)).max() > 0.75


def test_the_barrier_is_the_integral_of_the_spread():
    spread = Spread(np.linspace(0, 3, 7), -4.0 * np.linspace(0, 3, 7), np.full(7, 2.0), -20.0, 5.0)
    assert settings.barrier(spread)[-1] == pytest.approx(3 * 2 / np.sqrt(np.pi))


def test_a_phase_that_ends_between_two_betas_is_seen_in_the_means():
    beta_i, mean_i = np.array([0.0, 1.0, 2.0]), np.array([100.0, 99.0, 0.0])
    spread = Spread(beta_i, mean_i, np.ones(3), 0.0, 101.0)
    assert np.diff(settings.barrier(spread))[1] == pytest.approx(np.sqrt(99 / np.pi))


def test_a_pair_that_never_swapped_counts_by_its_spread():
    spread = Spread(np.array([0.0, 1.0, 5.0]), np.array([9.0, 5.0, -20.0]), np.full(3, 2.0), 0, 1)
    lambda_k = settings.measured_barrier(spread, np.array([np.nan, 1.0]))
    assert lambda_k[1] == pytest.approx(2 / np.sqrt(np.pi))
    assert lambda_k[2] - lambda_k[1] > 4.0


def test_0_and_m_are_rungs_and_betas_ascend():
    beta_i = np.linspace(-3.0, 24.0, 9)
    lambda_i = np.concatenate([[0.0], np.cumsum([0.0, 0, 0, 5, 0, 0, 0, 1])])
    beta_k = settings.ladder(beta_i, lambda_i, (0.0, 24.0, 30.0))
    assert {-3.0, 0.0, 24.0} <= set(beta_k) and (np.diff(beta_k) > 0).all()
    assert len(settings.ladder(beta_i, 1e3 * lambda_i, (0.0,))) == settings.MAX_RUNGS
    assert len(settings.ladder(beta_i, 0 * lambda_i, (0.0,))) == settings.LEAST_RUNGS


@pytest.mark.parametrize(("value", "below"), [(0.0104, 0.01), (0.25 / 99, 0.0025), (7.0, 5.0),
                                              (1.0, 1.0), (0.99, 0.5), (24.0, 20.0)])  # fmt: skip
def test_a_nice_number(value, below):
    assert settings.nice_below(value) == below


@pytest.mark.parametrize("scale", [1e-3, 1.0, 47.3, 1e4])
@pytest.mark.parametrize("bounds", [(-np.inf, np.inf), (0.0, np.inf), (-np.inf, 0.0)])
def test_bins_hold_what_was_seen_with_room_and_are_fine_enough(scale, bounds):
    from omniinput_hpc.config import Bins

    sign = -1.0 if bounds[1] == 0 else 1.0
    low, high = sorted((sign * 0.3 * scale, sign * 16.6 * scale))
    spread = Spread(np.array([-1.0, 24.0]) / scale, np.zeros(2), np.full(2, 0.9 * scale), low, high)
    found = settings.bins(spread, 24.0 / scale, *bounds)
    assert found.lower <= low and found.upper >= high
    assert found.lower >= bounds[0] and found.upper <= bounds[1]
    assert found.upper - found.lower < 2.5 * (high - low)
    if not np.isfinite(bounds[1]):
        assert found.upper - high > 1.8 * 0.9 * scale  # room
    assert 24.0 / scale * found.width <= 0.25 and found.n_bins >= settings.LEAST_BINS
    edges = Bins(lower=found.lower, upper=found.upper, width=found.width).edges  # a whole number
    assert len(edges) == found.n_bins + 1


def test_the_typical_error_is_of_the_bins_that_hold_the_counts():
    error_b = np.array([np.inf, 9.0, 0.1, 0.3, 0.2, 9.0, np.inf])
    count_b = np.array([0, 2, 500, 500, 500, 2, 0])
    assert settings.typical_error(error_b, count_b) == pytest.approx(0.2)
    assert settings.typical_error(error_b, 0 * count_b) == np.inf


def test_a_length_follows_the_square_of_the_error():
    seen = Rehearsal(error=0.4, moves=1000, tau=5.0, seconds=0.01)
    one = settings.length_for_errors(0.1, seen, steps=5)
    assert one.rounds * one.exchanges * one.steps == pytest.approx(16_000, rel=0.03)
    half = settings.length_for_errors(0.05, seen, steps=5)
    assert half.rounds * half.exchanges == pytest.approx(4 * one.rounds * one.exchanges, rel=0.03)
    assert one.burn_in * 4 == one.rounds


def test_a_length_holds_60_correlation_times_and_no_long_round():
    slow = Rehearsal(error=0.1, moves=1000, tau=500.0, seconds=0.01)
    length = settings.length_for_errors(0.1, slow, steps=5)
    assert length.rounds * length.exchanges * length.steps >= 60_000  # too slow to be seen whole
    longer = Rehearsal(error=0.1, moves=10**6, tau=500.0, seconds=0.01)
    assert longer.least_moves(steps=5) == pytest.approx(30_000, rel=0.01)
    long = Rehearsal(error=10.0, moves=1000, tau=5.0, seconds=0.5)
    length = settings.length_for_errors(0.1, long, steps=5)
    assert length.exchanges * length.steps * 0.5 <= settings.LONGEST_ROUND
    assert length.rounds * length.exchanges * length.steps >= 1e7
    unknown = Rehearsal(error=np.inf, moves=1000, tau=np.nan, seconds=0.5)
    assert settings.length_for_errors(0.1, unknown, steps=5).moves >= 4000


def test_a_length_for_hours_takes_them():
    seen = Rehearsal(error=0.4, moves=1000, tau=5.0, seconds=0.02)
    length = settings.length_for_time(7200.0, seen, steps=5)
    assert length.moves * seen.seconds == pytest.approx(7200.0, rel=0.05)
    short = settings.length_for_time(60.0, seen, steps=5)
    assert short.moves * seen.seconds == pytest.approx(60.0, rel=0.05)
    assert settings.length_for_time(1e-3, seen, steps=5).rounds == settings.FEWEST_ROUNDS
    assert settings.length_for_errors(1e-9, seen, steps=5).rounds == settings.MAX_ROUNDS


def test_a_chosen_burn_in_is_long_enough_to_tune_the_betas():
    slow = Rehearsal(error=0.4, moves=1000, tau=5.0, seconds=84.0)
    length = settings.length_for_time(7200.0, slow, steps=5)
    assert length.exchanges == 1 and length.rounds < 24
    assert length.burn_in == restart.least_burn_in(1)


def test_hours_that_are_too_few_to_check_errors_by_name_those_that_do():
    seen = Rehearsal(error=0.4, moves=1000, tau=900.0, seconds=0.02)
    short = settings.length_for_time(600.0, seen, steps=5)
    hours = settings.hours_to_judge(short, seen)
    # 60 autocorrelation times, longer than the rehearsal shows them; a quarter more for burn-in
    assert hours == pytest.approx(60 * 900 * (1 + 2 * 0.9) * 1.25 * 0.02 / 3600)
    assert hours > 600 / 3600
    enough = settings.length_for_time(3600 * hours * 1.05, seen, steps=5)
    assert settings.hours_to_judge(enough, seen) is None
    unknown = Rehearsal(error=np.inf, moves=1000, tau=np.nan, seconds=0.02)
    assert settings.hours_to_judge(short, unknown) is None
    assert settings.hours_to_judge(settings.length_for_errors(10.0, seen, 5), seen) is None


def test_a_first_order_transition_gets_its_rungs_where_the_means_jump():
    model = Occupation()
    spread, _ = moments(model, np.linspace(0.0, 1.0, 101))
    beta_k = settings.ladder(spread.beta_i, settings.barrier(spread), (0.0,))
    between = int(np.argmin(np.diff(beta_k)))
    assert beta_k[between] - 0.02 < 0.339 < beta_k[between + 1] + 0.02


def test_bins_are_no_finer_than_float32_and_not_without_number():
    far = Spread(np.array([0.0, 1.0]), np.array([1e6, 1e6]), np.array([0.5, 0.5]), 1e6 - 2, 1e6 + 2)
    assert settings.bins(far, 1.0).width >= np.spacing(np.float32(1e6))
    rare = Spread(np.array([0.0, 1e6]), np.array([0.0, 5.0]), np.array([1e-6, 1.0]), 0.0, 10.0)
    found = settings.bins(rare, 1e6)
    assert (found.upper - found.lower) / found.width <= 2 * settings.MOST_BINS


@pytest.mark.parametrize(("m", "fine"), [(149, True), (255, True), (1023, False)])
def test_bins_of_long_texts_are_fine_or_the_input_file_says_that_they_are_not(m, fine):
    spread = Spread(np.array([0.0, m]), np.array([11.0, 3.0]), np.full(2, 0.3), 1.0, 18.5)
    found = settings.bins(spread, m, floor=0.0)
    assert found.width * m <= (0.25 if fine else 0.52)
    tree = {
        "run": {"seed": 1}, "model": {"kind": "causal-lm"}, "ladder": {"betas": [0.0, m]},
        "sampler": {"method": "parallel-tempering", "walkers": 16}, "samples": {"every": 5},
        "bins": {"lower": found.lower, "upper": found.upper, "width": found.width},
    }  # fmt: skip
    seen = Seen(Rehearsal(0.1, 1000, 5.0, 0.01), spread, np.array([0.5]))
    length, notes = settings.Length(64, 16, 2, 5), proposal._width_notes(tree)
    proposed = Proposal(tree, length, (11.0, 0.3), spread, m, {}, Reach(), seen, None, notes)
    text = commented.text(proposed, "a.h5", Aim(), [])
    assert bool(notes) != fine and ("weights vary inside a bin" in " ".join(text.split())) != fine
    assert f"width = {m * found.width:.2g}, {'at most' if fine else 'above'} 0.25" in text


def test_a_run_lasts_three_round_trips_of_a_walker():
    """Three rungs that reject half: a lane makes one in 6 exchanges, each of its walkers in 18."""
    trip = ladder.trip_time(np.array([0.5, 0.5]))
    assert trip == pytest.approx(18.0)
    assert np.isnan(ladder.trip_time(np.array([0.5, 1.0])))
    assert np.isnan(ladder.trip_time(np.zeros(0)))
    seen = settings.Rehearsal(0.01, 100, 0.1, 1e-6, 1000.0)
    length = settings.length_for_errors(0.1, seen, 10)
    assert 3000 <= length.rounds * length.exchanges < 3200
    short = settings.length_for_time(1e-3, seen, 10)
    assert short.steps == settings.FEWEST_STEPS  # fewer moves between exchanges
    needed = 3000 * short.steps * 1e-6 * 1.25 / 3600
    assert settings.hours_to_judge(short, seen) == pytest.approx(needed, rel=0.1)
    some = settings.length_for_time(3000 * 7 * 1e-6 * 1.25, seen, 10)
    assert some.steps == pytest.approx(7, abs=1)
    assert some.rounds * some.exchanges >= 2900
    assert settings.length_for_time(1.0, seen, 10).steps == 10
    assert settings.hours_to_judge(length, seen) is None


def test_a_ladder_promises_its_round_trip():
    """Rungs whose neighbours reject a half by the spread of z."""
    beta_i = np.linspace(0.0, 4.0, 9)
    spread = settings.Spread(beta_i, -beta_i, np.ones(9), -5.0, 1.0)
    beta_k = np.array([0.0, 1.0, 2.0, 3.0, 4.0])
    rejected = np.full(4, 1.0 / np.sqrt(np.pi))
    assert settings.expected_trip(spread, beta_k) == pytest.approx(ladder.trip_time(rejected))
    far = settings.expected_trip(spread, np.array([0.0, 4.0]))
    assert far == pytest.approx(ladder.trip_time(np.array([settings.MOST_REJECTED])))
