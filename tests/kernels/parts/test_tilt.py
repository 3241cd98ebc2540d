"""A second direction: kernels are exact for exp(-beta z - lambda y); wrong ones fail."""

import numpy as np
import pytest
import torch
from exactness import Draw, check_exact, distribution, shift_of_value, site_changed
from law_kernels import (
    CHOICES,
    COUPLED,
    COUPLED_3,
    SPANS,
    check_sites_on_kv_cache,
    check_spans,
    from_law,
    moved_away,
)
from law_models import NormalizedRows, NormalizedRowsOnKvCache, Under

from omniinput_hpc.config import kernels as tables
from omniinput_hpc.errors import UserError
from omniinput_hpc.kernels.from_law import FromLaw
from omniinput_hpc.kernels.metropolis import Metropolis
from omniinput_hpc.kernels.parts.law import Law
from omniinput_hpc.kernels.parts.tilt import TiltedLaw, log_tilt
from omniinput_hpc.tempering.ensembles import Canonical

COLD = Canonical(1.5)
DRAWS = [Draw(4, site_changed), Draw(3, shift_of_value(4))]


def y_of(x):
    """Return an observable that is no sum over sites."""
    return np.where(x[:, 0] == x[:, -1], 1.0, -0.5) + 0.3 * x.sum(axis=1) ** 2


def tilted(model, base=None, slope=-0.7):
    return Under(model, TiltedLaw(base, slope, y_of))


@pytest.mark.parametrize("base", [None, Law(NormalizedRows(n_values=4))], ids=["no law", "a law"])
def test_metropolis_is_exact(base):
    model = tilted(COUPLED, base)
    kernel = Metropolis(tables.Metropolis(), model, 64)
    check_exact(kernel, model, COLD, DRAWS, start=moved_away)


def test_metropolis_on_a_kv_cache_is_exact():
    check_sites_on_kv_cache(tilted(NormalizedRowsOnKvCache()), COLD)


@pytest.mark.parametrize("rows", [NormalizedRows, NormalizedRowsOnKvCache])
def test_from_law_is_exact(rows):
    check_spans(tilted(COUPLED_3, Law(rows())), COLD)


def test_the_distribution_is_that_of_both_directions():
    x = COUPLED.all_inputs()
    expected = np.exp(-1.5 * COUPLED.output(x).double().numpy() + 0.7 * y_of(x.numpy()))
    found = distribution(tilted(COUPLED), COLD)
    np.testing.assert_allclose(found, expected / expected.sum(), rtol=1e-5)


@pytest.mark.parametrize("wrong", [0.0, 0.7], ids=["forgotten", "upside down"])
@pytest.mark.parametrize("name", ["metropolis", "from-law"])
def test_a_kernel_with_another_lambda_fails(name, wrong):
    base = Law(NormalizedRows(n_values=4 if name == "metropolis" else 3))
    model = tilted(COUPLED if name == "metropolis" else COUPLED_3, base)
    if name == "metropolis":
        kernel, draws, choices = Metropolis(tables.Metropolis(), model, 64), DRAWS, ()
    else:
        (kernel, draws), choices = from_law(SPANS[1], model), CHOICES
    kernel._law = TiltedLaw(base, wrong, y_of)
    with pytest.raises(AssertionError):
        check_exact(kernel, model, COLD, draws, choices, name == "metropolis")


def test_a_tilt_is_no_law_to_draw_from():
    with pytest.raises(UserError, match="add a table"):
        FromLaw(tables.FromLaw(name="from-law"), tilted(COUPLED), 4)
    assert log_tilt(Law(NormalizedRows()), torch.zeros((2, 3), dtype=torch.int64)) == 0.0
