"""Evaluate many inputs with a model, in batches of one fixed shape."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from omniinput_hpc.errors import UserError
from omniinput_hpc.models.protocol import Model, offers_of


def padded_batches(x: torch.Tensor, batch: int) -> Iterator[tuple[torch.Tensor, int]]:
    """Yield inputs [n, D] as batches [batch, D], each with the number of rows that count.

    The last batch is padded with copies of its first input.
    """
    for begin in range(0, len(x), batch):
        some = x[begin : begin + batch]
        filling = some[:1].expand(batch - len(some), -1)
        yield torch.cat([some, filling]), len(some)


def evaluate(
    model: Model,
    x_nd: NDArray[Any],
    batch: int,
    device: str,
    after_batch: Callable[[], object] = lambda: None,
) -> NDArray[np.float32]:
    """Return z of inputs [n, D], float32 [n].

    `batch` should be the batch size of the run: only then do outputs agree with the run's to the
    last bit. `after_batch` is called after each batch.
    """
    parts = []
    for x, n in padded_batches(torch.from_numpy(x_nd.astype(np.int64)), batch):
        with torch.no_grad():
            z = model.output(x.to(device))  # float32 [W]
        parts.append(z.cpu().numpy()[:n])
        after_batch()
    return np.concatenate(parts)


@torch.no_grad()
def token_losses(model: Model, x_nd: NDArray[Any], device: str) -> NDArray[np.float32]:
    """Return the loss of each value given those before it, float32 [n, D]; NaN if not predicted.

    z is the mean of the losses: rows are used as given.

    Raises a UserError if the model has no conditional probabilities.
    """
    offers = offers_of(model)
    if offers.conditional_logits is None:
        raise UserError("the model has no probabilities of tokens, so tokens have no loss")
    rows = []
    for x, _ in padded_batches(torch.from_numpy(x_nd.astype(np.int64)), 1):
        log_p = offers.conditional_logits(x.to(device))[1]  # [1, D, n_values]
        rows.append(-log_p.gather(2, x.to(device)[..., None]).squeeze(2))
    losses = torch.cat(rows)
    losses[:, : offers.predicted_from] = torch.nan
    return np.asarray(losses.cpu().numpy(), dtype=np.float32)


@torch.no_grad()
def evaluate_continuations(model: Model, head: Sequence[int], device: str) -> NDArray[np.float32]:
    """Return z of all inputs that begin with `head`, float32 [n_values^(D - len(head))].

    The order is lexicographic: the value of the last site varies fastest. Prefixes are walked as a
    tree, each evaluated once, so the model must offer `Prefixes` with `branch`.
    """
    offers = offers_of(model)
    tree = offers.prefixes
    assert tree is not None and tree.branch is not None
    values = torch.tensor(head, device=device)
    prefixes = tree.begin(values[None, :1])
    log_p = torch.zeros(1, device=device)
    for value in values[1:]:
        log_p = log_p + prefixes.log_p[:, value]
        prefixes = tree.extend(prefixes, value[None])
    for _ in range(model.n_sites - len(head) - 1):
        log_p = (log_p[:, None] + prefixes.log_p).flatten()
        prefixes = tree.branch(prefixes)
    log_p = (log_p[:, None] + prefixes.log_p).flatten()
    z = -log_p / (model.n_sites - offers.predicted_from)
    return np.asarray(z.cpu().numpy())
