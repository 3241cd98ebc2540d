"""``[kernel]``: one table a kernel, told apart by ``name``."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field

from omniinput_hpc.config.table import Table, WholePositive

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


class MetropolisPart(Metropolis):
    """A ``[[kernel.parts]]`` with ``name = "metropolis"``."""

    weight: Weight = 1.0


def named(table: Any) -> Any:
    """Return a kernel's table with the name that it has where none is given."""
    return {"name": "metropolis", **table} if isinstance(table, dict) else table


Part = MetropolisPart


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


Kernel = Annotated[Metropolis | Mixture, Field(discriminator="name")]
