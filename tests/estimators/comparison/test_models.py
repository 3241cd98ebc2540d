"""Two models' curves: the exact AUPR difference lies in its interval; verdicts; wrong variants."""

from dataclasses import replace

import model_pair
import numpy as np
import pytest
from lattice import ArrayRun
from pair_runs import ABSOLUTE, EDGES, draw
from scipy.stats import binom

from omniinput_hpc.estimators import EstimateError
from omniinput_hpc.estimators.comparison.models import compare_models
from omniinput_hpc.estimators.density.density import density_of_run
from omniinput_hpc.estimators.precision_recall.curves import accumulate, area, cumulative_ratio
from omniinput_hpc.estimators.precision_recall.from_rule import rule_curve, sum_scores
from omniinput_hpc.results.comparison import model_lines, ranges, verdict

pytestmark = pytest.mark.slow

N_RUNS = 16


def curve_of(which, seed, moves=8):
    run = draw(which, ABSOLUTE, seed, moves=moves)
    density = density_of_run(run)
    return rule_curve(density, sum_scores(run, density, model_pair.is_right), whole=True)


def exact_curve(which):
    z, r = model_pair.table(which), model_pair.is_right(model_pair.X_ID)
    g = np.histogram(z, EDGES)[0]
    right = np.histogram(z, EDGES, weights=r)[0]
    b = np.flatnonzero(g)
    return accumulate(np.log(g[b]), right[b] / g[b], "low")


@pytest.fixture(scope="module")
def found():
    curves = [(curve_of("good", 2 * s), curve_of("worse", 2 * s + 1)) for s in range(N_RUNS)]
    return [compare_models(a, b) for a, b in curves]


def test_the_intervals_hold_the_exact_difference_and_ratio(found):
    least, _ = binom.interval(0.999, N_RUNS, 0.95)
    difference = ratio = 0
    for c in found:
        a, b = (area(*exact_curve(which), c.lower, c.upper) for which in ("good", "worse"))
        difference += bool(c.aupr_difference.low <= a - b <= c.aupr_difference.high)
        ratio += bool(c.aupr_ratio.low <= a / b <= c.aupr_ratio.high)
        assert c.cumulative_x.value[-1] == pytest.approx(float(c.aupr_ratio.value), rel=1e-3)
    assert difference >= least and ratio >= least, (difference, ratio)


def test_along_the_curve_intervals_hold_the_exact_values_and_the_line(found):
    """At chosen recalls: the difference of precisions, and the ratio of the areas up to there."""
    least, _ = binom.interval(0.999, N_RUNS, 0.95)
    held = np.zeros((2, 5))
    for c in found:
        a, b = (exact_curve(which) for which in ("good", "worse"))
        x = c.log_recall_x
        difference = np.interp(x, a[1], a[0]) - np.interp(x, b[1], b[0])
        exact = difference, cumulative_ratio(a, b, x)
        for row, interval, true in zip(held, (c.difference_x, c.cumulative_x), exact, strict=True):
            assert ((interval.low <= interval.value) & (interval.value <= interval.high)).all()
            row += ((interval.low <= true) & (true <= interval.high))[::50]
    assert (held >= least).all(), held


def test_along_the_curve_an_interval_reaches_as_far_as_each_bins_own_draws():
    """Joint draws that are alike in all bins miss a bin's own r."""
    a, b = curve_of("good", 1), curve_of("worse", 2)
    whole = compare_models(a, b)
    alike = np.full_like(b.draws.values.precision_t, 1.0)
    shrunk = replace(b, draws=replace(b.draws, values=replace(b.draws.values, precision_t=alike)))
    without = replace(shrunk, draws=replace(shrunk.draws, own=None))
    wide, narrow = (compare_models(a, curve) for curve in (shrunk, without))
    at = len(whole.log_recall_x) // 2
    assert narrow.difference_x.high[at] < whole.difference_x.value[at] < wide.difference_x.high[at]
    assert narrow.cumulative_x.high[-1] < whole.cumulative_x.value[-1] < wide.cumulative_x.high[-1]
    assert wide.aupr_ratio == narrow.aupr_ratio


def test_the_better_model_is_named(found):
    for c in found:
        assert verdict(c, "A", "B").startswith("A is better than B over recall 10^")
        assert "A is more precise at" in verdict(c, "A", "B")
    assert any(line.startswith("AUPR ratio, A over B") for line in model_lines(found[0], "A", "B"))


def test_no_model_is_called_better_where_a_run_has_not_converged(found):
    """The clear difference of above, from a run that is no result: said so, and no verdict."""
    for unconverged in (["A"], ["B"], ["A", "B"]):
        lines = model_lines(found[0], "A", "B", unconverged)
        assert not any("better than" in line or "more precise" in line for line in lines)
        assert lines[-1].startswith("not converged: ") and " and ".join(unconverged) in lines[-1]
        marked = [name for name in "AB" if f"not converged: AUPR of {name}" in "\n".join(lines)]
        assert marked == unconverged
        assert sum(line.startswith("not converged: AUPR ") for line in lines) == 2 + len(marked)
    assert not any(line.startswith("not converged") for line in model_lines(found[0], "A", "B"))


