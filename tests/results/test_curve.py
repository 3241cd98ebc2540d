"""What is said of a curve: ranges that can be asked for, the side, thresholds, warnings."""

import argparse
import re
from dataclasses import replace

import numpy as np
import pytest
from lattice import BETA_K, MODEL, first_is_zero, independent_run
from lattice import LEVEL_EDGES as EDGES

from omniinput_hpc.cli.scripts import recall_range
from omniinput_hpc.estimators import EstimateError
from omniinput_hpc.estimators.comparison.to_exact import Exact
from omniinput_hpc.estimators.density.density import density_of_run
from omniinput_hpc.estimators.precision_recall.curves import accumulate, area
from omniinput_hpc.estimators.precision_recall.from_rule import rule_curve, sum_scores
from omniinput_hpc.estimators.precision_recall.thresholds import at_thresholds, unreached
from omniinput_hpc.plots.scores import curve_figure, roc_figure
from omniinput_hpc.results.aupr import aupr_line, recall_unit
from omniinput_hpc.results.curve import (
    beyond_lines,
    threshold_lines,
    unreached_lines,
    wrong_way_lines,
)


def sampled(seed=1):
    run = independent_run(MODEL, BETA_K, EDGES, walkers=16, seed=seed)
    density = density_of_run(run)
    return density, sum_scores(run, density, first_is_zero)


@pytest.fixture(scope="module")
def run():
    return sampled()


def exact_area(low, high, side="low"):
    g_b, right_b = (MODEL.bin_sums(EDGES, v) for v in (MODEL.count_l(), MODEL.right_l()))
    seen = g_b > 0
    return area(*accumulate(np.log(g_b[seen]), right_b[seen] / g_b[seen], side), low, high)


def test_the_range_beside_an_aupr_can_be_asked_for(run):
    """What is printed is rounded inwards, so that the same range is reached by the same curve."""
    density, sums = run
    own = rule_curve(density, sums, whole=True)
    line = aupr_line(own, density)
    assert line.endswith("(the curve's own ends)")
    said = line.split("over recall ")[1].split(" inputs (")[0]
    asked = recall_range(said.replace(" to ", ":"))
    again = rule_curve(density, sums, whole=True, recall_range=asked)
    assert again.aupr == pytest.approx(own.aupr, rel=0.01) and again.range_given
    assert aupr_line(again, density).endswith(f"over recall {said} inputs (set by --recall-range)")
    assert ", relative (" in aupr_line(own, replace(density, absolute=False))


def test_a_range_is_given_as_powers_of_ten_or_in_ln():
    assert recall_range("10^2:10^9.5") == pytest.approx((np.log(1e2), 9.5 * np.log(10)))
    assert recall_range("-9:10^2") == pytest.approx((-9.0, np.log(1e2)))
    for wrong in ("5", "10^x:10^9", "10^9:10^2", "20:5", "1:nan"):
        with pytest.raises(argparse.ArgumentTypeError, match=r"as 10\^2:10\^9 or, of ln recall"):
            recall_range(wrong)


def test_an_aupr_over_a_given_range_is_the_exact_one_within_sigmas(run):
    density, sums = run
    for side, ends in (("low", (4.0, 9.0)), ("high", (8.0, 9.2))):
        curve = rule_curve(density, sums, side, whole=True, recall_range=ends)
        exact = exact_area(*ends, side)
        assert abs(curve.aupr - exact) < 4 * curve.aupr_error
        assert curve.aupr_low <= curve.aupr <= curve.aupr_high and curve.aupr_range == ends
        own = rule_curve(density, sums, side, whole=True).aupr
        assert abs(own - exact) > 4 * curve.aupr_error  # the own ends' AUPR is another number


@pytest.mark.slow
def test_errors_over_a_given_range_are_right():
    """Sixteen runs: rms of (AUPR - exact) / error is 1, within three sigmas of chi-square."""
    z = []
    for seed in range(16):
        density, sums = sampled(50 + seed)
        curve = rule_curve(density, sums, whole=True, recall_range=(4.0, 9.0))
        z.append((curve.aupr - exact_area(4.0, 9.0)) / curve.aupr_error)
    n, nu = len(z), 15
    variance = 2 * nu**2 * (nu - 1) / ((nu - 2) ** 2 * (nu - 4)) / n  # of squares of Student's t
    assert abs(np.mean(np.square(z)) - nu / (nu - 2)) < 3 * np.sqrt(variance)


