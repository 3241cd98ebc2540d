"""Base class and common types of the tables of the input file."""

from __future__ import annotations

from typing import Annotated, Any, get_args

from pydantic import BaseModel, ConfigDict, Field

MAX_SITES = 1 << 22
"""Largest number of sites of an input."""
WholePositive = Annotated[int, Field(ge=1, le=2**31 - 1)]
Finite = Annotated[float, Field(allow_inf_nan=False)]
Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
NotNegative = Annotated[float, Field(ge=0, allow_inf_nan=False)]
Range = Annotated[list[Finite], Field(min_length=2, max_length=2)]


class Table(BaseModel):
    """A table of the input file: unknown keys are errors, and values keep their TOML type."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


def tag_of(table: type[BaseModel]) -> tuple[str, str]:
    """Return the key that names a table's kind, and its value; two empty texts if there is none."""
    for key in ("kind", "name"):
        names = get_args(table.model_fields[key].annotation) if key in table.model_fields else ()
        if names:
            return key, str(names[0])
    return "", ""


def tables_in(annotation: Any) -> list[type[BaseModel]]:
    """Return the tables that a type annotation contains."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return [annotation]
    return [table for part in get_args(annotation) for table in tables_in(part)]
