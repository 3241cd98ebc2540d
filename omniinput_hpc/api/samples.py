"""Recorded inputs of a `Run`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from omniinput_hpc.annotation.display import shown_of
from omniinput_hpc.errors import UserError
from omniinput_hpc.estimators import FloatArray, IntArray
from omniinput_hpc.results.result import Result
from omniinput_hpc.results.tables import Columns


@dataclass(frozen=True, repr=False)
class Samples(Result):
    """Recorded inputs, one per row. They are samples of their rungs, not of all inputs.

    Attributes
    ----------
    x : integers [n, D], the values of each input
    z : float64 [n], their outputs
    round, rung : int64 [n], of the recording
    beta : float64 [n], of that rung
    log_weight : float64 [n], up to one constant; weighted by exp(log_weight), the samples
        represent all inputs equally, or as the run's law weighs them
    """

    TITLE: ClassVar = "recorded inputs of"

    x: NDArray[np.integer]
    z: FloatArray
    round: IntArray
    rung: IntArray
    beta: FloatArray
    log_weight: FloatArray

    @property
    def title(self) -> str:
        """What this is, and how many."""
        return f"{len(self.z):,} {super().title}"

    @property
    def texts(self) -> list[str]:
        """Each input as text, without a prefix that all share.

        Without a tokenizer, token values are shown. Raises a `UserError` if inputs are pictures.
        """
        how = shown_of(self.runs[0].config)
        if how.kind != "text":
            raise UserError("these inputs are pictures, not texts: use x")
        return [str(text) for text in how.show(self.x.astype(np.int64))]

    def lines(self) -> list[str]:
        """Return the source."""
        return [self.source]

    def columns(self) -> Columns:
        """Return all arrays; x is a column of arrays."""
        return {
            "round": self.round, "rung": self.rung, "beta": self.beta, "z": self.z,
            "log_weight": self.log_weight, "x": self.x,
        }  # fmt: skip
