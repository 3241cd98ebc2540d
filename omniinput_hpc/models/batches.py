"""Many inputs through a model, in batches of one fixed shape."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from omniinput_hpc.models import Model


def evaluate(
    model: Model,
    x_nd: NDArray[np.integer[Any]],
    batch: int,
    device: str,
    after_batch: Callable[[], object] = lambda: None,
) -> NDArray[np.float32]:
    """Return z of inputs [n, D], float32 [n].

    Every batch has the shape of a run's own (the last one repeats its first input), so that the
    outputs agree with those of a run to the last bits. `after_batch` is called after each.
    """
    parts = []
    for begin in range(0, len(x_nd), batch):
        some = x_nd[begin : begin + batch].astype(np.int64)
        x_wd = np.concatenate([some, np.repeat(some[:1], batch - len(some), axis=0)])
        with torch.no_grad():
            z = model.output(torch.from_numpy(x_wd).to(device))  # float32 [W]
        parts.append(z.cpu().numpy()[: len(some)])
        after_batch()
    return np.concatenate(parts)


def evaluate_continuations(model: Any, head: Sequence[int]) -> NDArray[np.float32]:
    """Return z of all inputs that begin with some values, float32 [n_values^(D - len(head))].

    Inputs are in the order of numbers whose digits they are. The inputs are walked as a tree of
    prefixes, each evaluated once, by the model's `begin`, `extend` and `branch`.
    """
    values = torch.tensor(head, device=model.device)
    prefixes = model.begin(values[None, :1])
    log_p = torch.zeros(1, device=model.device)
    for value in values[1:]:
        log_p = log_p + prefixes.log_p[:, value]
        prefixes = model.extend(prefixes, value[None])
    for _ in range(model.n_sites - len(head) - 1):
        log_p = (log_p[:, None] + prefixes.log_p).flatten()
        prefixes = model.branch(prefixes)
    log_p = (log_p[:, None] + prefixes.log_p).flatten()
    z = -log_p / (model.n_sites - model.predicted_from)
    return np.asarray(z.cpu().numpy())
