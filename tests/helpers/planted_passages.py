"""A Markov chain with planted passages: a language model of any size with a known exact density.

Ordinary text is a Markov chain. Some values begin a passage: a fixed sequence whose first steps are
rare and whose later ones are nearly certain, like those of a memorized text. All probabilities are
powers of 2, except that of a later step. -ln p of an input is therefore an integer multiple of ln 2
plus one of -ln p(later step), and inputs are counted by dynamic programming over the last value and
the place in a passage.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from omniinput_zoo.exact import Exact, FloatArray

IntArray = NDArray[np.int64]

N_ROW_KINDS = 8
"""Number of different rows of ordinary values."""


def dyadic_split(masses: IntArray, n: int, random: np.random.Generator) -> IntArray:
    """Split masses 2^-i, given by i, in halves until there are n; return their i, shuffled.

    A mass is split with a probability proportional to it, so that the result is nearly uniform.
    """
    bits = list(masses)
    while len(bits) < n:
        p = 2.0 ** -np.array(bits)
        at = int(random.choice(len(bits), p=p / p.sum()))
        bits[at] += 1
        bits.append(bits[at])
    return random.permutation(np.array(bits, dtype=np.int64))


class PlantedPassages(Exact):
    """Ordinary text, and passages that are rarely begun and then hardly ever left.

    After the first value of a passage, each of the first `n_rare` steps has the probability
    2^-enter_bits, and each later one 1 - 2^-leave_bits. A passage is as long as an input.

    Parameters
    ----------
    n_passages : at most n_values - 1
    enter_bits : -log2 of the probability of a rare step; must be below n_values
    leave_bits : -log2 of the probability of leaving a passage at a later step
    """

    predicted_from = 1

    def __init__(
        self,
        n_sites: int,
        n_values: int,
        n_passages: int,
        enter_bits: int,
        n_rare: int = 1,
        leave_bits: int = 5,
        seed: int = 1,
    ) -> None:
        random = np.random.default_rng(seed)
        self.n_sites, self.n_values, self.n_passages = n_sites, n_values, n_passages
        self._leave_bits, self.n_rare, self._enter_bits = leave_bits, n_rare, enter_bits
        self._stay = -np.log1p(-(2.0**-leave_bits))  # nats
        # No passage contains value 0, which takes the share of the passage's next value (`_row`).
        self.passages = random.integers(1, n_values, size=(n_passages, n_sites))
        self.passages[:, 0] = 1 + random.permutation(n_values - 1)[:n_passages]
        one = np.zeros(1, dtype=np.int64)
        self._ordinary = np.stack(
            [dyadic_split(one, n_values, random) for _ in range(N_ROW_KINDS)]
        )  # [kinds, V], bits
        self._kind = random.integers(N_ROW_KINDS, size=n_values)
        rest = np.arange(1, enter_bits + 1)  # adds up to 1 - 2^-enter_bits
        if n_values <= enter_bits:
            raise ValueError(f"n_values = {n_values} must be above enter_bits = {enter_bits}")
        self._entering = np.insert(dyadic_split(rest, n_values - 1, random), 0, 0)
        leave = np.array([leave_bits])
        self._staying = np.insert(dyadic_split(leave, n_values - 1, random), 0, 0)
        self._tables()

    def _tables(self) -> None:
        """Make the tables of rows and of transitions between states.

        States are the ordinary values, followed by the places 1 .. D - 1 of each passage.
        """
        v, n_places = self.n_values, self.n_sites - 1
        going_on = self.passages[:, 1:]  # [passages, places], next value at place 1, 2, ...
        rare = np.arange(n_places) < self.n_rare
        rows = [-np.log(2.0) * bits for bits in self._ordinary]
        rows += [self._row(int(w), bool(rare[j])) for i in going_on for j, w in enumerate(i)]
        self._rows = torch.from_numpy(np.stack(rows)).float()  # [kinds + places, V]
        places = np.arange(going_on.size)
        self._row_of = torch.from_numpy(np.append(self._kind, N_ROW_KINDS + places))
        self._expected = torch.from_numpy(np.append(np.full(v, -1), going_on.ravel()))
        # An input ends after the last place, so the state there does not matter.
        self._advanced = torch.arange(v + going_on.size) + 1
        self._advanced[-1] -= 1
        begins = np.arange(v)
        begins[self.passages[:, 0]] = v + n_places * np.arange(self.n_passages)
        self._begins = torch.from_numpy(begins)

    def _row(self, value: int, rare: bool) -> FloatArray:
        """Return the row of a place with next value `value`, whose former share goes to value 0."""
        bits = (self._entering if rare else self._staying).copy()
        bits[0] = bits[value]
        row: FloatArray = -np.log(2.0) * bits
        row[value] = -self._enter_bits * np.log(2.0) if rare else -self._stay
        return row

    def first_state(self, values: torch.Tensor) -> torch.Tensor:
        """Return the state after a first value, int64 [W]."""
        return self._begins[values]

    def next_state(self, state: torch.Tensor, values: torch.Tensor) -> torch.Tensor:
        """Return the state after one more value, int64 [W]."""
        on = self._expected[state] == values
        return torch.where(on, self._advanced[state], self._begins[values])

    def rows_of(self, state: torch.Tensor) -> torch.Tensor:
        """Return log-probabilities of the next value, float32 [..., V], of states [...]."""
        return self._rows[self._row_of[state]]

    def states(self, x: torch.Tensor) -> torch.Tensor:
        """Return the states after each value except the last, int64 [W, D - 1], of x [W, D]."""
        states = [self.first_state(x[:, 0])]
        for t in range(1, self.n_sites - 1):
            states.append(self.next_state(states[-1], x[:, t]))
        return torch.stack(states, dim=1)

    def conditional_logits(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Return z and the log-probabilities of all values, [W, D, V]; 0 at the first site."""
        rows = self.rows_of(self.states(x))
        z = -rows.gather(2, x[:, 1:, None])[..., 0].mean(dim=1)
        return z, torch.cat([torch.zeros_like(rows[:, :1]), rows], dim=1)

    def output(self, x: torch.Tensor) -> torch.Tensor:
        """Return the mean loss of the predicted sites."""
        log_p = self._rows[self._row_of[self.states(x)], x[:, 1:]]
        return -log_p.mean(dim=1)

    def kv_cache(self, n_walkers: int) -> Paths:
        """Return a `Paths` of W inputs, which has the interface of a KV cache."""
        return Paths(self, n_walkers)

    def in_passage(self, x: torch.Tensor) -> torch.Tensor:
        """Return the place in a passage before the last value, int64 [W]; 0 outside passages."""
        place = self.states(x)[:, -1] - self.n_values
        place = torch.where(place >= 0, place % (self.n_sites - 1) + 1, 0)
        return place

    def log_count(self) -> tuple[FloatArray, FloatArray]:
        """Return outputs and ln of the number of inputs of each, by dynamic programming.

        Inputs are counted by state, by bits, and by later steps in a passage.
        """
        n_ordinary, n_going = self._count()
        total = n_ordinary.sum(axis=0) + n_going.sum(axis=(0, 1))  # [bits, steps]
        bits, steps = np.nonzero(total)
        z = (bits * np.log(2.0) + steps * self._stay) / (self.n_sites - 1)
        return z, np.log(total[bits, steps])

    def _count(self) -> tuple[FloatArray, FloatArray]:
        """Return counts of inputs, [V, bits, steps] and [passages, places, bits, steps]."""
        m, v = self.n_sites - 1, self.n_values
        most = max(self._ordinary.max(), self._entering.max(), self._staying.max())
        shape = (m * max(int(most), self._enter_bits) + 1, m + 1)
        ordinary = np.zeros((v, *shape))
        going = np.zeros((self.n_passages, m + 1, *shape))  # place 0: those past the last place
        ordinary[:, 0, 0] = 1.0
        self._enter(ordinary, going)
        for _ in range(m):
            arriving = np.zeros_like(ordinary)
            for kind, bits in enumerate(self._ordinary):
                total = ordinary[self._kind == kind].sum(axis=0)
                for value in range(v):
                    _add(arriving[value], total, int(bits[value]))
            onward = np.zeros_like(going)
            rare, sure = going[:, 1 : self.n_rare + 1], going[:, self.n_rare + 1 :]
            self._leave(arriving, rare, 0, self._entering)
            self._leave(arriving, sure, self.n_rare, self._staying)
            e = self._enter_bits
            onward[:, 2 : self.n_rare + 2, e:] = rare[:, : m - 1, : shape[0] - e]
            onward[:, self.n_rare + 2 :, :, 1:] = sure[:, :-1, :, :-1]
            done = sure[:, -1] if self.n_rare < m else rare[:, -1]
            ended = np.zeros_like(done)  # passages as long as the input; their state is never left
            if self.n_rare < m:
                ended[..., 1:] = done[..., :-1]
            else:
                ended[:, e:] = done[:, : shape[0] - e]
            self._enter(arriving, onward)
            ordinary, going = arriving, onward
            going[:, 0] = ended
        return ordinary, going

    def _enter(self, ordinary: FloatArray, going: FloatArray) -> None:
        """Move inputs whose last value begins a passage to its first place."""
        first = self.passages[:, 0]
        going[:, 1] += ordinary[first]
        ordinary[first] = 0.0

    def _leave(self, arriving: FloatArray, at: FloatArray, place: int, base: IntArray) -> None:
        """Add inputs that leave places, `at` [passages, n, bits, steps]; the first is place + 1."""
        by_value = np.zeros_like(arriving)  # by the next value of the passage
        going_on = self.passages[:, place + 1 : place + 1 + at.shape[1]]
        np.add.at(by_value, going_on, at)
        below = np.cumsum(by_value, axis=0) - by_value
        above = np.cumsum(by_value[::-1], axis=0)[::-1] - by_value
        for value in range(1, self.n_values):
            _add(arriving[value], below[value] + above[value], int(base[value]))
            _add(arriving[0], by_value[value], int(base[value]))