def test_a_range_that_is_asked_for_is_that_of_all_that_is_compared():
    a, b = curve_of("good", 1), curve_of("worse", 2)
    whole = compare_models(a, b)
    middle = 0.5 * (whole.lower + whole.upper)
    ends = (middle, float(whole.upper))
    part = compare_models(a, b, asked=ends)
    assert (part.lower, part.upper) == ends
    exact_a, exact_b = (area(*exact_curve(which), *ends) for which in ("good", "worse"))
    for found, exact in (
        (part.aupr_a, exact_a),
        (part.aupr_b, exact_b),
        (part.aupr_difference, exact_a - exact_b),
        (part.aupr_ratio, exact_a / exact_b),
    ):
        assert abs(float(found.value) - exact) < 4 * float(found.error)
    assert part.cumulative_x.value[-1] == pytest.approx(float(part.aupr_ratio.value), rel=1e-3)
    assert abs(float(whole.aupr_b.value) - exact_b) > 4 * float(part.aupr_b.error)
    with pytest.raises(EstimateError, match="--recall-range"):
        compare_models(a, b, asked=(whole.lower - 3.0, middle))


def test_over_one_range_a_comparison_has_the_curves_own_interval():
    """The same number and the same ends as `precision-recall`; only the common range may differ."""
    a, b = curve_of("good", 1), curve_of("worse", 2)
    both = compare_models(a, b)
    run = draw("good", ABSOLUTE, 1, moves=8)
    density = density_of_run(run)
    sums = sum_scores(run, density, model_pair.is_right)
    asked = (0.5 * (both.lower + both.upper), both.upper)
    part = compare_models(a, b, asked=asked).aupr_a
    own = rule_curve(density, sums, whole=True, recall_range=asked)
    assert (float(part.value), float(part.low)) == (own.aupr, own.aupr_low)
    assert (float(part.high), float(part.error)) == (own.aupr_high, own.aupr_error)
    same = compare_models(a, a).aupr_a
    assert (float(same.low), float(same.high)) == (a.aupr_low, a.aupr_high)


def test_one_model_twice_cannot_be_told_apart():
    words = [verdict(compare_models(curve_of("good", 2 * s + 900), curve_of("good", 2 * s + 901)),
                     "A", "B") for s in range(8)]  # fmt: skip
    undecided = sum(text.startswith("The data cannot tell") for text in words)
    assert undecided >= binom.interval(0.999, len(words), 0.95)[0], words


def test_draws_made_from_the_same_random_numbers_do_not_cancel():
    a = curve_of("worse", 3)
    both = compare_models(a, a)
    assert both.aupr_difference.value == 0
    one = float(both.aupr_a.error)
    assert 1.2 * one < float(both.aupr_difference.error) < 1.7 * one


def test_recall_on_another_scale_is_shifted_back():
    a, b = curve_of("good", 1), curve_of("worse", 2)
    plain = compare_models(a, b)
    run = draw("worse", ABSOLUTE, 2)
    density = density_of_run(run)
    moved = type(density)(**{**vars(density), "log_g_b": density.log_g_b - 5.0,
                             "log_g_jb": density.log_g_jb - 5.0})  # fmt: skip
    relative = rule_curve(moved, sum_scores(run, density, model_pair.is_right), whole=True)
    shifted = compare_models(a, relative, 5.0)
    assert shifted.aupr_difference.value == pytest.approx(float(plain.aupr_difference.value))
    assert shifted.lower == pytest.approx(plain.lower)
    blurred = compare_models(a, relative, 5.0, 0.5)
    assert blurred.aupr_difference.error > shifted.aupr_difference.error
    with pytest.raises(EstimateError, match="share no range of log recall"):
        compare_models(a, relative, -30.0)


def test_one_lane_gives_no_verdict():
    run = draw("worse", ABSOLUTE, 2)
    alone = ArrayRun(run.x_rksd, run.z_rks, 1, run.beta_k, run.edges, run.n_values)
    density = density_of_run(alone)
    curve = rule_curve(density, sum_scores(alone, density, model_pair.is_right), whole=True)
    text = verdict(compare_models(curve_of("good", 1), curve), "A", "B")
    assert text.endswith("the errors are not known.")


def test_ranges_in_words():
    x = np.arange(8.0)
    where = np.array([1, 1, 0, 0, 1, 0, 1, 1], dtype=bool)
    assert ranges(where, x) == ["10^0.00 to 10^0.43", "10^2.61 to 10^3.04"]
    assert ranges(~where & False, x) == []
