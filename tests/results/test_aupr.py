"""What is said of an AUPR: its digits, chance, how many inputs are right, texts."""

import re
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from hostile_words import write_model_folder
from lattice import BETA_K, MODEL, first_is_zero, independent_run
from lattice import LEVEL_EDGES as EDGES
from run_files import write_run
from script_tools import inside, undrawn

from omniinput_hpc.estimators.density.density import density_of_run
from omniinput_hpc.estimators.precision_recall.curves import accumulate, area
from omniinput_hpc.estimators.precision_recall.from_rule import rule_curve, sum_scores
from omniinput_hpc.results.aupr import aupr_line, interval_words, scale_lines, share_words

__all__ = ["inside", "undrawn"]


@pytest.fixture(scope="module")
def sampled():
    run = independent_run(MODEL, BETA_K, EDGES, walkers=16, seed=1)
    density = density_of_run(run)
    return density, sum_scores(run, density, first_is_zero)


def test_chance_and_the_numbers_of_right_and_wrong_inputs_are_the_exact_ones(sampled):
    """A quarter of all 4^8 inputs begin with the value 0."""
    curve = rule_curve(*sampled, whole=True)
    chance, last = scale_lines(sampled[0], curve)
    assert chance == (
        "chance: AUPR 0.25 (0.25 to 0.26) for a random order of these inputs, 1 for a perfect one; "
        "the right ones are 0.25 of all inputs"
    )
    right, wrong = re.findall(r"([\d,]+) (?:right|wrong)", last)
    assert float(right.replace(",", "")) == pytest.approx(4**7, rel=0.05)
    assert float(wrong.replace(",", "")) == pytest.approx(3 * 4**7, rel=0.05)


def test_a_random_order_has_the_aupr_that_is_called_chance():
    """An input per bin, a quarter of them right; from 100 right ones on, +- 4 sigmas."""
    right = np.random.default_rng(1).permutation(np.arange(40_000) < 10_000)
    curve = accumulate(np.zeros(len(right)), right.astype(float), "low")
    assert area(*curve, np.log(100)) == pytest.approx(0.25, abs=4 * 0.25 * 0.75 / 100**0.5)


def test_a_curve_of_a_part_of_the_space_knows_only_a_bound(sampled):
    density, sums = sampled
    part = replace(density, log_measure=density.log_measure + 40 * np.log(10.0))
    assert "are at least 10^-40.60 of all inputs" in scale_lines(part, rule_curve(part, sums))[0]


def test_a_share_below_the_smallest_number_is_not_0():
    trace = SimpleNamespace(
        precision_t=np.zeros(1), log_recall_t=np.array([10.0]), log_wrong_t=np.array([900.0])
    )
    curve = SimpleNamespace(trace=trace, bands=SimpleNamespace(low=trace, high=trace))
    assert share_words(curve) == "10^-386.52"


def test_digits_are_as_few_as_tell_the_interval(sampled):
    curve = rule_curve(*sampled, whole=True)
    line = aupr_line(curve, sampled[0])
    assert re.match(r"AUPR: 0\.\d\d, 95% interval 0\.\d\d to 0\.\d\d, over", line)
    assert re.match(r"AUPR: 0\.\d{6}, ", aupr_line(curve, sampled[0], digits=6))
    sure = replace(curve, aupr_low=0.9998, aupr_high=1.0, aupr_one_sided=-1)
    assert interval_words(sure) == "0.9998 to 1.0000 (one-sided: at least 0.9998)"


@pytest.mark.slow
def test_texts_of_both_ends_are_shown_and_nothing_else(tmp_path, inside, undrawn):
    """With a tokenizer in the model's folder; control characters are spelled out."""
    write_run(tmp_path / "one.h5", walkers=16, seed=1)
    call = ("precision_recall.py", "one.h5", "--rule", "toy_rules:begins_with_zero")
    assert "texts like" not in inside(*call)[1]
    write_model_folder(tmp_path / "none")
    code, out, err = inside(*call)
    assert (code, err) == (0, "")
    (line,) = [line for line in out.splitlines() if line.startswith("accepted first are")]
    near, far = (float(z) for z in re.findall(r"\(z = ([\d.]+)\)", line))
    assert near < far and "\0" not in line and "\u202e" not in line
    write_run(tmp_path / "two.h5", walkers=8, seed=2, config_seed=2)
    code, out, err = inside(call[0], "one.h5+two.h5", *call[2:])
    assert (code, err) == (0, "") and line in out  # of the first run


def test_of_a_share_that_is_hardly_known_only_the_upper_end_is_said():
    ends = [SimpleNamespace(precision_t=np.array([p])) for p in (1e-28, 1.2e-3)]
    trace = SimpleNamespace(
        precision_t=np.array([1e-13]), log_recall_t=np.zeros(1), log_wrong_t=np.array([29.6])
    )
    curve = SimpleNamespace(trace=trace, bands=SimpleNamespace(low=ends[0], high=ends[1]))
    assert share_words(curve) == "at most 0.0012"
