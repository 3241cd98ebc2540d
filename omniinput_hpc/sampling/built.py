"""The result of `build`: a rank's part of a run, before its walkers are placed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from omniinput_hpc import models
from omniinput_hpc.config import Config
from omniinput_hpc.parallel.comm import World
from omniinput_hpc.runfile import layout
from omniinput_hpc.tempering.ensembles import Canonical, Ensemble, Gaussian, Tabulated
from omniinput_hpc.tempering.ladder import Grid

if TYPE_CHECKING:
    from omniinput_hpc.kernels.independent import RowSums
    from omniinput_hpc.kernels.parts.constrained import InputLaw
    from omniinput_hpc.sampling.rung import Rung


class RungsOfRank:
    """Anything that holds this rank's rungs, in the ladder's order."""

    rungs: Sequence[Rung]

    @property
    def held(self) -> range:
        """The indices of this rank's rungs."""
        return range(self.rungs[0].k, self.rungs[-1].k + 1)

    @property
    def written(self) -> range:
        """The indices of the rungs that this rank writes: those whose first block it holds."""
        return self.held if self.rungs[0].block.number == 0 else range(0)


@dataclass(frozen=True)
class Built(RungsOfRank):
    """A rank's part of a run, before its walkers are placed."""

    config: Config
    device: str  # "cpu", "cuda:2"
    model: models.Model
    geometry: layout.Geometry
    rungs: list[Rung]
    rows: RowSums | None = None  # sums of the model's conditional rows, if anchors need them
    without_anchor: str = ""  # why a possible anchor is not used
    law: InputLaw | None = None  # of inputs; None: all weigh the same

    @property
    def model_beta(self) -> float | None:
        """The beta of the model's own distribution; None if it cannot be sampled directly."""
        return self.rungs[0].model_beta

    @property
    def inside(self) -> Mapping[str, Any]:
        """What the run file stores of a constrained space; empty without one."""
        found = getattr(self.law, "automaton", None)
        return {} if found is None else found.attributes()

    def check_is_function(self) -> None:
        """Raise a UserError if the model cannot be sampled; see `first_look.check`."""
        from omniinput_hpc.sampling import first_look

        name, evaluate = name_of(self.config), self.rungs[0].walkers.evaluate
        first_look.check(self.model, evaluate, self.config, self.geometry, self.device, name)

    def probe(self) -> list[float]:
        """Return z at fixed inputs; see `first_look.probe`."""
        from omniinput_hpc.sampling import first_look

        return first_look.probe(self.rungs[0].walkers.evaluate, self.config, self.geometry)

    def marks(self) -> dict[str, Any]:
        """Return what identifies the law and the observables; see `first_look.marks`."""
        from omniinput_hpc.sampling import first_look

        space, observed = models.space_of(self.model), self.rungs[0].observables
        return first_look.marks(self.law, observed, space, self.config, self.geometry, self.device)


def name_of(config: Config) -> str:
    """Return the model's name in messages."""
    model = f"the model ({config.model.kind})"
    return model if config.output is None else f'output.name = "{config.output.name}" of {model}'


def grid_of(world: World, config: Config) -> Grid:
    """Return how the ranks share the rungs and their blocks."""
    sampler = config.sampler
    return Grid(len(config.beta_k), sampler.blocks, world.size, sampler.whole_ladders)


def initial_ensembles(config: Config) -> list[Ensemble]:
    """Return the ensembles of all rungs at the start of the run, in the ladder's order.

    Ensembles that Wang-Landau learns on windows of z come first; all their weights are 1.
    """
    edges = config.bins.edges
    flat = [Tabulated(edges, window, np.zeros(len(edges) + 1)) for window in config.windows]
    if config.ladder is None:
        return [*flat]
    beta_k = config.ladder.beta_k
    kappa_k = config.ladder.kappa or [0.0] * len(beta_k)
    z0_k = config.ladder.z0 or [0.0] * len(beta_k)
    return [
        *flat,
        *(
            Gaussian(float(beta), kappa, z0) if kappa else Canonical(float(beta))
            for beta, kappa, z0 in zip(beta_k, kappa_k, z0_k, strict=True)
        ),
    ]
