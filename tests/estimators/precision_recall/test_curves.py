"""Along with precision and recall: wrong inputs, approximations, cumulative ratio, draws."""

import numpy as np
import pytest

from omniinput_hpc.estimators.precision_recall.curves import (
    accumulate,
    area,
    areas,
    common_range,
    cumulative_ratio,
    curve_range,
    trace,
)

LOG_G_B, R_B = np.log([2.0, 6.0, 8.0]), np.array([1.0, 0.5, 0.25])


def test_trace_by_hand():
    low = trace(LOG_G_B, R_B, "low")
    np.testing.assert_allclose(np.exp(low.log_wrong_t), [0.0, 3.0, 9.0])
    np.testing.assert_allclose(low.simple_precision_t, [1.0, 0.5, 0.25])
    np.testing.assert_allclose(low.simple_log_recall_t, np.log([2.0, 3.0, 3.0]))
    high = trace(LOG_G_B, R_B, "high")
    np.testing.assert_allclose(np.exp(high.log_wrong_t), [6.0, 9.0, 9.0])
    np.testing.assert_allclose(high.simple_precision_t, [0.25, 0.25, 0.25])
    np.testing.assert_allclose(high.simple_log_recall_t, np.log([2.0, 3.0, 3.0]))


def test_right_and_wrong_inputs_add_up_to_all():
    rng = np.random.default_rng(1)
    log_g_b, r_b = rng.normal(0, 300, size=40), rng.random(40)
    curve = trace(log_g_b, r_b, "low")
    both = np.logaddexp(curve.log_recall_t, curve.log_wrong_t)
    np.testing.assert_allclose(both, np.logaddexp.accumulate(log_g_b))
    np.testing.assert_allclose(curve.precision_t, np.exp(curve.log_recall_t - both))
    # where g changes by hundreds of nats a bin, the papers' approximations are exact
    np.testing.assert_allclose(curve.simple_precision_t, curve.precision_t, atol=1e-9)
    np.testing.assert_allclose(curve.simple_log_recall_t, curve.log_recall_t, atol=1e-9)


def test_many_curves_at_once_are_the_same_as_one_by_one():
    rng = np.random.default_rng(2)
    log_g_mb, r_mb = rng.normal(size=(5, 7)), rng.random((5, 7))
    log_g_mb[2, :3] = -np.inf
    for side in ("low", "high"):
        together = trace(log_g_mb, r_mb, side)
        for m in range(5):
            alone = trace(log_g_mb[m], r_mb[m], side)
            for name, value in vars(alone).items():
                np.testing.assert_array_equal(getattr(together, name)[m], value, err_msg=name)
    assert np.isnan(trace(log_g_mb[2], r_mb[2], "low").simple_precision_t[:3]).all()


def test_cumulative_ratio():
    a = accumulate(LOG_G_B, R_B, "low")
    ratio = cumulative_ratio(a, (0.5 * a[0], a[1]), np.linspace(a[1][0], a[1][-1], 201))
    np.testing.assert_allclose(ratio, 2.0)
    b = (np.array([0.9, 0.3]), np.array([-1.0, 1.5]))
    x = np.linspace(a[1][0], 1.5, 201)
    ratio = cumulative_ratio(a, b, x)
    assert ratio[-1] == pytest.approx(area(*a, x[0], x[-1]) / area(*b, x[0], x[-1]))
    middle = len(x) // 2
    expected = area(*a, x[0], x[middle]) / area(*b, x[0], x[middle])
    assert ratio[middle] == pytest.approx(expected)
    assert ratio[0] == pytest.approx(np.interp(x[0], a[1], a[0]) / np.interp(x[0], b[1], b[0]))


def test_areas_of_many_curves_are_those_one_by_one():
    rng = np.random.default_rng(6)
    p_mt, x_mt = rng.random((60, 9)), np.sort(rng.normal(size=(60, 9)), axis=1)
    x_mt[:8, :3], x_mt[8:12] = -np.inf, -np.inf  # right inputs later on, or none
    x_mt[12:20, 4], x_mt[20:25, -4:] = x_mt[12:20, 3], x_mt[20:25, -4:-3]  # vertical drops
    p_mt[25:30, 0], x_mt[25:30, 0] = np.nan, -np.inf
    x_mt[30:34] -= 50.0
    for ends in ((-1.0, 0.5), (-9.0, 9.0), (np.nan, np.nan), (0.0, 0.0)):
        alone_m = [area(p, x, *ends) for p, x in zip(p_mt, x_mt, strict=True)]
        np.testing.assert_allclose(areas(p_mt, x_mt, ends), alone_m, err_msg=str(ends))


def test_a_curve_without_a_right_input_shares_no_range_in_either_order():
    some, none = accumulate(LOG_G_B, R_B, "low"), accumulate(LOG_G_B, 0.0 * R_B, "low")
    for a, b in ((some, none), (none, some), (none, none)):
        assert np.isnan(common_range(curve_range(*a), curve_range(*b))).all()


def test_curves_that_do_not_reach_an_end_are_continued_to_it():
    """By hand: precision 0.5 from ln recall 1 to 2, 1 at 3; over 0 to 4, and beyond its ends."""
    p_t, x_t = np.array([0.5, 0.5, 1.0]), np.array([1.0, 2.0, 3.0])
    nothing = np.full(3, -np.inf)
    for ends, mean in (
        ((0.0, 4.0), (0.5 + 0.5 + 0.75 + 1.0) / 4),
        ((1.0, 3.0), (0.5 + 0.75) / 2),
        ((2.5, 3.5), (0.5 * 0.875 + 0.5 * 1.0)),
        ((4.0, 5.0), 1.0),
        ((-2.0, -1.0), 0.5),
    ):
        p_mt, x_mt = np.array([p_t, p_t]), np.array([x_t, nothing])
        np.testing.assert_allclose(areas(p_mt, x_mt, ends, continued=True), [mean, 0.0])
    cut = areas(p_t[None], x_t[None], (0.0, 4.0))  # the wrong one for a range that was asked for
    assert cut == pytest.approx((0.5 + 0.75) / 2)
