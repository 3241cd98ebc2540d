"""Precision and recall at chosen thresholds, and test data out of reach, against exact values."""

import numpy as np
import pytest
from lattice import BETA_K, LEVEL_EDGES, MODEL, Lattice, first_is_zero, independent_run

from omniinput_hpc.estimators import EstimateError
from omniinput_hpc.estimators.density.density import density_of_run
from omniinput_hpc.estimators.density.wide_bins import in_bins
from omniinput_hpc.estimators.precision_recall.from_rule import rule_curve, sum_scores
from omniinput_hpc.estimators.precision_recall.thresholds import (
    at_thresholds,
    ends_of,
    left_out,
    none_right,
    unreached,
)
from omniinput_hpc.models.table import ConfidentSide
from omniinput_hpc.results.aupr import scale_lines
from omniinput_hpc.results.curve import CurveResult, none_right_lines

ASKED = (1.0, 2.0, 3.5)


def curve_of(seed, side="low", edges=LEVEL_EDGES):
    run = independent_run(MODEL, BETA_K, edges, walkers=16, seed=seed)
    density = density_of_run(run)
    return rule_curve(density, sum_scores(run, density, first_is_zero), side, whole=True)


def exact_at(z, side, z_shift=0.0):
    """Return precision and log recall of all inputs of the lattice accepted at a threshold."""
    z_l = MODEL.z_l() + z_shift
    accepted = z_l <= z if side == "low" else z_l >= z
    right, count = MODEL.right_l()[accepted].sum(), MODEL.count_l()[accepted].sum()
    return right / count, np.log(right)


@pytest.fixture(scope="module", params=["low", "high"])
def curve(request):
    return curve_of(3, request.param)


def sigmas(found, z, side, z_shift=0.0):
    """Return how many standard errors (a quarter of the band) values are from the exact ones."""
    pairs = zip((found.precision, found.log_recall), exact_at(z, side, z_shift), strict=True)
    half = [(float(one.value), float(one.high - one.low) / 4.2, exact) for one, exact in pairs]
    return [(value - exact) / error for value, error, exact in half]


def test_values_at_a_threshold_are_the_exact_ones_within_sigmas(curve):
    for one, z in zip(at_thresholds(curve, LEVEL_EDGES, ASKED), ASKED, strict=True):
        assert one.asked == z and abs(one.threshold - z) <= 0.5 * MODEL.unit + 1e-12
        assert np.abs(sigmas(one, one.threshold, curve.side)).max() < 4.0
        # three bins further on is another threshold: it would be seen
        other = sigmas(one, one.threshold, curve.side, 3.01 * MODEL.unit)
        assert np.abs(other).max() > 4.0


@pytest.mark.slow
def test_bands_at_a_threshold_hold_the_truth():
    """12 runs of two thresholds: 95% bands of precision and recall, within 4 sigmas of 95%."""
    held = []
    for seed in range(12):
        curve = curve_of(100 + seed)
        for one in at_thresholds(curve, LEVEL_EDGES, ASKED[:2]):
            exact = exact_at(one.threshold, "low")
            pairs = zip((one.precision, one.log_recall), exact, strict=True)
            held += [bool(band.low <= truth <= band.high) for band, truth in pairs]
    sigma = np.sqrt(0.95 * 0.05 / 12)  # values of one run are correlated
    assert abs(np.mean(held) - 0.95) < 4 * sigma


def test_an_edge_of_a_bin_is_taken_as_it_is(curve):
    (one,) = at_thresholds(curve, LEVEL_EDGES, [float(LEVEL_EDGES[7])])
    assert one.threshold == one.asked


def test_an_edge_between_empty_bins_is_answered_for_what_lies_before_it():
    """Outputs are 0.25 apart here, and bins 0.0625 wide; at the next counted edge more is in."""
    for side in ("low", "high"):
        edges = np.linspace(LEVEL_EDGES[0], LEVEL_EDGES[-1], 4 * (len(LEVEL_EDGES) - 1) + 1)
        curve = curve_of(3, side, edges)
        between = np.abs(np.mod(edges, MODEL.unit)) > 0.01  # whose bins have no outputs
        for z in edges[between & (np.abs(edges - 2.0) < 0.2)]:
            (one,) = at_thresholds(curve, edges, [float(z)])
            assert one.threshold == z and np.abs(sigmas(one, z, side)).max() < 4.0
        (one,) = at_thresholds(curve, edges, [ends_of(curve, edges)[0]])
        assert one.threshold == curve.threshold_t[0]


def test_a_threshold_beyond_the_ends_is_refused(curve):
    for z in (-3.0, 40.0):
        with pytest.raises(EstimateError, match=f"threshold {z:g}: the curve covers only"):
            at_thresholds(curve, LEVEL_EDGES, [z])
    assert at_thresholds(curve, LEVEL_EDGES, []) == []


