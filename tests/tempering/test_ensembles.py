"""Ensembles: log-weights and slopes of the three kinds, and their numbers as one array."""

import numpy as np
import pytest
import torch

from omniinput_hpc.tempering.ensembles import (
    N_PARAMETERS,
    SLOPE_REACH,
    Canonical,
    FixedEnsemble,
    Gaussian,
    Tabulated,
    from_array,
    log_weight_b,
    to_array,
)

EDGES = np.linspace(-1.0, 4.0, 21)
TABLE = np.random.default_rng(3).normal(size=22)
ENSEMBLES = {
    "canonical": Canonical(-1.5),
    "gaussian": Gaussian(2.0, 0.7, 1.25),
    "tabulated": Tabulated(EDGES, (3, 15), TABLE),
}
Z = np.array([-1.7, -1.0, 0.3, 1.25, 3.99, 4.0, 9.0])


@pytest.fixture(params=ENSEMBLES)
def ensemble(request):
    return ENSEMBLES[request.param]


def test_numbers_make_the_same_ensemble(ensemble):
    numbers = to_array(ensemble, n_table=22)
    assert numbers.shape == (N_PARAMETERS + 22,) and numbers.dtype == np.float64
    copy = from_array(numbers, EDGES)
    assert type(copy) is type(ensemble)
    np.testing.assert_array_equal(copy.log_weight(Z), ensemble.log_weight(Z))
    np.testing.assert_array_equal(copy.slope(Z), ensemble.slope(Z))
    np.testing.assert_array_equal(copy.beta, ensemble.beta)
    if isinstance(ensemble, Tabulated):
        assert copy.window == ensemble.window
        np.testing.assert_array_equal(copy.inside(Z), ensemble.inside(Z))


def test_without_a_table_nothing_is_sent_but_the_parameters():
    for name in ("canonical", "gaussian"):
        assert from_array(to_array(ENSEMBLES[name], 0), EDGES) == ENSEMBLES[name]
        assert to_array(ENSEMBLES[name], 0).shape == (N_PARAMETERS,)


@pytest.mark.parametrize("name", ["canonical", "gaussian"])
def test_slopes_are_minus_the_derivative(name):
    ensemble, h = ENSEMBLES[name], 1e-4
    difference = ensemble.log_weight(Z - h) - ensemble.log_weight(Z + h)
    np.testing.assert_allclose(ensemble.slope(Z), difference / (2 * h), rtol=1e-7)


@pytest.mark.parametrize("name", ["canonical", "gaussian"])
def test_tensors_and_arrays_give_the_same(name):
    ensemble, z = ENSEMBLES[name], torch.from_numpy(Z)
    np.testing.assert_array_equal(ensemble.log_weight(z).numpy(), ensemble.log_weight(Z))
    np.testing.assert_array_equal(ensemble.slope(z).numpy(), ensemble.slope(Z))


def test_a_table_is_read_by_bin():
    tabulated = ENSEMBLES["tabulated"]
    expected = TABLE[[0, 1, 6, 10, 20, 20, 21]]  # bins are half-open, the last one closed
    np.testing.assert_array_equal(tabulated.log_weight(Z), expected)
    assert np.isnan(tabulated.beta)
    np.testing.assert_array_equal(
        tabulated.inside(np.array([-0.26, -0.25, 2.7, 2.75])), [False, True, True, False]
    )


def slopes(table, window):
    """Return the slope of each entry: below all bins, in each of them, above them."""
    width = EDGES[1] - EDGES[0]
    z = EDGES[0] + width * (np.arange(len(table)) - 0.5)
    return Tabulated(EDGES, window, table).slope(z)


def test_a_tables_slopes_stay_inside_the_window():
    width, window = 0.25, (3, 15)
    straight = -1.75 * width * np.arange(22.0)
    np.testing.assert_allclose(slopes(straight, window), 1.75)
    spoilt = straight.copy()
    spoilt[: window[0] + 1] = np.nan  # what lies outside is not looked at
    spoilt[window[1] + 1 :] = np.nan
    np.testing.assert_allclose(slopes(spoilt, window), 1.75)
    middle = (TABLE[9 - SLOPE_REACH] - TABLE[9 + SLOPE_REACH]) / (2 * SLOPE_REACH * width)
    assert slopes(TABLE, window)[9] == pytest.approx(middle)
    assert slopes(np.zeros(22), (5, 6))[6] == 0.0  # a window of one bin


def test_log_weights_of_bins_are_those_of_their_centres():
    centres = 0.5 * (EDGES[:-1] + EDGES[1:])
    np.testing.assert_array_equal(log_weight_b(Canonical(2.0), EDGES), -2.0 * centres)
    np.testing.assert_array_equal(log_weight_b(ENSEMBLES["tabulated"], EDGES), TABLE[1:-1])


def test_a_fixed_ensemble_does_nothing():
    class Untouchable:
        def __getattr__(self, name):
            raise AssertionError(f"asked for {name}")

    for ensemble in (FixedEnsemble(), *ENSEMBLES.values()):
        assert ensemble.on_host() is ensemble
        assert ensemble.begin_segment(Untouchable(), 8) is None
        assert ensemble.begin_move(Untouchable(), Untouchable()) is None
        assert ensemble.after_move(Untouchable()) is None
