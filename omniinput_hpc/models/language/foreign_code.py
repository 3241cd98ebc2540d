"""Try a model's own code before a run: the errors that it raises, and its special tokens.

A model may treat some tokens differently (RoBERTa counts positions without padding), so trials
evaluate inputs that hold all of them.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator, Sequence
from typing import Any

import torch

from omniinput_hpc.errors import UserError
from omniinput_hpc.models.language.tokenizer import Vocabulary
from omniinput_hpc.text import first_line

N_TRIAL_INPUTS = 4
"""Inputs per batch of a trial."""
_NAMES_A_TOKEN = re.compile(r"(_token_ids?|_index|_idx|_id)$")


class ForeignError(Exception):
    """An error that a model's own code raised; the text is its class and its first line."""


@contextlib.contextmanager
def foreign_code() -> Iterator[None]:
    """Turn any error of the model's code in this block into a `ForeignError`.

    Out-of-memory errors are passed on unchanged.
    """
    try:
        yield
    except (torch.OutOfMemoryError, MemoryError, UserError):
        raise
    except Exception as error:  # a model's code may raise anything
        if "allocate memory" in str(error):  # torch has no error class for the host's memory
            raise
        said = first_line(error) if str(error).strip() else "without a message"
        raise ForeignError(f"{type(error).__name__}: {said}") from error


def special_tokens(lm: Any, words: Vocabulary | None) -> list[int]:
    """Return the ids that a model may treat differently, ascending.

    These are the ids named in its settings, the padding of its tables, and the special tokens of
    the folder's vocabulary.
    """
    found = set(words.special) if words is not None else set()
    for config in (lm.config, lm.config.get_text_config()):
        for key, value in config.to_dict().items():
            if _NAMES_A_TOKEN.search(key):
                found.update(value if isinstance(value, list) else [value])
    found.update(getattr(module, "padding_idx", None) for module in lm.modules())
    return sorted(i for i in found if type(i) is int and i >= 0)


def trial_inputs(
    special: Sequence[int], token_ids: torch.Tensor, n_sites: int
) -> list[torch.Tensor]:
    """Return batches of random inputs, int64 [N_TRIAL_INPUTS, n_sites].

    `token_ids` holds the token of each value, int64 [n_values]. In each input of a batch except the
    last, half of the sites hold values of special tokens: the first third of the sites, where every
    special value occurs in at least one input, and some further sites. Values after a special value
    are therefore evaluated in pieces, too. The last input has no special values, if there are
    others. The list is empty on torch's device "meta", which computes nothing.
    """
    device = token_ids.device
    if device.type == "meta":
        return []
    wanted = torch.tensor(special, dtype=torch.int64, device=device)
    special = torch.isin(token_ids, wanted).nonzero()[:, 0].tolist()
    ordinary = sorted(set(range(len(token_ids))) - set(special)) or special
    n_rows, n_first = N_TRIAL_INPUTS - 1, max(1, n_sites // 3)
    n_batches = max(1, -(-len(special) // (n_rows * n_first)))
    random = torch.Generator().manual_seed(1)
    shape = (n_batches, N_TRIAL_INPUTS, n_sites)
    x = torch.tensor(ordinary)[torch.randint(len(ordinary), shape, generator=random)]
    if special:
        order = torch.rand((n_batches, n_rows, n_sites), generator=random)
        order[..., :n_first] -= 1.0
        sites = order.argsort(-1)[..., : max(n_first, n_sites // 2)]
        values = torch.randint(len(special), sites.shape, generator=random)
        n_slots = n_batches * n_rows * n_first
        every = torch.arange(n_slots)[torch.randperm(n_slots, generator=random)] % len(special)
        values[..., :n_first] = every.view(n_batches, n_rows, n_first)
        x[:, :n_rows].scatter_(2, sites, torch.tensor(special)[values])
    return list(x.to(device))


def as_close(found: torch.Tensor, expected: torch.Tensor, dtype: torch.dtype) -> bool:
    """Return whether two evaluations differ by no more than rounding, for weights of this dtype.

    Non-finite numbers are ignored here and checked elsewhere.
    """
    found, expected = (t.float().nan_to_num(0.0, 0.0, 0.0) for t in (found, expected))
    rounding = 1e-4 if dtype == torch.float32 else 0.1
    tolerance = rounding * (1 + float(expected.abs().max()))
    return float((found - expected).abs().max()) <= tolerance