def test_shares_of_test_data_beyond_the_ends():
    """The trap of the test set that was not reached: outputs beyond the bins on both sides."""
    edges = LEVEL_EDGES[4:20]
    z_n = np.array([-1.0, 0.0, 0.5, 1.0, 2.0, 3.0, 4.0, 4.5, 5.5, 6.0])
    for side, first, last in (("low", edges[0], edges[-1]), ("high", edges[-1], edges[0])):
        curve = curve_of(5, side, edges)
        assert ends_of(curve, edges) == (first, last)
        found = unreached(curve, edges, z_n)
        shares = {"low": (0.3, 0.2, -1.0), "high": (0.2, 0.3, 6.0)}[side]
        assert (found.before, found.after, found.extreme) == pytest.approx(shares)
        inside = unreached(curve, edges, np.array([edges[0], 2.0, edges[-1]]))
        assert (inside.before, inside.after, inside.n) == (0.0, 0.0, 3)


N_ZERO = 4


def first_are_zero(x):
    """Score by the first sites: right inputs thin out towards high outputs."""
    return (x[:, :N_ZERO] == 0).all(axis=1).astype(float)


def right_beyond(z):
    """Return how many inputs of z or more are right by `first_are_zero`."""
    rest = Lattice(MODEL.n_sites - N_ZERO).count_l()
    return rest[np.arange(len(rest)) * MODEL.unit >= z].sum()


def far_ends(rule, seeds, side="low"):
    for seed in seeds:
        run = independent_run(MODEL, BETA_K, LEVEL_EDGES, walkers=16, moves=4, rounds=4, seed=seed)
        density = density_of_run(run)
        found = rule_curve(density, sum_scores(run, density, rule), side, whole=True)
        yield found, none_right(found, density), density


@pytest.mark.slow
def test_where_none_was_right_the_bound_holds():
    """In 95% of runs; the number that the curve counts there, none, is wrong in most."""
    bounds = [(e, c) for c, e, _ in far_ends(first_are_zero, range(40)) if e is not None]
    truth = np.array([right_beyond(end.first) for end, _ in bounds])
    held = truth <= np.exp([end.log_most for end, _ in bounds])
    assert len(bounds) > 20 and held.mean() > 0.95 and (truth > 0).mean() > 0.5
    # a hundredth of it would not hold: it is no bound of anything
    low = truth <= 0.01 * np.exp([end.log_most for end, _ in bounds])
    assert low.mean() < 0.9


def test_the_line_says_where_none_was_right():
    curve, found, density = next(iter(far_ends(first_are_zero, [1])))
    (line,) = none_right_lines(density, curve)
    assert f"no right input was seen above z = {found.first:.6g}" in line
    for side in ("low", "high"):  # half of all inputs are right everywhere
        curve, _, density = next(iter(far_ends(lambda x: x[:, 0] % 2, [1], side)))
        assert none_right_lines(density, curve) == []  # but in the lowest bin, of one input
    nothing = next(iter(far_ends(lambda x: np.zeros(len(x)), [1])))
    assert nothing[1] is None  # said by the AUPR's own line


def test_what_is_left_out_at_the_confident_end_is_said_with_its_share():
    """Against the exact numbers of inputs; a curve that leaves nothing out says nothing."""
    for side in ("low", "high"):
        run = independent_run(MODEL, BETA_K, LEVEL_EDGES, walkers=16, moves=4, rounds=4, seed=1)
        density = density_of_run(run)
        curve = rule_curve(density, sum_scores(run, density, lambda x: x[:, 0] % 2), side)
        found = left_out(curve, density.edges, density)
        bins = np.arange(len(density.log_g_b))
        before = bins < curve.bin_t[0] if side == "low" else bins > curve.bin_t[0]
        exact_b = MODEL.bin_sums(density.edges, MODEL.count_l())
        seen = before & (density.count_b > 0)
        truth = exact_b[seen].sum()
        assert seen.any()
        assert abs(found.log_inputs - np.log(truth)) < 0.7
        share = truth / (truth + exact_b[curve.bin_t[0]])
        assert found.share == pytest.approx(share, abs=0.15)
        way = "below" if side == "low" else "above"
        (line,) = said(density, curve)
        assert line.startswith(
            f"left out at the confident end: z {way} {found.first:.6g}, with about "
        )
        whole = rule_curve(
            density, sum_scores(run, density, lambda x: x[:, 0] % 2), side, whole=True
        )
        assert left_out(whole, density.edges, density) is None and said(density, whole) == []


def said(density, curve, fine=None):
    side = ConfidentSide(curve.side, "")
    return CurveResult([], [density], curve, "r", side, fine=fine).left_out_lines()


def test_what_was_never_scored_is_left_out_too():
    """Tasks of a range: the bins of the scores, and so of the curve, begin with the range."""
    run = independent_run(MODEL, BETA_K, LEVEL_EDGES, walkers=16, seed=1)
    fine = density_of_run(run)
    coarse = in_bins(fine, fine.edges[6:23:2])
    curve = rule_curve(coarse, sum_scores(run, coarse, first_is_zero), "low", whole=True)
    found, n = left_out(curve, coarse.edges, fine), MODEL.count_l()[:6].sum()
    assert found.first == fine.edges[6] and abs(found.log_inputs - np.log(n)) < 0.3
    (line,) = said(coarse, curve, fine)
    share = n / (n + MODEL.count_l()[6:8].sum())
    assert f"; these are {found.share:.0%} of" in line and found.share == pytest.approx(
        share, abs=0.1
    )
    (whole,) = [one for one in scale_lines(coarse, curve) if "are accepted" in one]
    assert whole.startswith(f"If all inputs from z = {fine.edges[6]:g} to {fine.edges[22]:g} are")
