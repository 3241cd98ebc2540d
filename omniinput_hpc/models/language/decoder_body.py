"""The two parts of a Hugging Face decoder: its body, and all that follows its last hidden state."""

from __future__ import annotations

import copy
import inspect
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import nn
from transformers.modeling_outputs import BaseModelOutputWithPastAndCrossAttentions

from omniinput_hpc.models.language.packed import Linear
from omniinput_hpc.models.language.prefix_cache import cache_argument


class UnsupportedDecoder(Exception):
    """The model cannot be evaluated in pieces; the text says why."""


class GivenOutput(BaseModelOutputWithPastAndCrossAttentions):
    """A body's output that holds only hidden states; whatever else a model reads from it is None.

    Mixtures of experts read the choices of their routers, for a loss that is not asked for.
    """

    def __getattr__(self, name: str) -> None:
        if name.startswith("__"):
            raise AttributeError(name)


class GivenHiddenStates(nn.Module):
    """Replace a decoder's body: return the hidden states that are passed in."""

    def forward(self, *args: Any, inputs_embeds: torch.Tensor, **kwargs: Any) -> GivenOutput:
        """Return `inputs_embeds` as a decoder's output."""
        return GivenOutput(last_hidden_state=inputs_embeds)


class FullHead:
    """Everything that a model does to hidden states after its body, such as scaling and capping."""

    def __init__(self, lm: Any, body: nn.Module) -> None:
        path = next(name for name, module in lm.named_modules() if module is body)
        self._lm = parent = copy.copy(lm)  # the weights are shared
        *outer, last = path.split(".")
        for name in outer:
            inner = copy.copy(parent._modules[name])
            parent._modules = {**parent._modules, name: inner}
            parent = inner
        parent._modules = {**parent._modules, last: GivenHiddenStates()}

    def __call__(self, hidden: torch.Tensor) -> torch.Tensor:
        """Return logits, [..., V], of [..., E]."""
        flat = hidden if hidden.dim() == 3 else hidden[None]
        logits: torch.Tensor = self._lm(inputs_embeds=flat, use_cache=False).logits
        return logits.view(*hidden.shape[:-1], -1)


class BodyAndHead:
    """What every decoder of transformers' models has: a body, and a head that can be replaced.

    Parameters
    ----------
    lm : a Hugging Face decoder
    special : tokens that the inputs of the trial hold

    Attributes
    ----------
    body : gives the last hidden state
    head : returns the logits, [..., V], of hidden states [..., E]
    n_vocab : V
    n_single_tokens : how many tokens a trial appends one by one, as draws do
    """

    walker_dim = 1
    n_single_tokens = 0

    def __init__(self, lm: Any, special: Sequence[int] = ()) -> None:
        self.body, self.special = body_of(lm), special
        self.head: Callable[[torch.Tensor], torch.Tensor] = lm.get_output_embeddings()
        self.n_vocab = int(lm.get_output_embeddings().weight.shape[0])

    @property
    def packed_bytes(self) -> int:
        """Memory of the head's packed weights; see `Decoder`."""
        return self.head.n_bytes if isinstance(self.head, Linear) else 0


def body_of(lm: Any) -> Any:
    """Return the part of a model that takes a cache and gives hidden states.

    It is transformers' `base_model`, unless that is the model itself (Llama 4) or a wrapper (BART).
    """
    parts = (lm.base_model, lm.get_decoder(), *lm.children())
    inner = (part for part in parts if part is not None and part is not lm)
    return next(filter(takes_a_cache, inner), lm.base_model)


def takes_a_cache(module: nn.Module) -> bool:
    """Return whether a module has an argument for what it keeps of earlier positions."""
    return cache_argument(module) in inspect.signature(module.forward).parameters
