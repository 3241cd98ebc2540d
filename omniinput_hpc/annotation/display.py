"""What a person sees of an input: text or a picture, without torch where the files allow it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from omniinput_hpc.annotation.png import data_uri
from omniinput_hpc.annotation.tasks import Kind
from omniinput_hpc.models import table
from omniinput_hpc.models.display import Values, values_as_text

__all__ = ["Shown", "shown_of", "values_as_text"]


@dataclass(frozen=True)
class Shown:
    """How the inputs of a model are shown.

    Attributes
    ----------
    kind : "text" or "image"
    show : from values, int64 [n, D], to texts or data URIs
    prefix : the text that all inputs begin with, None without one
    note : how it was done, for the user
    """

    kind: Kind
    show: Callable[[Values], list[str]]
    prefix: str | None
    note: str


def shown_of(config: dict[str, Any]) -> Shown:
    """Return how the inputs of a run are shown, from its parsed input file.

    A model of kind "python" that has a ``render`` is built, which may import torch.

    Raises
    ------
    UserError
        The model's kind is not known, or its tokenizer or its own ``render`` is not there.
    """
    how = table.display(config)

    def show(x_nd: Values) -> list[str]:
        shown = how.show(x_nd)
        return list(shown) if how.kind == "text" else [data_uri(image) for image in shown]

    return Shown(how.kind, show, how.prefix, how.note)
