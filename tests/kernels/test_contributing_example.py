"""The example of CONTRIBUTING.md: a kernel with its options, its proof and its failing twin."""

from __future__ import annotations

from types import SimpleNamespace
from typing import ClassVar, Literal

import pytest
import torch
from exactness import Draw, Gaussian, check_alone, check_exact, check_matrix, distribution, value_at
from toy_models import CoupledModel

from omniinput_hpc import kernels
from omniinput_hpc.config.kernels import KernelTable
from omniinput_hpc.kernels.parts.categorical import draw, pick
from omniinput_hpc.kernels.parts.device_rng import DeviceStream
from omniinput_hpc.kernels.state import Info, State, Untuned
from omniinput_hpc.models import Model
from omniinput_hpc.tempering.ensembles import Canonical, Ensemble


# The table: in omniinput_hpc/config/kernels.py, with HeatBathTable as one more row of KERNELS.
class HeatBathTable(KernelTable):
    """``[kernel] name = "heat-bath"``."""

    implementation: ClassVar = f"{__name__}:HeatBath"
    name: Literal["heat-bath"] = "heat-bath"


# The kernel: omniinput_hpc/kernels/heat_bath.py.
class HeatBath(Untuned):
    """Draw one site from its conditional distribution in the ensemble (Geman & Geman 1984).

    All walkers change the same site, drawn independently of them. A move evaluates the model
    n_values times and is always accepted.
    """

    def __init__(self, options: HeatBathTable, model: Model, n_walkers: int) -> None:
        super().__init__()
        self._model, self.parts, self.uniforms_per_move = model, options.part_names, n_walkers

    def start(self, x: torch.Tensor, z: torch.Tensor) -> State:
        """Return the state of walkers; nothing is cached."""
        return State(x, z)

    def step(self, state: State, ensemble: Ensemble, stream: DeviceStream) -> tuple[State, Info]:
        """Draw the site and its new value; x is int64 [W, D]."""
        x_new = state.x.clone()
        site = int(stream.shared_uniform(1)[0] * x_new.shape[1])
        outputs = []
        for value in range(self._model.n_values):
            x_new[:, site] = value
            outputs.append(self._model.output(x_new))
        z_v = torch.stack(outputs, dim=1)  # [W, n_values]
        values = draw(ensemble.log_weight(z_v.double()), stream.uniform(len(x_new)))  # [W]
        x_new[:, site] = values
        return State(x_new, pick(z_v, values)), Info(torch.ones_like(values, dtype=torch.bool))


# The proof: tests/kernels/test_heat_bath.py.
MODEL = CoupledModel()  # 3 sites of 4 values: the transition matrix has 64 rows
ENSEMBLES = [*map(Canonical, (-2.0, 0.5, 2.0)), Gaussian()]


def check(make, ensemble):
    """Assert that each site's move is exact, and that all sites' together go everywhere."""
    kernel, together = make(HeatBathTable(), MODEL, 64), 0.0
    for site in range(MODEL.n_sites):
        draws, choices = [Draw(MODEL.n_values, value_at(site))], [(site + 0.5) / MODEL.n_sites]
        together += check_exact(kernel, MODEL, ensemble, draws, choices, irreducible=False)
    check_matrix(together / MODEL.n_sites, distribution(MODEL, ensemble))
    check_alone(kernel, MODEL, ensemble, 1, choices)


@pytest.mark.parametrize("ensemble", ENSEMBLES)
def test_transition_matrix_is_exact(ensemble):
    check(kernels.build, ensemble)


class SquaredWeights(HeatBath):
    """A wrong variant: values are drawn by the square of the ensemble's weights."""

    def step(self, state, ensemble, stream):
        squared = SimpleNamespace(log_weight=lambda z: 2 * ensemble.log_weight(z))
        return super().step(state, squared, stream)


@pytest.mark.parametrize("ensemble", ENSEMBLES)
def test_a_wrong_variant_fails(ensemble):
    with pytest.raises(AssertionError, match=r"invariant|balance"):
        check(SquaredWeights, ensemble)
