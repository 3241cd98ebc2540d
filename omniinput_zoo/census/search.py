"""The search of a census: rounds in which all ranks evaluate prefixes.

In each round, rank 0 takes prefixes from the `Frontier`, every rank walks the tree below its share
of them (see `models.prefix_tree`), and the prefixes that are still open go back to the frontier.
The losses of pruned prefixes are recorded, so the smallest loss of all open and pruned prefixes
determines up to which z every input is found.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from omniinput_hpc.config.space import Space as Values
from omniinput_hpc.errors import UserError
from omniinput_hpc.parallel.comm import World
from omniinput_zoo.census.found import Found
from omniinput_zoo.census.frontier import Frontier, Nodes, batches_of

if TYPE_CHECKING:
    from omniinput_hpc.models import Model
    from omniinput_hpc.models.prefix_tree import PrefixTree

DEEP_BATCHES, BEST_BATCHES = 4, 32
"""Batches of prefixes per rank and round, longest first or lowest first; each starts a walk. There
are more with lowest first, because these walks are short, and scanning a large frontier takes as
long as evaluating 1,000 prefixes."""
ANY_LOSS = 1e300
"""Above every loss except the infinite loss of forbidden values."""
BISECTIONS = 60


@dataclass(frozen=True)
class Space:
    """The space to search, and up to which output.

    Attributes
    ----------
    n_sites, n_values : D and V
    predicted_from : the first predicted site
    below : the requested Z; None: as far as the time allows
    margin : a generous bound for the difference between z and loss / m of an input
    walkers : whole inputs per batch, as in a run of the same input file
    device : of the model
    values : the ids of the values, written to the list of inputs; None: the values themselves
    """

    n_sites: int
    n_values: int
    predicted_from: int
    below: float | None
    margin: float
    walkers: int
    device: str
    values: Values | None = None

    @property
    def m(self) -> int:
        """The number of predicted sites, over which z is the mean."""
        return self.n_sites - self.predicted_from

    @property
    def most_loss(self) -> float:
        """The largest loss that an input with z <= Z can have, including the margin."""
        return ANY_LOSS if self.below is None else self.m * (self.below + self.margin)

    def complete_below(self, least: float) -> float:
        """Return up to which z all inputs are found, if `least` is the smallest unknown loss."""
        if self.below is not None and least > self.most_loss:
            return self.below
        if np.isinf(least):
            return np.inf
        return float(np.nextafter(least / self.m - self.margin, -np.inf))


@dataclass
class CensusState:
    """The state of a census between rounds and in its file.

    Attributes
    ----------
    frontier, found : up to date only on rank 0
    n_evaluated : prefixes evaluated so far
    apart : the largest difference between loss / m and z of an input
    seconds : run time so far
    """

    frontier: Frontier
    found: Found
    n_evaluated: int = 0
    apart: float = 0.0
    seconds: float = 0.0


@dataclass
class _Work:
    """The results of a rank in a round; `open` has the open and the pruned prefixes."""

    open: Frontier
    x: NDArray[Any]
    z: NDArray[np.float32]
    n_evaluated: int = 0
    apart: float = 0.0


class Search:
    """A census in progress.

    Parameters
    ----------
    space, model, tree : the space to search, and the model's tree of prefixes
    state : updated by every round
    best_first : take the lowest losses first, not the longest prefixes
    """

    def __init__(
        self, world: World, space: Space, model: Model, tree: PrefixTree, state: CensusState,
        best_first: bool,
    ) -> None:  # fmt: skip
        self._world, self.space, self._model, self._tree = world, space, model, tree
        self.state, self._best_first = state, best_first
        self._none = Nodes.empty(space.n_sites, space.n_values)

    def step(self) -> bool:
        """Do one round on all ranks; return False if nothing was open."""
        popped, descend, most = self._next()
        if not len(popped):
            return False
        done = self._world.together(lambda: self._work(popped, descend, most))
        self._check_apart(done.apart)
        self._fit(done.open)
        self._collect(done)
        return True

    @property
    def complete_below(self) -> float:
        """The z up to which all inputs are found (on rank 0)."""
        return self.space.complete_below(self.state.frontier.least)

    def _next(self) -> tuple[Nodes, float, float]:
        """Return the prefixes of this round, and `descend` and `most` of `PrefixTree.walk`."""
        world, popped = self._world, self._none
        numbers = [0.0, 0.0, 0.0]
        if world.rank == 0:
            n_batches = BEST_BATCHES if self._best_first else DEEP_BATCHES
            at_once = n_batches * world.size * self._tree.batch
            popped = self.state.frontier.pop(at_once, self._best_first)
            most = min(self.space.most_loss, self.state.frontier.least_lost)
            descend = float(popped.loss.max(initial=0.0)) if self._best_first else most
            numbers = [len(popped), descend, most]
        n, descend, most = world.broadcast(numbers)

        def shared(mine: NDArray[Any]) -> NDArray[Any]:
            like = mine if world.rank == 0 else np.zeros((int(n), *mine.shape[1:]), mine.dtype)
            return world.sum(like)

        return Nodes(*map(shared, (popped.x, popped.depth, popped.loss))), descend, most

    def _work(self, popped: Nodes, descend: float, most: float) -> _Work:
        """Walk the tree below this rank's share of prefixes, and evaluate whole inputs."""
        space, world = self.space, self._world
        limit = self.state.frontier.limit
        opened = Frontier(self._none, limit, space.n_values, space.predicted_from)
        done, whole = _Work(opened, self._none.x, np.zeros(0, np.float32)), []
        for nodes in batches_of(popped, self._tree.batch)[world.rank :: world.size]:
            depth = int(nodes.depth[0])
            if depth == space.n_sites:
                whole.append(nodes)
                continue
            walked = self._tree.walk(nodes.x[:, :depth], nodes.loss, descend, most)
            opened.lose(walked.lost_mass, walked.least_lost)
            done.n_evaluated += walked.n_evaluated
            left = self._none.of_parts(walked.parts)
            is_whole = (left.depth == space.n_sites) & (left.loss <= descend)
            whole.append(left.take(is_whole))
            opened.add(left.take(~is_whole))
        if sum(map(len, whole)):
            self._evaluate(done, whole)
        return done

    def _evaluate(self, done: _Work, whole: list[Nodes]) -> None:
        """Evaluate z of whole inputs with the model, and add those with z <= Z to `done`."""
        from omniinput_hpc.models import batches  # imports torch

        space = self.space
        x = np.concatenate([nodes.x for nodes in whole])
        loss = np.concatenate([nodes.loss for nodes in whole])
        z = batches.evaluate(self._model, x, space.walkers, space.device)
        z64 = z.astype(np.float64)
        if not np.isfinite(z64).all():
            bad = x[~np.isfinite(z64)][0].tolist()
            raise ArithmeticError(f"the model returned a z that is not finite for values {bad}")
        done.apart = float(np.abs(z64 - loss / space.m).max())
        inside = np.ones(len(z), dtype=bool) if space.below is None else z64 <= space.below
        done.x, done.z = x[inside], z[inside]
        done.open.lose(float(np.exp(-loss[~inside]).sum()), np.inf)  # inf: known to be above Z

    def _check_apart(self, apart: float) -> None:
        """Raise a UserError if z and loss / m differ by more than half of the margin."""
        apart = max(self.state.apart, float(self._world.max(np.array([apart]))[0]))
        if apart > 0.5 * self.space.margin:
            raise UserError(
                f"for one input, z from the model's output and from its conditional_logits differ "
                f"by {apart:.3g}, more than half of the margin {self.space.margin:.3g}: start "
                f"again with --margin {4 * apart:.2g}"
            )
        self.state.apart = apart

    def _fit(self, opened: Frontier) -> None:
        """Prune the highest losses, if the open prefixes of all ranks exceed the limit."""
        world, loss = self._world, opened.nodes.loss

        def total(up_to: float) -> int:
            return int(world.sum(np.array([np.count_nonzero(loss <= up_to)]))[0])

        if total(np.inf) <= opened.limit:
            return
        low, high = -1.0, float(world.max(np.array([loss.max(initial=0.0)]))[0])
        for _ in range(BISECTIONS):
            middle = 0.5 * (low + high)
            low, high = (middle, high) if total(middle) <= opened.limit else (low, middle)
        opened.keep(loss <= low)

    def _collect(self, done: _Work) -> None:
        """Collect the results of all ranks on rank 0."""
        world, nodes = self._world, done.open.nodes
        mass, evaluated = world.sum(np.array([done.open.lost_mass, done.n_evaluated]))
        least = -float(world.max(np.array([-done.open.least_lost]))[0])
        self.state.n_evaluated += int(evaluated)
        arrays = [nodes.x, nodes.depth, nodes.loss, done.x, done.z]
        gathered = [world.gather(array) for array in arrays]
        if world.rank != 0:
            return
        x, depth, loss, found_x, found_z = (np.concatenate(part or []) for part in gathered)
        self.state.frontier.lose(float(mass), least)
        self.state.frontier.add(Nodes(x, depth, loss))
        self.state.found.add(found_x, found_z)
