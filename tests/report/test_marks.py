"""What is said of a bin or a threshold that is pointed at, and where in the picture it is."""

import json

import numpy as np
import pytest
from lattice import BETA_K, MODEL, first_is_zero, independent_run
from lattice import LEVEL_EDGES as EDGES
from matplotlib.figure import Figure

from omniinput_hpc.estimators.density.density import density_of_run
from omniinput_hpc.estimators.precision_recall.from_rule import rule_curve, sum_scores
from omniinput_hpc.report.marks import curve_marks, density_marks
from omniinput_hpc.report.page import Marks


@pytest.fixture(scope="module")
def sampled():
    run = independent_run(MODEL, BETA_K, EDGES, walkers=16, seed=1)
    density = density_of_run(run)
    return density, rule_curve(density, sum_scores(run, density, first_is_zero), whole=True)


def test_every_visited_bin_has_its_number_of_inputs(sampled):
    density, _ = sampled
    marks, upright = density_marks(density, False), density_marks(density, True)
    assert len(marks.words) == (density.count_b > 0).sum()
    assert np.array_equal(marks.x, upright.y) and (marks.axis, upright.axis) == (0, 1)
    count = MODEL.bin_sums(EDGES, MODEL.count_l())[density.count_b > 0]
    said = [float(words.split("10^")[1].split(" inputs")[0]) for words in marks.words]
    assert np.abs(np.array(said) - np.log10(count)).max() < 0.2
    assert all("in the exponent" in words or "not known" in words for words in marks.words)


def test_every_threshold_has_its_precision(sampled):
    marks = curve_marks(*sampled)
    assert len(marks.z) == len(sampled[1].threshold_t)
    edges, curve = sampled[0].edges, sampled[1]
    assert curve.side == "low"
    inside = (edges[curve.bin_t] < marks.z) & (marks.z < edges[curve.bin_t + 1])
    assert inside.all() and (marks.z < curve.threshold_t).all()  # in the last bin accepted
    assert "accepted: precision 0." in marks.words[-1] and "wrong inputs" in marks.words[-1]


def test_places_are_shares_of_the_figure():
    figure = Figure(figsize=(4.0, 2.0))
    axes = figure.add_axes((0.25, 0.5, 0.5, 0.5))
    axes.set(xlim=(0.0, 10.0), ylim=(0.0, 1.0))
    ends = np.array([0.0, 10.0])
    placed = json.loads(Marks(ends, ends / 10, ends, ["a", "b"], 0, "z").placed(figure))
    assert placed == [[0.25, 0.5, 0.0, "a"], [0.75, 1.0, 10.0, "b"]]
