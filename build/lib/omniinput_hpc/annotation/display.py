"""What a person sees of an input: text or a picture, without torch where the files allow it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from omniinput_hpc.annotation.png import data_uri
from omniinput_hpc.models import table
from omniinput_hpc.models.display import Display, Values, values_as_text

__all__ = ["Display", "shown_of", "values_as_text"]


def shown_of(config: dict[str, Any]) -> Display:
    """Return how the inputs of a run are shown, from its parsed input file.

    Its `show` gives texts, or pictures as data URIs. A model of kind "python" that has a ``render``
    is built, which may import torch.

    Raises
    ------
    UserError
        The model's kind is not known, or its tokenizer or its own ``render`` is not there.
    """
    how = table.display(config)

    def show(x_nd: Values) -> list[str]:
        shown = how.show(x_nd)
        return list(shown) if how.kind == "text" else [data_uri(image) for image in shown]

    return replace(how, show=show)
