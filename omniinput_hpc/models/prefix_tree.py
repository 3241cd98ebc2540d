"""Walk the tree of an autoregressive model's prefixes, as far as the loss is small enough.

The loss of a prefix is the sum of -l over its predicted sites. If no l is above 0 (the rows are
log-probabilities), a longer prefix never has a smaller loss, so a prefix bounds all its
continuations.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from omniinput_hpc.errors import UserError
from omniinput_hpc.models.protocol import Model, offers_of

MAX_POSITIVE = 1e-5
"""Rounding allowed: l may exceed 0 by this, and a row's probabilities may sum to `MAX_SUM`."""
MAX_SUM = 1.0 + 1e-3
MIN_BATCH = 8
"""Fewer prefixes than this are postponed, to be evaluated with others of their length."""
RENDERED_AT_ONCE = 1000


@dataclass
class Walked:
    """The results of a walk.

    Attributes
    ----------
    parts : prefixes still to be evaluated: values int64 [k, t], and losses float64 [k]
    lost_mass : sum of exp(-loss) over the pruned prefixes
    least_lost : smallest loss of a pruned prefix; inf without one
    n_evaluated : number of evaluated prefixes
    """

    parts: list[tuple[NDArray[np.int64], NDArray[np.float64]]] = field(default_factory=list)
    lost_mass: float = 0.0
    least_lost: float = np.inf
    n_evaluated: int = 0

    def leave(self, x: torch.Tensor, loss: torch.Tensor) -> None:
        """Postpone prefixes [k, t] with losses [k]."""
        if len(x):
            self.parts.append((x.cpu().numpy(), loss.cpu().numpy()))


@dataclass(frozen=True)
class _Batch:
    """Prefixes of one length.

    Attributes
    ----------
    x, loss : int64 [n, t], and float64 [n]
    parents : the model's state of the prefixes that these extend
    rows : int64 [n], the index of each one's parent
    """

    x: torch.Tensor
    loss: torch.Tensor
    parents: Any = None
    rows: torch.Tensor | None = None


