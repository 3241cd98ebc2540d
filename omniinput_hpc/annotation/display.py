"""Display inputs to people: as text or as pictures, without torch if possible."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Protocol

from omniinput_hpc.annotation.png import data_uri
from omniinput_hpc.config import Config
from omniinput_hpc.estimators import FloatArray
from omniinput_hpc.estimators.run_data import RunData
from omniinput_hpc.models import table
from omniinput_hpc.models.display import Display, Values, values_as_text

__all__ = ["DescribedRun", "Display", "shown_of", "values_as_text"]


class DescribedRun(Protocol):
    """A run file, as far as people see of it (`runfile.reader.RunReader`)."""

    path: Path
    config: Config
    fingerprint: str
    n_values: int
    n_sites: int
    walkers: int
    edges: FloatArray
    rounds: int
    rounds_planned: int

    @property
    def created(self) -> str:
        """When the run was started (ISO 8601); "" if unknown."""

    @property
    def data(self) -> RunData:
        """The run as estimators read it."""


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
