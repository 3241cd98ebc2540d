"""The base class of models with another output, and the texts that some outputs read."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from omniinput_hpc.config import Config
from omniinput_hpc.errors import UserError
from omniinput_hpc.models.language import hf_folder, tokenizer
from omniinput_hpc.models.protocol import Model, offers_of, space_of

Texts = Callable[[torch.Tensor], list[str]]


class SameInputs:
    """A model with the inputs of another one, and an output of its own."""

    def __init__(self, base: Model, *others: Model) -> None:
        self.space = space_of(base)
        self.n_values, self.n_sites = base.n_values, base.n_sites
        self._models = [base, *others]
        self._offers = [offers_of(model) for model in self._models]

    @property
    def render(self) -> Callable[[torch.Tensor], list[Any]] | None:
        """What a person sees of inputs; None if the base does not offer it."""
        return self._offers[0].render

    @property
    def cache_bytes(self) -> int:
        """Memory of the KV caches in bytes; 0 without one."""
        return sum(offers.cache_bytes() for offers in self._offers)

    @property
    def without_graphs(self) -> str:
        """Why a GPU evaluates without CUDA graphs; "" if it uses them, and on a CPU."""
        return next(filter(None, (offers.without_graphs() for offers in self._offers)), "")


class OfBase(SameInputs):
    """The same, whose inputs are weighed and constrained by what `base` says of them.

    z is not a mean of conditional rows, so rows and prefixes are not offered.
    """

    def __init__(self, base: Model, *others: Model) -> None:
        super().__init__(base, *others)
        self.base = base


def texts_of(config: Config, base: Model, key: str) -> Texts:
    """Return the function from inputs to their texts with the prefix.

    Raises a `UserError`, which names `key`, if the model's inputs have no text.
    """
    render = offers_of(base).render
    if config.model.kind == "causal-lm":
        folder = hf_folder.resolve(config.model.path)
        tokenizer.require(tokenizer.read(folder), folder, key)
    elif render is None or not isinstance(
        render(torch.zeros((1, base.n_sites), dtype=torch.int64))[0], str
    ):
        raise UserError(
            f"{key} reads texts, but inputs of model.kind = {config.model.kind!r} have none; "
            "a method render(x) of the model may return them"
        )
    assert render is not None
    return render
