"""The gradient at a model's token embeddings, while the model is given the tokens.

Some models give other outputs for embeddings than for tokens: they detect padding, look rows up in
further tables, or do not accept embeddings. Therefore a hook in the model's own forward pass
replaces the output of the embedding layer by a copy that is a leaf of autograd.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import nn

from omniinput_hpc.models.language.foreign_code import ForeignError, as_close, foreign_code

NOT_BY_IT = "its input embedding is not applied to exactly its tokens"


class EmbeddingLeaf:
    """A context in which a model's token embeddings become leaves of autograd."""

    def __init__(self, lm: Any) -> None:
        self._layer: nn.Module = lm.get_input_embeddings()
        self._leaves: list[torch.Tensor] = []

    def __enter__(self) -> EmbeddingLeaf:
        """Begin to replace the layer's output."""
        self._hook = self._layer.register_forward_hook(self._replace)
        return self

    def __exit__(self, *_: object) -> None:
        """Restore the layer."""
        self._hook.remove()

    def _replace(self, layer: nn.Module, inputs: Any, output: torch.Tensor) -> torch.Tensor:
        leaf = output.detach().requires_grad_()
        self._leaves.append(leaf)
        return leaf.clone()  # some models change it in place, which a leaf forbids

    def gradient(self, of: torch.Tensor, slope: torch.Tensor | None = None) -> torch.Tensor:
        """Return the gradient of a number, or of slope . of, at the embeddings [W, T, E]."""
        if not self._leaves:
            raise ForeignError(NOT_BY_IT)
        with foreign_code():
            parts = torch.autograd.grad(of, self._leaves, slope, allow_unused=True)
        if any(part is None for part in parts):
            raise ForeignError(NOT_BY_IT)
        return torch.cat(parts)


class Lookups:
    """A context that records the tables in which a model looks its tokens up.

    The gradient is complete if `problem` finds that the input embedding is the only one.
    """

    def __init__(self, lm: Any) -> None:
        self._layer: nn.Module = lm.get_input_embeddings()
        tables = {m: name for name, m in lm.named_modules() if isinstance(m, nn.Embedding)}
        self._names = {**tables, self._layer: tables.get(self._layer, "the input embedding")}
        self._seen: list[tuple[nn.Module, Any]] = []

    def __enter__(self) -> Lookups:
        """Begin to record."""
        self._hooks = [m.register_forward_pre_hook(self._see) for m in self._names]
        return self

    def __exit__(self, *_: object) -> None:
        """Stop recording."""
        for hook in self._hooks:
            hook.remove()

    def _see(self, layer: nn.Module, inputs: tuple[Any, ...]) -> None:
        self._seen.append((layer, inputs[0] if inputs else None))

    def problem(self, tokens: torch.Tensor) -> str:
        """Return why the gradient is not that of tokens, int64 [W, T]; "" if it is."""
        own = [ids for layer, ids in self._seen if layer is self._layer]
        if not _together_are(own, tokens):
            return NOT_BY_IT
        for layer, ids in self._seen:
            if layer is not self._layer and _follows(ids, tokens):
                return f"it looks up its tokens in a second table ({self._names[layer]})"
        return ""


def _together_are(ids: list[Any], tokens: torch.Tensor) -> bool:
    """Return whether the ids looked up, in one or more parts of the batch, are the tokens."""
    like = [isinstance(some, torch.Tensor) and some.shape[1:] == tokens.shape[1:] for some in ids]
    return bool(ids) and all(like) and torch.equal(torch.cat(ids), tokens)


def _follows(ids: Any, tokens: torch.Tensor) -> bool:
    """Return whether the ids looked up are the tokens, or the tokens shifted by one position."""
    if not isinstance(ids, torch.Tensor) or ids.shape != tokens.shape:
        return False
    return (
        torch.equal(ids, tokens)
        or torch.equal(ids[:, 1:], tokens[:, :-1])
        or torch.equal(ids[:, :-1], tokens[:, 1:])
    )


def table_of(lm: Any, values: torch.Tensor) -> torch.Tensor:
    """Return the embeddings of tokens, float32 [n, E], as the model's layer gives them (scaled)."""
    with torch.no_grad():
        # `forward` bypasses hooks, which should see only lookups of inputs
        table: torch.Tensor = lm.get_input_embeddings().forward(values[None])[0]
    return table.float()


def gradient_problem(
    model: Any,
    trial: Iterable[torch.Tensor],
    tokens_of: Callable[[torch.Tensor], torch.Tensor],
) -> str:
    """Return why a model has no gradient; "" if it has one.

    Parameters
    ----------
    model : with `lm`, `output`, `output_and_gradient` and its factors (see `models.protocol`)
    trial : inputs that together hold every special token, int64 [W, D]
    tokens_of : maps them to the tokens that the model embeds, int64 [W, T]
    """
    try:
        for x in trial:
            with Lookups(model.lm) as lookups:
                z, g = model.output_and_gradient(x)
            problem = lookups.problem(tokens_of(x))
            if problem:
                return problem
            if not bool(g.isfinite().all()):
                return "the gradient is not finite everywhere"
            found = [z] if model.embedding is None else [z, model.output_and_factors(x)[0]]
            if not all(as_close(one, model.output(x), model.lm.dtype) for one in found):
                return "z differs if the gradient is computed with it"
    except ForeignError as error:
        if str(error) == NOT_BY_IT:
            return NOT_BY_IT
        return f"the model's own code cannot compute the gradient ({error})"
    return ""
