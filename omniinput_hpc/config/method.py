"""``[sampler]``, ``[ladder]`` and ``[wang_landau]``: the method, a round's lengths, the rungs."""

from __future__ import annotations

from itertools import pairwise
from typing import Annotated, Any, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, field_validator, model_validator

from omniinput_hpc.config.table import Finite, Table, WholePositive
from omniinput_hpc.errors import UserError


class Sampler(Table):
    """``[sampler]``: walkers per rung, and the lengths of a round."""

    method: Literal["parallel-tempering", "wang-landau", "ancestral"] = "parallel-tempering"
    walkers: int | Literal["auto"]
    steps: WholePositive
    exchanges: WholePositive

    @field_validator("walkers", mode="before")
    @classmethod
    def _whole_or_auto(cls, value: Any) -> Any:
        whole = isinstance(value, int) and not isinstance(value, bool)
        if value != "auto" and not (whole and value >= 1):
            raise ValueError(f'expected a whole number of at least 1, or "auto", found {value!r}')
        return value

    @property
    def n_walkers(self) -> int:
        """W.

        Raises
        ------
        UserError
            It is "auto", and nobody has looked for the number yet.
        """
        if self.walkers == "auto":
            raise UserError('sampler.walkers = "auto" is no number yet; a run finds it')
        return self.walkers

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
    anchors: bool = True
    tune: bool = False
    kappa: list[Annotated[float, Field(ge=0, allow_inf_nan=False)]] | None = None
    z0: list[Finite] | None = None

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
        self._check_gaussian(len(beta_k))
        if not np.all(np.diff(beta_k) > 0) and self.kappa is None:
            raise ValueError(
                "expected betas in strictly ascending order, found "
                + ", ".join(f"{beta:g}" for beta in beta_k)
            )
        return self

    def _check_gaussian(self, n_rungs: int) -> None:
        for name, given in (("kappa", self.kappa), ("z0", self.z0)):
            if (given is None) != (self.kappa is None and self.z0 is None):
                raise ValueError("a Gaussian ensemble wants both kappa and z0, a list each")
            if given is not None and len(given) != n_rungs:
                raise ValueError(f"{name} has {len(given)} entries for {n_rungs} rungs")
        if self.kappa is not None and self.tune:
            raise ValueError("tune = true moves betas of canonical rungs only: remove kappa and z0")

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


Window = Annotated[list[Finite], Field(min_length=2, max_length=2)]


class WangLandau(Table):
    """``[wang_landau]``: learning S(z) in burn-in, one rung a window of z."""

    flatness: Annotated[float, Field(gt=0, lt=1)] = 0.8
    ln_f_first: Annotated[float, Field(gt=0, le=10)] = 1.0
    ln_f_last: Annotated[float, Field(gt=0, le=1)] = 1e-4
    schedule: Literal["1/t", "halving"] = "1/t"
    windows: list[Window] | WholePositive = 1
    overlap: Annotated[float, Field(gt=0, lt=1)] = 0.5
    proposal: Literal["slope", "range", "directional"] = "slope"
    proposal_beta: Window | None = None

    @model_validator(mode="after")
    def _fits(self) -> WangLandau:
        if self.ln_f_last > self.ln_f_first:
            raise ValueError(
                f"ln_f_last = {self.ln_f_last:g} is above ln_f_first = {self.ln_f_first:g}"
            )
        if (self.proposal == "slope") != (self.proposal_beta is None):
            raise ValueError(
                'proposal_beta = [low, high] belongs to proposal = "range" and "directional", '
                "which want it"
            )
        if self.proposal_beta is not None and self.proposal_beta[0] >= self.proposal_beta[1]:
            raise ValueError("proposal_beta = [low, high] wants low below high")
        if isinstance(self.windows, list):
            self._check_windows(self.windows)
        return self

    @staticmethod
    def _check_windows(windows: list[list[float]]) -> None:
        if not windows:
            raise ValueError("windows is empty; leave it out for one window over all bins")
        for low, high in windows:
            if low >= high:
                raise ValueError(f"windows: [{low:g}, {high:g}] is empty: low must be below high")
        for (low, high), (low_next, high_next) in pairwise(windows):
            if not (low < low_next and high < high_next):
                raise ValueError("windows: expected ascending windows")
            if low_next >= high:
                raise ValueError(
                    f"windows: [{low:g}, {high:g}] and [{low_next:g}, {high_next:g}] do not "
                    "overlap, so that walkers could never exchange; let them share some bins"
                )