@pytest.mark.parametrize("ends", [(-1.0, 5.0), (4.0, 20.0)])
def test_a_range_that_the_curve_does_not_reach_is_refused(run, ends):
    with pytest.raises(EstimateError, match=r"the curve is known from .* give a range"):
        rule_curve(*run, whole=True, recall_range=ends)


def test_lines_on_thresholds_and_on_test_data_out_of_reach(run):
    density, sums = run
    curve = rule_curve(density, sums, whole=True)
    lines = threshold_lines(at_thresholds(curve, EDGES, [2.0, 2.125]), curve, recall_unit(density))
    assert "(the bin edge nearest to 2)" in lines[0] and "nearest" not in lines[1]
    assert lines[1].startswith("at z < 2.125: precision 0.") and "(95% bands)" in lines[1]
    assert re.search(r", recall [\d,]+ \([\d,]+ to [\d,]+\) inputs \(95% bands\)", lines[1])
    sets = {
        "all in": np.array([1.0, 2.0]),
        "half out": np.array([-9.0, 1.0]),
        "far": np.array([99]),
    }
    said = unreached_lines({name: unreached(curve, EDGES, z_n) for name, z_n in sets.items()})
    assert len(said) == 2
    assert said[0].startswith(
        "warning: 50.0% of the 2 outputs of half out (the most confident at z = -9) lie"
    )
    assert said[1].startswith("warning: 100.0% of the 1 outputs of far lie beyond the far end")


def test_the_wrong_way_is_said_with_the_flag_to_give(run):
    density, sums = run
    assert wrong_way_lines(rule_curve(density, sums, whole=True), density) == []
    (line,) = wrong_way_lines(rule_curve(density, sums, "high", whole=True), density)
    assert "rises the wrong way" in line and "give --side low" in line


def test_test_data_where_no_walker_was_is_said(run):
    density = run[0]
    sets = {"in": np.array([0.0, 3.0]), "out": np.array([1.0, -0.5, 9.0, 2.0])}
    (line,) = beyond_lines(density, sets, "toy")
    assert line.startswith("warning: 50.0% of the 4 outputs of out (z = -0.5 to 9) lie outside")


def test_without_a_right_input_no_curve_is_drawn(run):
    density, sums = run
    nothing = replace(sums, score_gb=0.0 * sums.score_gb, score2_b=0.0 * sums.score2_b)
    never = rule_curve(density, nothing, whole=True)
    for figure in (curve_figure(density, never), roc_figure(density, never)):
        (axes,) = figure.axes
        assert not axes.lines and "inputs were right" in axes.texts[0].get_text()


def test_the_range_beside_the_aupr_is_on_the_axis_of_the_exact_curve():
    """A relative density is drawn on the exact scale: its AUPR's range of recall, too."""
    run = independent_run(MODEL, BETA_K[BETA_K != 0], EDGES, walkers=16, seed=1)
    density = density_of_run(run)
    curve = rule_curve(density, sum_scores(run, density, first_is_zero), whole=True)
    with np.errstate(divide="ignore"):
        exact = Exact(np.log(MODEL.bin_sums(EDGES, MODEL.count_l())), np.ones(len(EDGES) - 1))
    line = curve_figure(density, curve, exact).axes[0].lines[0]
    x = line.get_xdata()
    low, high = map(float, line.get_label().split("over log10 recall ")[1].split(" to "))
    assert x.min() <= low <= high <= x.max() and high - low > 0.9 * np.ptp(x)


def test_below_the_roc_curve_stands_the_ratio(run):
    density, sums = run
    curve = rule_curve(density, sums, whole=True)
    line = roc_figure(density, curve).axes[1].lines[0]
    ratio = (curve.log_recall_t - curve.trace.log_wrong_t) / np.log(10)
    assert np.allclose(line.get_ydata(), ratio[np.isfinite(ratio)])
