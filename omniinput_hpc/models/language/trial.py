"""Try a model out before a run: whether it evaluates inputs, and up to which length.

A trial is needed because each architecture's settings write the number of positions differently; it
may include an offset (RoBERTa) or mean nothing (relative positions).
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from omniinput_hpc.errors import UserError
from omniinput_hpc.text import first_line

log = logging.getLogger("omniinput_hpc")

Around = tuple[Sequence[int], Sequence[int]]
"""Fixed tokens before and after the others."""


def check_length(
    lm: Any, length: int, where: str, around: Around = ((), ()), n_before: int = 0
) -> None:
    """Raise a `UserError` if a model cannot evaluate inputs of `length` tokens.

    `around` holds the first and the last tokens, if these are fixed; a prefix of `n_before` tokens
    precedes the input.
    """
    n = n_before + length
    longest = longest_within(lm, n, around)
    if longest == n:
        _note_positions(lm, n, where)
        return
    if not longest:
        error = _error_of(lm, n, around)
        reason = "" if error is None else f": {reason_of(error)}"
        raise UserError(f"{where}: cannot evaluate {n} tokens{reason}")
    prefix = f" with its prefix of {n_before} tokens" if n_before else ""
    raise UserError(f"model.length = {length}{prefix} is beyond the {longest} positions of {where}")


def longest_within(lm: Any, n: int, around: Around = ((), ())) -> int:
    """Return the largest number of tokens, up to n, that a model can evaluate; 0 if none."""
    if _error_of(lm, n, around) is None:
        return n
    works, fails = sum(map(len, around)) + 1, n
    if works >= fails or _error_of(lm, works, around) is not None:
        return 0
    while fails - works > 1:
        middle = (works + fails) // 2
        if _error_of(lm, middle, around) is None:
            works = middle
        else:
            fails = middle
    return works


def check_causal(lm: Any, where: str) -> None:
    """Raise a `UserError` if a model's predictions depend on the tokens that it predicts.

    Encoders with a language-modeling head do so (BERT without `is_decoder`): what they give is not
    the probability of a token given those before it.
    """
    n_vocab = int(lm.get_output_embeddings().weight.shape[0])
    tokens = torch.arange(2, device=lm.device)[None]
    other = tokens.clone()
    other[:, -1] = (tokens[:, -1] + 1) % n_vocab  # another last token
    try:
        with torch.no_grad():
            both = [lm(input_ids=x, use_cache=False).logits for x in (tokens, other)]
    except torch.OutOfMemoryError:
        raise _too_little_memory(lm, 2) from None
    except Exception as error:  # a model's own code may raise anything
        raise UserError(f"{where}: cannot evaluate two tokens: {reason_of(error)}") from None
    ahead = [logits[0, :-1].float() for logits in both]
    rounding = 1e-4 if lm.dtype == torch.float32 else 0.1
    tolerance = rounding * (1 + float(ahead[0].abs().max()))
    if float((ahead[0] - ahead[1]).abs().max()) > tolerance:
        raise UserError(
            f"{where}: its predictions depend on later tokens, so this "
            f"{type(lm).__name__} is not a causal language model (an encoder such as BERT needs "
            "is_decoder = true in its config.json, and weights that were trained this way)"
        )


def reason_of(error: Exception) -> str:
    """Return the message of an error of transformers or of a model, in one line."""
    plain = isinstance(error, (OSError, ValueError, RuntimeError))
    return first_line(error) if plain else f"{type(error).__name__}: {first_line(error)}"


class CheckedLookups(TorchDispatchMode):
    """Raise an IndexError if a row that a table lacks is looked up.

    On a GPU such a lookup would make the device unusable for the whole process. Only for trials: it
    synchronizes with the device.
    """

    def __torch_dispatch__(
        self,
        func: Any,
        types: Any,
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        """Check the rows that an operation looks up, then run it."""
        lookup = _LOOKUPS.get(func.overloadpacket)
        lowest = -1 if func.overloadpacket is torch.ops.aten.index else 0  # -1 is the last row
        for rows, indices in lookup(*args) if lookup is not None else ():
            first = lowest * rows
            if indices.numel() and not first <= int(indices.min()) <= int(indices.max()) < rows:
                raise IndexError(f"row {int(indices.max())} of a table with {rows} rows")
        return func(*args, **(kwargs or {}))


Lookups = list[tuple[int, torch.Tensor]]


def _of_embedding(table: torch.Tensor, indices: torch.Tensor, *_: Any) -> Lookups:
    return [(table.shape[0], indices)]


def _of_dimension(table: torch.Tensor, dim: int, indices: torch.Tensor, *_: Any) -> Lookups:
    return [(table.shape[dim], indices)] if table.dim() else []


def _of_indices(table: torch.Tensor, indices: Sequence[torch.Tensor | None], *_: Any) -> Lookups:
    numbers = zip(table.shape, indices, strict=False)
    if any(i is not None and i.dtype in (torch.bool, torch.uint8) for i in indices):
        return []  # a mask, which takes several dimensions
    return [(rows, i) for rows, i in numbers if i is not None]


_LOOKUPS: dict[Any, Callable[..., Lookups]] = {
    torch.ops.aten.embedding: _of_embedding,
    torch.ops.aten.index_select: _of_dimension,
    torch.ops.aten.gather: _of_dimension,
    torch.ops.aten.index: _of_indices,
}


def _error_of(lm: Any, n: int, around: Around) -> Exception | None:
    """Return the error that a model raises for an input of n tokens; None if it raises none."""
    before, after = around
    filler = [_ordinary_token(lm)] * (n - len(before) - len(after))
    tokens = torch.tensor([[*before, *filler, *after]], device=lm.device)
    careful = CheckedLookups() if lm.device.type == "cuda" else contextlib.nullcontext()
    try:
        with torch.no_grad(), careful:
            lm(input_ids=tokens, attention_mask=torch.ones_like(tokens))
    except torch.OutOfMemoryError:
        raise _too_little_memory(lm, n) from None
    except Exception as error:  # a model's own code may raise anything
        return error
    return None


def _too_little_memory(lm: Any, n: int) -> UserError:
    return UserError(
        f"evaluating one input of {n} tokens does not fit on {lm.device} beside the model; fewer "
        'ranks per GPU, model.dtype = "bfloat16", or a smaller model.length may help'
    )


def _ordinary_token(lm: Any) -> int:
    """Return a token without a role in config.json: in some models padding takes no position."""
    settings = lm.config.get_text_config()
    roles = [getattr(settings, f"{role}_token_id", None) for role in ("pad", "bos", "eos", "sep")]
    flat = {i for role in roles for i in (role if isinstance(role, list) else [role])}
    return next(i for i in range(len(flat) + 1) if i not in flat)


def _note_positions(lm: Any, n: int, where: str) -> None:
    """Log if inputs are longer than config.json allows, although the model evaluates them."""
    longest = getattr(lm.config.get_text_config(decoder=True), "max_position_embeddings", None)
    if type(longest) is int and 0 < longest < n:
        log.info(
            "%s: inputs have %d tokens, but max_position_embeddings of config.json is %d: the "
            "model evaluates them, though it was probably not trained on inputs this long",
            where, n, longest,
        )  # fmt: skip
