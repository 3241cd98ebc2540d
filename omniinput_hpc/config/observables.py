"""``[[observables]]``: what is computed of every recorded sample besides z."""

from __future__ import annotations

import re
from typing import Annotated

from pydantic import AfterValidator, BeforeValidator, Field

from omniinput_hpc.config.table import Table

NAME_FORM = re.compile(r"[A-Za-z0-9][\w.+=-]{0,59}", re.ASCII)
"""Names that also serve in names of files and datasets."""
MAX_OBSERVABLES = 100


def _name(value: str) -> str:
    if not NAME_FORM.fullmatch(value):
        raise ValueError(
            f"{value!r}: expected at most 60 letters, digits and . _ + = -; give anything else as "
            "function"
        )
    return value


class ObservableTable(Table):
    """One of ``[[observables]]``."""

    name: Annotated[str, AfterValidator(_name)] = Field(
        description="The name of its dataset, `observables/NAME`, and what it is unless `function` "
        "is given: one of the [built-in observables](analysis.md#observables)."
    )
    function: str | None = Field(
        None,
        min_length=1,
        description='`"module:function"`, from int array [n, D] to numbers [n], or a built-in one '
        'with its text (`"contains:the"`).',
    )

    @property
    def what(self) -> str:
        """What is computed."""
        return self.name if self.function is None else self.function


def _one_each(tables: object) -> object:
    given = tables if isinstance(tables, list) else []
    names = [one.get("name") for one in given if isinstance(one, dict)]
    twice = sorted({str(name) for name in names if names.count(name) > 1})
    if twice:
        raise ValueError(f"{twice[0]} is there twice; give each a name of its own")
    return tables


Observables = Annotated[
    list[ObservableTable],
    Field(min_length=1, max_length=MAX_OBSERVABLES),
    BeforeValidator(_one_each),
]
