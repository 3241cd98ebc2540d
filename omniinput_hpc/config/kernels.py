"""``[kernel]``: one table a kernel, told apart by ``name``."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field, field_validator

from omniinput_hpc.config.table import Finite, Table, WholePositive

STEP_SIZES = (1e-3, 1e6)
"""Smallest and largest step size of the discrete Langevin proposal."""

Weight = Annotated[float, Field(gt=0, allow_inf_nan=False)]


class KernelTable(Table):
    """What all kernels' tables have, and offer to those who lay out the run file."""

    name: str

    @property
    def part_names(self) -> tuple[str, ...]:
        """Name of each kind of move that is counted on its own."""
        return (self.name,)

    @property
    def n_tuned(self) -> int:
        """How many numbers the kernel tunes in burn-in."""
        return 0


class Metropolis(KernelTable):
    """``[kernel] name = "metropolis"``: uniform values at ``sites`` uniformly chosen sites."""

    name: Literal["metropolis"] = "metropolis"
    sites: WholePositive = 1


class GibbsWithGradients(KernelTable):
    """``[kernel] name = "gibbs-with-gradients"``."""

    name: Literal["gibbs-with-gradients"]


class DiscreteLangevin(KernelTable):
    """``[kernel] name = "discrete-langevin"``: all sites at once."""

    name: Literal["discrete-langevin"]
    ordered: bool = False
    step_size: Annotated[float, Field(ge=STEP_SIZES[0], le=STEP_SIZES[1])] = 1.0
    proposal_beta: Annotated[list[Finite], Field(min_length=2, max_length=2)] | None = None

    @field_validator("proposal_beta")
    @classmethod
    def _is_a_range(cls, value: list[float] | None) -> list[float] | None:
        if value is not None and value[0] > value[1]:
            raise ValueError(f"expected [low, high], found low = {value[0]:g} above {value[1]:g}")
        return value

    @property
    def n_tuned(self) -> int:
        """The step size, and how often it was adapted."""
        return 2


class MetropolisPart(Metropolis):
    """A ``[[kernel.parts]]`` with ``name = "metropolis"``."""

    weight: Weight = 1.0


class GibbsWithGradientsPart(GibbsWithGradients):
    """A ``[[kernel.parts]]`` with ``name = "gibbs-with-gradients"``."""

    weight: Weight = 1.0


class DiscreteLangevinPart(DiscreteLangevin):
    """A ``[[kernel.parts]]`` with ``name = "discrete-langevin"``."""

    weight: Weight = 1.0


def named(table: Any) -> Any:
    """Return a kernel's table with the name that it has where none is given."""
    return {"name": "metropolis", **table} if isinstance(table, dict) else table


Part = Annotated[
    MetropolisPart | GibbsWithGradientsPart | DiscreteLangevinPart, Field(discriminator="name")
]


class Mixture(KernelTable):
    """``[kernel] name = "mixture"``: each move is one of the parts, drawn by weight."""

    name: Literal["mixture"]
    parts: Annotated[list[Part], Field(min_length=1)]

    @property
    def part_names(self) -> tuple[str, ...]:
        """Names of all parts' moves, numbered, in order."""
        return tuple(
            f"{index}:{name}" for index, part in enumerate(self.parts) for name in part.part_names
        )

    @property
    def n_tuned(self) -> int:
        """How many numbers all parts tune together."""
        return sum(part.n_tuned for part in self.parts)


Kernel = Annotated[
    Metropolis | GibbsWithGradients | DiscreteLangevin | Mixture, Field(discriminator="name")
]
