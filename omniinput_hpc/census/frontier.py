"""The open prefixes of a census: those whose continuations are not known yet, up to a number."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class Nodes:
    """Prefixes, of any lengths.

    Attributes
    ----------
    x : unsigned integers [n, D], 0 beyond the prefix
    depth : int64 [n], values of each
    loss : float64 [n], sums of -l over the predicted ones of them
    """

    x: NDArray[Any]
    depth: NDArray[np.int64]
    loss: NDArray[np.float64]

    @classmethod
    def empty(cls, n_sites: int, n_values: int) -> Self:
        """Return no prefixes, of a space."""
        x = np.zeros((0, n_sites), dtype=np.min_scalar_type(n_values - 1))
        return cls(x, np.zeros(0, dtype=np.int64), np.zeros(0))

    def of_parts(self, parts: Sequence[tuple[NDArray[Any], NDArray[np.float64]]]) -> Nodes:
        """Return these and others: values [k, t] and losses [k] of some lengths t."""
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
        """Return those of some indices, or of a mask."""
        return Nodes(self.x[some], self.depth[some], self.loss[some])

    def __len__(self) -> int:
        return len(self.loss)


def lowest(loss: NDArray[np.float64], n: int) -> NDArray[np.bool_]:
    """Return which n of the losses are lowest, bool; of equal ones the first."""
    keep = np.zeros(len(loss), dtype=bool)
    if n >= len(loss):
        return ~keep
    if n > 0:
        most = np.partition(loss, n - 1)[n - 1]
        keep = loss < most
        keep[np.flatnonzero(loss == most)[: n - int(keep.sum())]] = True
    return keep


class Frontier:
    """Open prefixes, at most `limit`: of more, those of the highest losses are left for good.

    (An eighth more than must be, so that the next ones need no look at all of them.) What is left
    is never forgotten: its mass and its smallest loss are kept.

    Parameters
    ----------
    n_free : sites that nothing predicts; a prefix shorter than that stands for all their values

    Attributes
    ----------
    nodes : the open prefixes
    lost_mass : sum of exp(-loss) over the prefixes that were left for good
    least_lost : the smallest loss of these; inf without one
    """

    def __init__(self, nodes: Nodes, limit: int, n_values: int, n_free: int) -> None:
        self.nodes, self.limit = nodes, limit
        self._n_values, self._n_free = n_values, n_free
        self.lost_mass, self.least_lost = 0.0, np.inf

    def add(self, nodes: Nodes) -> None:
        """Add prefixes, and leave those beyond the limit."""
        join = np.concatenate
        pairs = ((getattr(self.nodes, k), getattr(nodes, k)) for k in ("x", "depth", "loss"))
        self.nodes = Nodes(*map(join, pairs))
        if len(self.nodes) > self.limit:
            self.keep(lowest(self.nodes.loss, self.limit - self.limit // 8))

    def keep(self, some: NDArray[np.bool_]) -> None:
        """Leave all but some prefixes, bool [n], for good."""
        self.lose(*self.mass_and_least(self.nodes.take(~some)))
        self.nodes = self.nodes.take(some)

    def lose(self, mass: float, least: float) -> None:
        """Note prefixes that were left for good: their mass, and their smallest loss."""
        self.lost_mass += mass
        self.least_lost = min(self.least_lost, least)

    def mass_and_least(self, nodes: Nodes) -> tuple[float, float]:
        """Return the mass of prefixes, and the smallest loss."""
        free = np.maximum(0, self._n_free - nodes.depth)
        mass = np.exp(free * np.log(self._n_values) - nodes.loss).sum()
        return float(mass), float(nodes.loss.min(initial=np.inf))

    @property
    def open_mass(self) -> float:
        """The mass of all inputs that are not known: under open prefixes, and those left."""
        return self.mass_and_least(self.nodes)[0] + self.lost_mass

    @property
    def least(self) -> float:
        """The smallest loss that an input which is not known can have."""
        return min(self.mass_and_least(self.nodes)[1], self.least_lost)

    def pop(self, n: int, best_first: bool) -> Nodes:
        """Remove and return n prefixes: of the lowest losses, or else the longest (those of them).

        Longest first needs the least memory; lowest first completes the smallest outputs first.
        """
        depth, loss = self.nodes.depth, self.nodes.loss
        if best_first or n >= len(loss):
            some = lowest(loss, n)
        else:
            # how many are of each length or more
            longer = np.cumsum(np.bincount(depth)[::-1])[::-1]
            length = int(np.flatnonzero(longer >= n)[-1])
            some = depth > length
            at = np.flatnonzero(depth == length)
            some[at[lowest(loss[at], n - int(some.sum()))]] = True
        popped = self.nodes.take(some)
        self.nodes = self.nodes.take(~some)
        return popped


def batches_of(nodes: Nodes, batch: int) -> list[Nodes]:
    """Return prefixes in batches of one length each, in the order of lengths."""
    found = []
    for depth in np.unique(nodes.depth):
        index = np.flatnonzero(nodes.depth == depth)
        found += [nodes.take(index[begin : begin + batch]) for begin in range(0, len(index), batch)]
    return found
