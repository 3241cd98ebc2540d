"""The open prefixes of a census, whose continuations are not known yet."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class Nodes:
    """Prefixes of any lengths.

    Attributes
    ----------
    x : unsigned integers [n, D], padded with 0
    depth : int64 [n], lengths of the prefixes
    loss : float64 [n], sums of -l over their predicted sites
    """

    x: NDArray[Any]
    depth: NDArray[np.int64]
    loss: NDArray[np.float64]

    @classmethod
    def empty(cls, n_sites: int, n_values: int) -> Self:
        """Return an empty set of prefixes."""
        x = np.zeros((0, n_sites), dtype=np.min_scalar_type(n_values - 1))
        return cls(x, np.zeros(0, dtype=np.int64), np.zeros(0))

    def of_parts(self, parts: Sequence[tuple[NDArray[Any], NDArray[np.float64]]]) -> Nodes:
        """Return these prefixes and others, given as values [k, t] and losses [k] per length t."""
        all_x, all_depth, all_loss = [self.x], [self.depth], [self.loss]
        for values, loss in parts:
            x = np.zeros((len(values), self.x.shape[1]), dtype=self.x.dtype)
            x[:, : values.shape[1]] = values
            all_x.append(x)
            all_depth.append(np.full(len(values), values.shape[1]))
            all_loss.append(loss)
        join = np.concatenate
        return Nodes(join(all_x), join(all_depth), join(all_loss))

    def take(self, some: NDArray[Any]) -> Nodes:
        """Return the prefixes at some indices or of a mask."""
        return Nodes(self.x[some], self.depth[some], self.loss[some])

    def __len__(self) -> int:
        return len(self.loss)


def lowest(loss: NDArray[np.float64], n: int) -> NDArray[np.bool_]:
    """Return a mask of the n lowest losses, bool; of equal losses, the first ones count."""
    keep = np.zeros(len(loss), dtype=bool)
    if n >= len(loss):
        return ~keep
    if n > 0:
        most = np.partition(loss, n - 1)[n - 1]
        keep = loss < most
        keep[np.flatnonzero(loss == most)[: n - int(keep.sum())]] = True
    return keep


class Frontier:
    """Open prefixes, at most `limit`; beyond that, those with the highest losses are pruned.

    Parameters
    ----------
    n_free : number of leading sites that the model does not predict

    Attributes
    ----------
    nodes : the open prefixes
    lost_mass, least_lost : mass and smallest loss of the pruned prefixes (see `mass_and_least`)
    """

    def __init__(self, nodes: Nodes, limit: int, n_values: int, n_free: int) -> None:
        self.nodes, self.limit = nodes, limit
        self._n_values, self._n_free = n_values, n_free
        self.lost_mass, self.least_lost = 0.0, np.inf

    def add(self, nodes: Nodes) -> None:
        """Add prefixes; beyond the limit, prune to 7/8 of it, so that pruning is rare."""
        join = np.concatenate
        pairs = ((getattr(self.nodes, k), getattr(nodes, k)) for k in ("x", "depth", "loss"))
        self.nodes = Nodes(*map(join, pairs))
        if len(self.nodes) > self.limit:
            self.keep(lowest(self.nodes.loss, self.limit - self.limit // 8))

    def keep(self, some: NDArray[np.bool_]) -> None:
        """Prune all prefixes outside a mask, bool [n]."""
        self.lose(*self.mass_and_least(self.nodes.take(~some)))
        self.nodes = self.nodes.take(some)

    def lose(self, mass: float, least: float) -> None:
        """Record the mass and the smallest loss of pruned prefixes."""
        self.lost_mass += mass
        self.least_lost = min(self.least_lost, least)

    def mass_and_least(self, nodes: Nodes) -> tuple[float, float]:
        """Return the mass and the smallest loss of prefixes; inf without prefixes.

        The mass is the sum of exp(-loss), times V per site that a prefix lacks of the `n_free`.
        """
        free = np.maximum(0, self._n_free - nodes.depth)
        mass = np.exp(free * np.log(self._n_values) - nodes.loss).sum()
        return float(mass), float(nodes.loss.min(initial=np.inf))

    @property
    def open_mass(self) -> float:
        """The mass of all unknown inputs, under open and under pruned prefixes."""
        return self.mass_and_least(self.nodes)[0] + self.lost_mass

    @property
    def least(self) -> float:
        """The smallest loss that an unknown input can have."""
        return min(self.mass_and_least(self.nodes)[1], self.least_lost)

    def pop(self, n: int, best_first: bool) -> Nodes:
        """Remove and return n prefixes: those with the lowest losses, or the longest ones.

        Longest first needs the least memory; lowest first completes the smallest outputs first.
        """
        depth, loss = self.nodes.depth, self.nodes.loss
        if best_first or n >= len(loss):
            some = lowest(loss, n)
        else:
            # longer[t]: the number of prefixes of length t or more
            longer = np.cumsum(np.bincount(depth)[::-1])[::-1]
            length = int(np.flatnonzero(longer >= n)[-1])
            some = depth > length
            at = np.flatnonzero(depth == length)
            some[at[lowest(loss[at], n - int(some.sum()))]] = True
        popped = self.nodes.take(some)
        self.nodes = self.nodes.take(~some)
        return popped


def batches_of(nodes: Nodes, batch: int) -> list[Nodes]:
    """Return prefixes in batches of equal length, sorted by length."""
    found = []
    for depth in np.unique(nodes.depth):
        index = np.flatnonzero(nodes.depth == depth)
        found += [nodes.take(index[begin : begin + batch]) for begin in range(0, len(index), batch)]
    return found
