"""``[sampler]`` and ``[ladder]``: the method, the lengths of a round, the betas."""

from __future__ import annotations

from typing import Annotated, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, model_validator

from omniinput_hpc.config.table import Finite, Table, WholePositive


class Sampler(Table):
    """``[sampler]``: walkers per rung, and the lengths of a round."""

    method: Literal["parallel-tempering"] = "parallel-tempering"
    walkers: WholePositive
    steps: WholePositive
    exchanges: WholePositive

    @property
    def moves_per_round(self) -> int:
        """Kernel moves of every walker in a round."""
        return self.steps * self.exchanges


class Ladder(Table):
    """``[ladder]``: the betas, listed, or spaced between two ends."""

    betas: Annotated[list[Finite], Field(min_length=1)] | None = None
    lowest: Finite | None = None
    highest: Finite | None = None
    rungs: Annotated[int, Field(ge=2)] | None = None
    spacing: Literal["linear", "geometric"] | None = None
    first: Annotated[float, Field(gt=0, allow_inf_nan=False)] | None = None

    @model_validator(mode="after")
    def _one_way_to_say_it(self) -> Ladder:
        spaced = {k: getattr(self, k) for k in ("lowest", "highest", "rungs", "spacing")}
        given = [key for key, value in spaced.items() if value is not None]
        if self.betas is not None:
            extra = given + (["first"] if self.first is not None else [])
            if extra:
                raise ValueError(f"give either betas or {', '.join(extra)}, not both")
        elif len(given) < len(spaced):
            missing = [key for key in spaced if key not in given]
            raise ValueError(
                f"give betas, or all of {', '.join(spaced)}: missing {', '.join(missing)}"
            )
        beta_k = self._spaced()
        if not np.all(np.diff(beta_k) > 0):
            raise ValueError(
                "expected betas in strictly ascending order, found "
                + ", ".join(f"{beta:g}" for beta in beta_k)
            )
        return self

    def _spaced(self) -> NDArray[np.float64]:
        if self.betas is not None:
            return np.array(self.betas, dtype=np.float64)
        assert self.lowest is not None and self.highest is not None and self.rungs is not None
        if self.lowest >= self.highest:
            raise ValueError(f"lowest = {self.lowest:g} must be below highest = {self.highest:g}")
        if self.spacing == "linear":
            if self.first is not None:
                raise ValueError('first belongs to spacing = "geometric"')
            return np.linspace(self.lowest, self.highest, self.rungs)
        if self.lowest < 0:
            raise ValueError("geometric spacing wants lowest >= 0; list the betas instead")
        if self.lowest > 0:
            if self.first is not None:
                raise ValueError("first is for lowest = 0 only")
            return np.geomspace(self.lowest, self.highest, self.rungs)
        if self.first is None or self.first >= self.highest or self.rungs < 3:
            raise ValueError(
                "geometric spacing from 0 wants at least 3 rungs and first, the smallest "
                "positive beta, below highest"
            )
        return np.concatenate([[0.0], np.geomspace(self.first, self.highest, self.rungs - 1)])

    @property
    def beta_k(self) -> NDArray[np.float64]:
        """The betas, ascending, float64 [K]."""
        return self._spaced()
