"""``[run]``: the run file, the number of rounds, and the hardware."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, field_validator

from omniinput_hpc.config.paths import PathText
from omniinput_hpc.config.table import Table

Precision = Literal["highest", "tf32"]
"""Precision of matrix products on a GPU."""


class RunTable(Table):
    """``[run]``: the run file, the number of rounds, and the hardware."""

    output: PathText = Field(
        description='Run file, relative to the current directory; ends with ".h5".',
    )
    seed: int = Field(ge=0, le=2**32 - 1, description="Seed of all random numbers.")
    rounds: int = Field(
        ge=1,
        le=2**31 - 1,
        description="Counted rounds. May be raised later.",
    )
    histogram_blocks: int | None = Field(
        None,
        ge=1,
        description="Blocks of rounds with one stored histogram each. Default: one per round, "
        "at most 200. Fewer make the file smaller; errors use up to 16. A resumed run keeps its "
        "rounds per block.",
    )
    burn_in: int = Field(
        0,
        ge=0,
        le=2**31 - 1,
        description="Rounds run first and not counted; all tuning happens in them.",
    )
    threads: int = Field(1, ge=1, le=1024, description="Threads per rank on a CPU.")
    device: Literal["auto", "cpu", "cuda"] = Field(
        "auto",
        description='`"auto"`: a GPU if there is one; refused if torch does not see the host\'s '
        "GPU, or only some ranks have one.",
    )
    precision: Precision = Field(
        "highest",
        description='Of float32 matrix products and convolutions on a GPU. `"tf32"` is faster; '
        "factors keep 10 bits, so z may differ between evaluations as in float16. Refused for "
        "models in half precision.",
    )
    writer: Literal["auto", "mpio", "gather"] = Field(
        "auto",
        description="Who [writes the run file](running.md#who-writes-the-file): all ranks "
        '(`"mpio"`) or rank 0 (`"gather"`).',
    )

    @field_validator("output")
    @classmethod
    def _is_hdf5(cls, value: str) -> str:
        if not value.endswith((".h5", ".hdf5")):
            raise ValueError('expected a file name that ends with ".h5"')
        return value
