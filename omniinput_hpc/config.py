"""The input file as types: every table and key that a run may have.

Reading, checking and the messages are in `input_file`; this module only says what is allowed.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

WholePositive = Annotated[int, Field(ge=1)]
Finite = Annotated[float, Field(allow_inf_nan=False)]


class Table(BaseModel):
    """A table of the input file: unknown keys are errors, and values keep their TOML type."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


class Run(Table):
    """``[run]``: where, how long, on what."""

    output: Annotated[str, Field(min_length=1)]
    seed: Annotated[int, Field(ge=0, le=2**32 - 1)]
    rounds: Annotated[int, Field(ge=1, le=2**31 - 1)]
    burn_in: Annotated[int, Field(ge=0, le=2**31 - 1)] = 0
    threads: WholePositive = 1
    device: Literal["auto", "cpu", "cuda"] = "auto"
    writer: Literal["auto", "mpio", "gather"] = "auto"

    @field_validator("output")
    @classmethod
    def _is_hdf5(cls, value: str) -> str:
        if not value.endswith((".h5", ".hdf5")):
            raise ValueError('expected a file name that ends with ".h5"')
        return value


class CausalLm(Table):
    """``[model] kind = "causal-lm"``: a Hugging Face decoder in a local folder."""

    kind: Literal["causal-lm"]
    path: Annotated[str, Field(min_length=1)]
    length: Annotated[int, Field(ge=2)]


class PythonModel(Table):
    """``[model] kind = "python"``: an object made by the user's own ``module:function``."""

    kind: Literal["python"]
    factory: str
    options: dict[str, Any] = Field(default_factory=dict)

    @field_validator("factory")
    @classmethod
    def _names_a_function(cls, value: str) -> str:
        module, colon, function = value.partition(":")
        if not (
            colon and function.isidentifier() and all(map(str.isidentifier, module.split(".")))
        ):
            raise ValueError('expected "module:function"')
        return value


Model = Annotated[CausalLm | PythonModel, Field(discriminator="kind")]


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


class Metropolis(Table):
    """``[kernel] name = "metropolis"``: uniform values at ``sites`` uniformly chosen sites."""

    name: Literal["metropolis"] = "metropolis"
    sites: WholePositive = 1


class Bins(Table):
    """``[bins]``: the histogram of z, half-open bins of equal width, the last one closed."""

    lower: Finite
    upper: Finite
    width: Annotated[float, Field(gt=0, allow_inf_nan=False)]

    @model_validator(mode="after")
    def _fits(self) -> Bins:
        if self.lower >= self.upper:
            raise ValueError(f"lower = {self.lower:g} must be below upper = {self.upper:g}")
        bins = (self.upper - self.lower) / self.width
        if bins > 10_000_000:
            raise ValueError(f"{bins:.3g} bins are too many; widen width")
        if round(bins) < 1 or abs(bins - round(bins)) > 1e-6 * max(1.0, bins):
            raise ValueError(
                f"the range from {self.lower:g} to {self.upper:g} is no whole number of bins "
                f"of width {self.width:g}"
            )
        return self

    @property
    def edges(self) -> NDArray[np.float64]:
        """Bin edges, float64 [B + 1]: lower + i * width."""
        n_bins = round((self.upper - self.lower) / self.width)
        return np.asarray(self.lower + np.arange(n_bins + 1) * self.width, dtype=np.float64)


class Samples(Table):
    """``[samples]``: how often a walker's configuration is recorded."""

    every: WholePositive


class Config(Table):
    """The whole input file."""

    run: Run
    model: Model
    sampler: Sampler
    ladder: Ladder
    kernel: Metropolis = Metropolis()
    bins: Bins
    samples: Samples

    @model_validator(mode="after")
    def _samples_fit_a_round(self) -> Config:
        moves = self.sampler.moves_per_round
        if self.samples.every > moves:
            raise ValueError(
                f"samples.every = {self.samples.every} is more than the {moves} moves of a round "
                "(sampler.steps * sampler.exchanges), so that nothing would be recorded"
            )
        return self

    @property
    def samples_per_round(self) -> int:
        """Recorded samples of a rung in a round: S = W * (steps * exchanges // every)."""
        return self.sampler.walkers * (self.sampler.moves_per_round // self.samples.every)
