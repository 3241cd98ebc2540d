"""Display inputs to people: as text or as pictures, without torch if possible."""

from __future__ import annotations

from dataclasses import replace
from typing import Protocol

from omniinput_hpc.annotation.png import data_uri
from omniinput_hpc.config import Config
from omniinput_hpc.estimators.run_data import RunData
from omniinput_hpc.models import table
from omniinput_hpc.models.display import Display, Values, values_as_text

__all__ = ["DescribedRun", "Display", "shown_of", "values_as_text"]


class DescribedRun(RunData, Protocol):
    """A run with its whole input file, for what people see of it."""

    @property
    def config(self) -> Config:
        """The input file."""


def shown_of(config: Config) -> Display:
    """Return how the inputs of a run are displayed.

    `show` of the result returns texts, or pictures as data URIs. A model of kind "python" that has
    a ``render`` is built, which may import torch.

    Raises
    ------
    UserError
        The model's kind is unknown, or its tokenizer or ``render`` is missing.
    """
    how = table.display(config)

    def show(x_nd: Values) -> list[str]:
        shown = how.show(x_nd)
        return list(shown) if how.kind == "text" else [data_uri(image) for image in shown]

    return replace(how, show=show)