class PrefixTree:
    """The tree of prefixes of a model that has ``conditional_logits``.

    Parameters
    ----------
    name : of the model, for messages
    batch : largest number of prefixes evaluated at once
    max_batches : largest number of evaluations in one walk, which postpones the rest
    """

    def __init__(
        self, model: Model, device: str, batch: int, max_batches: int, name: str = "the model"
    ) -> None:
        self._model, self._device, self._name = model, device, name
        self._offers = offers_of(model)
        self._first = self._offers.predicted_from
        self.batch, self._max_batches = batch, max_batches

    @torch.no_grad()
    def walk(
        self, x: NDArray[Any], loss: NDArray[np.float64], descend: float, most: float
    ) -> Walked:
        """Evaluate prefixes of one length and their extensions, depth first.

        Parameters
        ----------
        x, loss : [n, t], t < D, and [n]; n is at most `batch`
        descend : extensions with a loss up to this are evaluated, too; others are postponed
        most : extensions with a larger loss are pruned
        """
        walked = Walked()
        stack = [_Batch(self._tensor(x), torch.from_numpy(loss).to(self._device))]
        for _ in range(self._max_batches):
            if not stack:
                break
            batch = stack.pop()
            try:
                state, row = self._evaluate(batch)
            except torch.OutOfMemoryError:
                raise UserError(
                    f"{self._name}: {len(batch.x)} prefixes do not fit on {self._device} at once; "
                    "set a smaller --prefixes"
                ) from None
            walked.n_evaluated += len(batch.x)
            parent, value, child_loss = self._children(batch, row, most, walked)
            child = torch.cat([batch.x[parent], value[:, None]], dim=1)
            below = (child_loss <= descend) & (child.shape[1] < self._model.n_sites)
            walked.leave(child[~below], child_loss[~below])
            of = below.nonzero()[:, 0].split(self.batch)
            for some in of:
                if len(some) < MIN_BATCH:
                    walked.leave(child[some], child_loss[some])
                else:
                    stack.append(_Batch(child[some], child_loss[some], state, parent[some]))
        for batch in stack:
            walked.leave(batch.x, batch.loss)
        return walked

    @torch.no_grad()
    def losses(
        self, x_nd: NDArray[Any], depth_n: NDArray[np.int64] | None = None
    ) -> NDArray[np.float64]:
        """Return the losses of inputs, [n, D], summed as in a walk: float64 [n].

        n is at most `batch`. With `depth_n`, [n], they are those of prefixes of these lengths.
        """
        x = self._tensor(x_nd)
        whole_n = np.full(len(x_nd), x_nd.shape[1])
        depth = self._tensor(whole_n if depth_n is None else depth_n)
        loss = torch.zeros(len(x), dtype=torch.float64, device=x.device)
        state: Any = None
        for t in range(self._first, int(depth.max())):
            rows = torch.arange(len(x), device=x.device)
            state, row = self._evaluate(_Batch(x[:, :t], loss, state, rows))
            log_p = row.gather(1, x[:, t : t + 1])[:, 0].double()
            loss = loss - log_p.masked_fill(depth <= t, 0.0)
        return np.asarray(loss.cpu().numpy())

    def _tensor(self, x: NDArray[Any]) -> torch.Tensor:
        return torch.from_numpy(x.astype(np.int64)).to(self._device)

    def _evaluate(self, batch: _Batch) -> tuple[Any, torch.Tensor]:
        """Return the model's state of prefixes, and their rows of l, float32 [n, V]."""
        x, prefixes = batch.x, self._offers.prefixes
        n, t = x.shape
        if t < self._first:  # this site is not predicted and adds nothing to z
            return None, torch.zeros((n, self._model.n_values), device=x.device)
        if prefixes is not None:
            if batch.parents is None or batch.rows is None or prefixes.select is None:
                state = prefixes.begin(x)
            else:
                state = prefixes.extend(prefixes.select(batch.parents, batch.rows), x[:, -1])
            return state, self._checked(state.log_p)
        whole = x.new_zeros((self.batch, self._model.n_sites))  # one shape in all calls
        assert self._offers.conditional_logits is not None and n <= self.batch
        whole[:n, :t] = x
        return None, self._checked(self._offers.conditional_logits(whole)[1][:n, t])

    def _checked(self, row: torch.Tensor) -> torch.Tensor:
        """Return rows of l, [n, V]; a `UserError` if they are not log-probabilities."""
        largest = float(row.max())
        if not largest <= MAX_POSITIVE:  # also NaN
            raise UserError(
                f"{self._name} has a conditional log-weight of {largest:.4g}: a census requires "
                "log-probabilities, which are never above 0, so that a prefix bounds its "
                "continuations; normalize the rows of conditional_logits"
            )
        return row

    def _children(
        self, batch: _Batch, row: torch.Tensor, most: float, walked: Walked
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Return each child's row in `batch` int64 [k], value int64 [k] and loss float64 [k].

        Children with a loss above `most` are pruned, and counted as lost in `walked`.
        """
        keep = row.double() >= (batch.loss - most)[:, None]
        parent, value = keep.nonzero().unbind(1)
        loss = batch.loss[parent] - row[parent, value].double()
        p = row.exp()
        n_free = self._first - 1 - batch.x.shape[1]  # unpredicted sites that a child still lacks
        if n_free < 0 and not float(p.sum(1).max()) <= MAX_SUM:
            raise UserError(
                f"{self._name} has a row of probabilities that sum to {float(p.sum(1).max()):.4g}, "
                "above 1; normalize the rows of conditional_logits"
            )
        weight = (-batch.loss).exp() * float(self._model.n_values) ** max(0, n_free)
        walked.lost_mass += float((p.masked_fill_(keep, 0.0).sum(1).double() * weight).sum())
        rest = batch.loss - row.masked_fill(keep, -torch.inf).amax(1).double()
        walked.least_lost = min(walked.least_lost, float(rest.min()))
        return parent, value, loss


def render(model: Model, x_nd: NDArray[Any], device: str) -> Iterator[str | None]:
    """Yield the text of each input, [n, D]; None if the model renders no text."""
    show = offers_of(model).render
    for begin in range(0, len(x_nd), RENDERED_AT_ONCE):
        x = torch.from_numpy(x_nd[begin : begin + RENDERED_AT_ONCE].astype(np.int64)).to(device)
        shown = [None] * len(x) if show is None else show(x)
        yield from (text if isinstance(text, str) else None for text in shown)
