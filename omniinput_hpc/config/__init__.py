"""The input file as types: every table and key that a run may have.

Reading, checking and the messages are in `input_file`; this package only says what is allowed.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, field_validator, model_validator

from omniinput_hpc.config.kernels import Kernel, KernelTable, Metropolis, Mixture, named
from omniinput_hpc.config.models import (
    CausalLm,
    ImageClassifier,
    Model,
    PythonModel,
    SequenceClassifier,
)
from omniinput_hpc.config.sampling import Ladder, Sampler
from omniinput_hpc.config.table import Finite, Table, WholePositive

__all__ = [
    "Bins",
    "CausalLm",
    "Config",
    "ImageClassifier",
    "KernelTable",
    "Ladder",
    "Metropolis",
    "Mixture",
    "PythonModel",
    "Run",
    "Sampler",
    "Samples",
    "SequenceClassifier",
    "Table",
]


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
    kernel: Kernel = Metropolis()
    bins: Bins
    samples: Samples

    @field_validator("kernel", mode="before")
    @classmethod
    def _has_a_name(cls, table: Any) -> Any:
        return named(table)

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
