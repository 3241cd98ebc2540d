"""Lines and columns about scores: bounds where nothing right, or wrong, was scored; FID."""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from scored_model import a_density, scored_inputs

from omniinput_hpc.estimators import EstimateError
from omniinput_hpc.estimators.precision_recall.allocation import allocate
from omniinput_hpc.estimators.precision_recall.from_scores import scored_curve
from omniinput_hpc.models.table import ConfidentSide
from omniinput_hpc.results.curve import CurveResult
from omniinput_hpc.results.fid import fid_columns
from omniinput_hpc.results.scores import NEGATIVE_SLOPE, NextScores, summarize_scores
from omniinput_hpc.results.tables import write_table

DENSITY, SCORED = a_density(1), scored_inputs(np.random.default_rng(1), per_bin=40)


def columns_of(result):
    return CurveResult([], [DENSITY], result.curve, "", ConfidentSide("low", "")).columns()


@pytest.mark.parametrize(
    ("score", "side", "words"),
    [(0.0, 1, "no right input was scored: the AUPR is at most 0.0"),
     (1.0, -1, "no wrong input was scored: the AUPR is at least 0.9")],
)  # fmt: skip
def test_one_sided_bounds_are_named(score, side, words):
    scored = replace(SCORED, score_ai=np.full_like(SCORED.score_ai, score))
    result = scored_curve(DENSITY, scored)
    lines = summarize_scores(result, scored, "low")
    assert lines[-1].startswith(words)
    what = "right" if side == 1 else "wrong"
    n = int(result.used_b.sum())
    assert any(f"no {what} input in {n} of {n} bins" in line for line in lines)
    assert not any("nan" in line for line in lines)
    columns = columns_of(result)
    assert (columns["one_sided"] == side).all() and (columns["r_one_sided"] == side).all()


def test_a_negative_slope_is_explained():
    result = scored_curve(DENSITY, SCORED)
    (found,) = allocate([result], 10)
    for slope_b, said in ((np.abs(found.slope_b), False), (-np.abs(found.slope_b), True)):
        joined = SimpleNamespace(scored=SCORED, notes=["a note"])
        lines = NextScores([], "r.h5", joined, result, replace(found, slope_b=slope_b), 10).lines()
        assert "r.h5: a note" in lines and any("inputs scored by a0" in line for line in lines)
        assert (lines[-1] == NEGATIVE_SLOPE) == said


def test_nothing_tells_where_scores_help_without_right_inputs_in_two_bins():
    none = replace(SCORED, score_ai=np.where(SCORED.bin_i == 0, SCORED.score_ai, 0.0))
    with pytest.raises(EstimateError, match="the AUPR is not defined"):
        allocate([scored_curve(DENSITY, none)], 10)


def test_the_aupr_of_who_scored_only_some_bins_is_not_known():
    """Else it would be of another range of recall than that of the others."""
    both = replace(
        SCORED, annotators=["ana", "ben"], score_ai=np.repeat(SCORED.score_ai, 2, axis=0)
    )
    part = both.score_ai.copy()
    part[1, SCORED.bin_i < 2] = np.nan
    for given, found in ((both, ""), (replace(both, score_ai=part), "ben not known")):
        lines = summarize_scores(scored_curve(DENSITY, given), given, "low")
        (line,) = [one for one in lines if one.startswith("AUPR by annotator")]
        assert (found or "ben 0.") in line and "ana 0." in line


def test_intervals_with_two_ends_are_not_named_so():
    result = scored_curve(DENSITY, SCORED)
    lines = summarize_scores(result, SCORED, "low")
    assert not any("AUPR is at" in line for line in lines)
    columns = columns_of(result)
    assert (columns["one_sided"] == 0).all()
    np.testing.assert_array_equal(columns["r_one_sided"] == 1, columns["r"] == 0)


def test_fid_of_a_run_by_bin_and_a_run_that_is_not_there(tmp_path):
    path = tmp_path / "fid.csv"
    columns = {
        "run": np.array([0, 0, 2]),
        "z_lower": np.array([1.0, 2.0, 1.0]),
        "fid": np.array([5.0, 6.0, 7.0]),
        "fid_of_reference": np.array([0.5, 0.6, 0.7]),
    }
    write_table(path, columns)
    found = fid_columns(path, 0, np.array([2.0, 3.0, 1.0]))
    np.testing.assert_array_equal(found["fid"], [6.0, np.nan, 5.0])
    np.testing.assert_array_equal(found["fid_of_reference"], [0.6, np.nan, 0.5])
    with pytest.raises(EstimateError, match=r"fid.csv holds no run 1; it has: 0, 2"):
        fid_columns(path, 1, np.array([1.0]))
