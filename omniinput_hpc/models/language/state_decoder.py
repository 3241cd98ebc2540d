"""Run any Hugging Face decoder by the states that its own cache carries from token to token.

A recurrent state, unlike keys and values, holds no earlier positions: it cannot be cut back to
them. Proposals therefore begin from the state after the fixed tokens in front of every input, with
one pass over the sites up to the first changed one; from there on each token goes on from the last.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import nn
from transformers.cache_utils import Cache

from omniinput_hpc.models.language.decoder_body import (
    BodyAndHead,
    UnsupportedDecoder,
    takes_a_cache,
)
from omniinput_hpc.models.language.foreign_code import foreign_code
from omniinput_hpc.models.language.prefix_cache import cache_argument, reordered


class StateDecoder(BodyAndHead):
    """A `Decoder` whose states are transformers' own cache, of any kind, for one batch at a time.

    What `allocate` returns as keys and values are the tokens themselves.

    Parameters
    ----------
    lm : a Hugging Face decoder
    n_positions : T, of every sequence
    before : int64 [P], the tokens that every sequence begins with
    special : tokens that the inputs of the trial hold
    pieces : whether several tokens may follow a state. Some models ignore the state then: they go
        on by single tokens, and evaluate longer pieces from the first position on.
    numbered : whether the model is given positions; some count them from each piece's begin
    """

    without_graphs = "recurrent states are kept in memory that moves"
    n_single_tokens = 5

    def __init__(
        self,
        lm: Any,
        n_positions: int,
        before: torch.Tensor,
        special: Sequence[int] = (),
        pieces: bool = True,
        numbered: bool = True,
    ) -> None:
        super().__init__(lm, special)
        self._n_positions, self._before, self._pieces = n_positions, before, pieces
        if not takes_a_cache(self.body):
            raise UnsupportedDecoder("it takes no keys and values")
        self._cache_argument = cache_argument(self.body)
        takes_positions = "position_ids" in inspect.signature(self.body.forward).parameters
        self._numbered = numbered and takes_positions
        self._counter = _counter_of(self.body)
        self._kv: torch.Tensor | None = None
        self._end, self._cache = -1, None  # of the sequences in `_kv`
        with foreign_code():
            tokens = torch.zeros((1, n_positions), dtype=torch.int64, device=lm.device)
            self._hidden = self._pass(tokens, 0, None)
            self.state_bytes = sum(t.nbytes for t in _tensors(self._cache))
            self._front = self._state_in_front()
        if not self.state_bytes:
            raise UnsupportedDecoder("it returns no keys, values or states")

    def allocate(self, n_walkers: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Return tokens, int64 [1, W, T], and hidden states [T, W, E]."""
        t, size = self._n_positions, self._hidden.shape[-1]
        tokens = self._before.new_zeros((1, n_walkers, t))
        return tokens, self._hidden.new_zeros((t, n_walkers, size))

    def rewind(self) -> None:
        """Forget the states: the next tokens do not follow the last ones."""
        self._kv, self._cache = None, None

    def run(self, tokens: torch.Tensor, begin: int, kv: torch.Tensor) -> torch.Tensor:
        """Evaluate some positions (see `Decoder.run`)."""
        n, (sequences,) = len(tokens), kv
        end = begin + n
        sequences[:, begin:end] = tokens.T
        follows = self._kv is kv and self._end == begin and (n == 1 or self._pieces)
        first, cache = (begin, self._cache) if follows else self._restart(begin, len(sequences))
        hidden = self._pass(sequences[:, :end], first, cache)
        self._kv, self._end = kv, end
        return hidden[:, -n:].transpose(0, 1)

    def _restart(self, begin: int, n_walkers: int) -> tuple[int, Any]:
        """Return the first position to evaluate, at most `begin`, and the state before it."""
        self.rewind()  # frees the memory
        if self._front is None or begin < len(self._before):
            return 0, None
        rows = self._before.new_zeros(n_walkers)
        return len(self._before), reordered(self._front, rows)

    def _pass(self, tokens: torch.Tensor, first: int, cache: Any) -> torch.Tensor:
        """Evaluate tokens [W, end] from a position on, and keep the states after the last.

        Returns hidden states, [W, end - first, E].
        """
        given = {"input_ids": tokens[:, first:], self._cache_argument: cache, "use_cache": True}
        if self._numbered:
            given["position_ids"] = self._numbers(tokens)[:, first:]
        done = self.body(**given)
        self._cache = getattr(done, self._cache_argument, None)
        hidden: torch.Tensor = done.last_hidden_state
        return hidden

    def _numbers(self, tokens: torch.Tensor) -> torch.Tensor:
        """Return the positions of tokens, int64 [W, end]."""
        if self._counter is not None:
            numbers_of = self._counter.create_position_ids_from_input_ids
            numbers: torch.Tensor = numbers_of(tokens, self._counter.padding_idx)
            return numbers
        return torch.arange(tokens.shape[1], device=tokens.device).expand_as(tokens)

    def _state_in_front(self) -> Any:
        """Return the state of one sequence after `before`; None if proposals begin without one."""
        self._cache = None
        if len(self._before) and self._pieces:
            self._pass(self._before[None], 0, None)
        return self._cache if isinstance(self._cache, Cache) else None


def _counter_of(body: nn.Module) -> Any:
    """Return the module that numbers tokens as RoBERTa does, without padding; None without one."""
    counts = "create_position_ids_from_input_ids"
    return next((module for module in body.modules() if hasattr(module, counts)), None)


def _tensors(held: Any) -> Iterator[torch.Tensor]:
    """Yield all tensors in a cache, or in its layers, dictionaries and lists."""
    if isinstance(held, torch.Tensor):
        yield held
    elif isinstance(held, dict):
        for value in held.values():
            yield from _tensors(value)
    elif isinstance(held, list | tuple):
        for value in held:
            yield from _tensors(value)
    elif hasattr(held, "__dict__"):
        yield from _tensors(vars(held))