def _add(to: FloatArray, numbers: FloatArray, bits: int) -> None:
    """Add counts, [bits, steps], to others, shifted by some bits."""
    to[bits:] += numbers[: len(numbers) - bits]


class Paths:
    """The counterpart of a KV cache: the states of W current inputs and of W proposals.

    Attributes
    ----------
    n_walkers : int, W
    version : int, incremented whenever the current inputs change
    """

    def __init__(self, model: PlantedPassages, n_walkers: int) -> None:
        self._model, self.n_walkers, self.version = model, n_walkers, 0
        self._kept = self._new = torch.zeros((n_walkers, model.n_sites - 1), dtype=torch.int64)
        self._t = 0

    def load(self, x: torch.Tensor) -> None:
        """Make x, int64 [W, D], the current inputs."""
        self._kept, self.version = self._model.states(x), self.version + 1

    def evaluate(self, x: torch.Tensor) -> torch.Tensor:
        """Make x the current inputs; return z, float32 [W]."""
        self.load(x)
        return self._model.output(x)

    def propose(self, x: torch.Tensor, t: int) -> torch.Tensor:
        """Return z of proposals, int64 [W, D], that share the first t sites of current inputs."""
        self._new, self._t = self._model.states(x), self._model.n_sites
        return self._model.output(x)

    def begin(self, t: int) -> None:
        """Begin proposals that share the first t sites of current inputs."""
        self._new, self._t = self._kept.clone(), t

    def begin_anew(self) -> None:
        """Begin proposals that share nothing with current inputs."""
        self.begin(0)

    def row(self) -> torch.Tensor:
        """Return the row for the next value, [W, V]."""
        return self._model.rows_of(self._new[:, self._t - 1])

    def extend(self, values: torch.Tensor) -> None:
        """Append a value, int64 [W]."""
        if self._t == 0:
            self._new[:, 0] = self._model.first_state(values)
        elif self._t < self._new.shape[1]:
            self._new[:, self._t] = self._model.next_state(self._new[:, self._t - 1], values)
        self._t += 1

    def rows_after(self, values: torch.Tensor) -> Iterator[torch.Tensor]:
        """Append values, int64 [W, k]; yield the rows after each, [k, W, V]."""
        begin = self._t
        for value in values.T:
            self.extend(value)
        yield self._model.rows_of(self._new[:, begin : self._t].T)

    def current_rows(self, begin: int, end: int) -> Iterator[torch.Tensor]:
        """Yield rows begin to end - 1 of the current inputs, [end - begin, W, V]."""
        yield self._model.rows_of(self._kept[:, begin - 1 : end - 1].T)

    def accept(self, accepted: torch.Tensor | None) -> None:
        """Make the accepted proposals, bool [W], the current inputs; None accepts all."""
        if accepted is None:
            self._kept = self._new
        else:
            self._kept = torch.where(accepted[:, None], self._new, self._kept)
        self.version += 1


def planted_passages(
    device: Any,
    n_sites: int = 25,
    n_values: int = 64,
    n_passages: int = 20,
    enter_bits: int = 5,
    n_rare: int = 1,
    leave_bits: int = 5,
) -> PlantedPassages:
    """Return a `PlantedPassages`, for ``kind = "python"``, on the CPU."""
    return PlantedPassages(n_sites, n_values, n_passages, enter_bits, n_rare, leave_bits)
