"""What all tables of the input file share."""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

WholePositive = Annotated[int, Field(ge=1)]
Finite = Annotated[float, Field(allow_inf_nan=False)]


class Table(BaseModel):
    """A table of the input file: unknown keys are errors, and values keep their TOML type."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)
