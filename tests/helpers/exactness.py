"""The exact transition matrix of a kernel, as a black box, by scripting its random numbers.

A kernel draws a proposal by a few uniform numbers, and then compares one more with its acceptance
ratio. As a function of one uniform number, with those before it fixed, what a draw yields is a step
function; its steps are found by bisection, and so is the acceptance probability. Where a step is
guessed, two numbers beside it decide whether it is there; a wrong guess only costs time.
So the tree of all outcomes is walked, all inputs and all branches as one batch. What comes out is
the exact distribution of the code that runs, whatever its formulas.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch

from omniinput_hpc.kernels.parts.tilt import log_tilt
from omniinput_hpc.models import law_of

BITS = 40
"""Steps are found to 1e-12, a hundredth of what `check_matrix` tells apart."""
GUESSED_BITS = 32
"""A guess that follows from steps found is good to so many."""
BITS_AT_ONCE = ((1000, 1), (200, 2), (0, 3))
"""How many bits a call decides, from so many rows on: few rows take as long as some more."""


class ScriptedStream:
    """Hands out prepared uniform numbers, [W] each, in place of random ones."""

    def __init__(self, columns, choices=()):
        self.columns, self.choice_list = list(columns), list(choices)

    def uniform(self, *shape):
        n_columns = int(np.prod(shape)) // len(self.columns[0])
        if n_columns <= 1:
            return self.columns.pop(0).view(shape)
        taken = torch.stack([self.columns.pop(0) for _ in range(n_columns)], dim=1)
        return taken.view(shape)

    def integers(self, high, *shape):
        return (self.uniform(*shape) * high).long()

    def shared_uniform(self, n):
        return np.array([self.choice_list.pop(0) for _ in range(n)])


@dataclass(frozen=True)
class Draw:
    """One uniform number of a kernel.

    Attributes
    ----------
    n : how many outcomes it decides between
    outcome : function of (x, x') that returns which one it was, int64 [W] in 0..n-1,
        nondecreasing in the uniform number
    of_x_alone : whether its steps are guessed to be the same whatever was drawn before
    """

    n: int
    outcome: object
    of_x_alone: bool = False


def site_changed(x, x_new):
    return (x != x_new).int().argmax(dim=1)


def value_given(x, x_new):
    """Return the new value at the site that changed."""
    return x_new.gather(1, site_changed(x, x_new)[:, None])[:, 0]


def shift_of_value(n_values):
    """Return an outcome: how far the value went up, cyclically, less 1."""

    def outcome(x, x_new):
        old = x.gather(1, site_changed(x, x_new)[:, None])[:, 0]
        return (value_given(x, x_new) - old - 1) % n_values

    return outcome


def value_at(site):
    return lambda x, x_new: x_new[:, site]


def bisect(true_below, n, low=0.0, bits=BITS):
    """Return the smallest u, float64 [n], at which true_below(u, row) fails; to 2^-BITS.

    It lies within 2^(bits - BITS) above `low`, or [n] of these. Where rows are few, a call decides
    several bits: it is given 2^bits - 1 points of each row, in one batch, since a move of few
    walkers takes as long as one of many.
    """
    low, width = low + torch.zeros(n, dtype=torch.float64), 2.0 ** (bits - BITS)
    at_once = next(at_once for n_rows, at_once in BITS_AT_ONCE if n >= n_rows)
    while bits:
        now = min(at_once, bits)
        bits -= now
        n_points = 2**now - 1
        width /= n_points + 1
        points = low + width * torch.arange(1, n_points + 1, dtype=torch.float64)[:, None]
        below = true_below(points.flatten(), torch.arange(n).repeat(n_points))
        low = low + width * below.view(n_points, n).sum(dim=0)
    return low + width


def find_steps(true_below, guess):
    """Return what `bisect` does, of as many rows as there are guesses, float64 [n].

    Guesses are tried as they are, then as good to `GUESSED_BITS`, as those from steps found are.
    """
    found = guess.clone()
    rows = torch.arange(len(guess))
    for bits in (0, BITS - GUESSED_BITS):
        half = 2.0 ** (bits - BITS - 1) if bits else 2.0**-BITS
        low, n = (guess[rows] - half).clamp(min=0.0), len(rows)
        points = torch.cat([low, guess[rows] + half])
        below, above = true_below(points, rows.repeat(2)).view(2, n)
        right = (below | (guess[rows] <= half)) & ~above
        some = rows[right]
        if bits and len(some):
            found[some] = bisect(of(true_below, some), len(some), low[right], bits)
        rows = rows[~right]
        if not len(rows):
            return found
    found[rows] = bisect(of(true_below, rows), len(rows))
    return found


def of(true_below, some):
    return lambda u, row: true_below(u, some[row])


@dataclass
class Branches:
    """A batch of partly decided moves: where they began, the numbers so far, the probability."""

    origin: torch.Tensor
    columns: list
    probability: torch.Tensor

    def some(self, row):
        columns = [column[row] for column in self.columns]
        return Branches(self.origin[row], columns, self.probability[row])

    def repeat(self, n):
        return self.some(torch.arange(len(self.origin)).repeat_interleave(n))


class Explorer:
    """Walks the tree of a kernel's outcomes from every input.

    Parameters
    ----------
    model : if some proposals have probability 0, its attribute `proposed` must hold the inputs that
        it evaluated last, since then x' does not show them
    draws : the uniform numbers before the accepting one, in order
    choices : the numbers that all walkers share
    start : function of (kernel, x, z) that makes the state to move from
    """

    def __init__(self, kernel, model, ensemble, draws, choices=(), start=None):
        self.kernel, self.model, self.ensemble = kernel, model, ensemble
        self.draws, self.choices = draws, choices
        self.start = start or (lambda kernel, x, z: kernel.start(x, z))
        self.x = model.all_inputs()

    def move(self, branches, columns):
        x = self.x[branches.origin]
        state = self.start(self.kernel, x, self.model.output(x))
        stream = ScriptedStream(columns, self.choices)
        new, info = self.kernel.step(state, self.ensemble, stream)
        return x, new, info

    def propose(self, branches, extra):
        """Return x and x' of an accepted move, numbers not yet decided being 1/2."""
        n = len(branches.origin)
        half = torch.full((n,), 0.5, dtype=torch.float64)
        columns = [*branches.columns, *extra]
        rest = [half] * (len(self.draws) - len(columns))
        x, new, _ = self.move(branches, [*columns, *rest, torch.zeros_like(half)])
        return x, getattr(self.model, "proposed", new.x)

    def edges(self, branches, draw, guess):
        """Return where the outcomes of a draw end, float64 [branches, n]."""
        many = branches.repeat(draw.n - 1)
        outcome = torch.arange(draw.n - 1).repeat(len(branches.origin))

        def not_beyond(u, row):
            return draw.outcome(*self.propose(many.some(row), [u])) <= outcome[row]

        edge = guess.clone()
        edge[:, :-1] = find_steps(not_beyond, guess[:, :-1].flatten()).view(-1, draw.n - 1)
        return edge

    def split(self, branches, draw):
        """Decide one more draw: n branches for each one."""
        edge = torch.ones((len(branches.origin), draw.n), dtype=torch.float64)
        if draw.n > 1:  # the last outcome ends at 1
            evenly = torch.arange(1, draw.n, dtype=torch.float64) / draw.n
            edge[:, :-1] = evenly
            if draw.of_x_alone:
                first = torch.searchsorted(branches.origin, branches.origin.unique())
                edge = self.edges(branches.some(first), draw, edge[first])[branches.origin]
            edge = self.edges(branches, draw, edge)
        below = torch.cat([torch.zeros_like(edge[:, :1]), edge[:, :-1]], dim=1)
        width = edge - below
        middle = (below + width / 2).flatten()
        probability = branches.probability[:, None] * width
        many = branches.repeat(draw.n)
        return Branches(many.origin, [*many.columns, middle], probability.flatten())

    def number_of(self, x):
        weights = [self.model.n_values**i for i in range(x.shape[1] - 1, -1, -1)]
        return (x * torch.tensor(weights)).sum(dim=1)

    def balanced(self, branches, to):
        """Return Metropolis and Hastings' acceptance probabilities, float64 [branches]."""
        n, pi = len(self.x), torch.from_numpy(distribution(self.model, self.ensemble))
        proposed = torch.zeros((n, n), dtype=torch.float64)
        proposed.index_put_((branches.origin, to), branches.probability, accumulate=True)
        flow = pi[:, None] * proposed
        return (flow.T / flow)[branches.origin, to].nan_to_num(0.0).clamp(max=1.0)

    def matrix(self):
        """Return P [n, n] over all inputs."""
        n = len(self.x)
        branches = Branches(torch.arange(n), [], torch.ones(n, dtype=torch.float64))
        for draw in self.draws:
            branches = self.split(branches, draw)
            keep = branches.probability > 0
            branches = Branches(
                branches.origin[keep],
                [column[keep] for column in branches.columns],
                branches.probability[keep],
            )
        _, proposed = self.propose(branches, [])

        def accepted(u, row):
            some = branches.some(row)
            return self.move(some, [*some.columns, u])[2].accepted

        a = torch.ones(len(proposed), dtype=torch.float64)
        last = torch.full_like(a, 1 - 2.0**-BITS)
        (rest,) = torch.where(~accepted(last, torch.arange(len(a))))  # few are, in most kernels
        if len(rest):
            guess = self.balanced(branches, self.number_of(proposed))
            a[rest] = find_steps(lambda u, row: accepted(u, rest[row]), guess[rest])
        a[a <= 2.0**-BITS] = 0.0
        old = self.x[branches.origin]
        possible = torch.where((a > 0)[:, None], proposed, old)
        for u, expected in ((a / 2, possible), ((1 + a) / 2, old)):
            _, new, _ = self.move(branches, [*branches.columns, u])
            some = u < 1 - 1e-15
            assert torch.equal(new.x[some], expected[some]), "neither moved nor stayed: no balance"
        to, origin = self.number_of(proposed).numpy(), branches.origin.numpy()
        p = np.zeros((n, n))
        np.add.at(p, (origin, to), (branches.probability * a).numpy())
        np.add.at(p, (origin, origin), (branches.probability * (1 - a)).numpy())
        return p


def distribution(model, ensemble):
    """Return the ensemble's distribution over all inputs, float64 [n]."""
    x = model.all_inputs()
    log_weight = ensemble.log_weight(model.output(x).double()).numpy()
    law = law_of(model)
    if getattr(law, "base", law) is not None:
        log_weight = log_weight + law.log_q_sites(x, None).sum(dim=1).numpy()
    log_weight = log_weight + np.asarray(log_tilt(law, x))
    pi = np.exp(log_weight - log_weight.max())
    return pi / pi.sum()


def check_matrix(p, pi, irreducible=True):
    """Assert that p satisfies detailed balance for pi, accepts moves, and is irreducible."""
    assert np.abs(p.sum(axis=1) - 1).max() < 1e-12, "rows do not sum to 1"
    assert 0.5 * np.abs(pi @ p - pi).sum() < 1e-10, "the ensemble is not invariant"
    flow = pi[:, None] * p
    assert np.abs(flow - flow.T).max() < 1e-10, "no detailed balance"
    assert 1 - np.trace(p) / len(p) > 0.01, "hardly anything is accepted"
    if irreducible:
        reach = np.linalg.matrix_power((p > 0).astype(float) + np.eye(len(p)), len(p))
        assert (reach > 0).all(), "not irreducible"


def check_exact(kernel, model, ensemble, draws, choices=(), irreducible=True, start=None):
    """Assert that a kernel satisfies detailed balance in the ensemble; return its matrix."""
    p = Explorer(kernel, model, ensemble, draws, choices, start).matrix()
    check_matrix(p, distribution(model, ensemble), irreducible)
    return p


def check_sites(kernel_at, model, ensemble, irreducible=True, start=None):
    """Assert the same of the mean of kernels that redraw one site; `kernel_at` makes that of one.

    Return the mean matrix.
    """
    together, n = 0.0, model.n_sites
    for site in range(n):
        draws = [Draw(model.n_values, value_at(site))]
        together += check_exact(kernel_at(site), model, ensemble, draws, (), False, start) / n
    check_matrix(together, distribution(model, ensemble), irreducible)
    return together


def check_alone(kernel, model, ensemble, n_draws, choices=(), n_walkers=64):
    """Assert that each walker of a batch moves as it would alone, to the last bit.

    With it, what is known of a batch of all inputs is known of a batch of any.
    """
    random = torch.Generator().manual_seed(3)
    everything = model.all_inputs()
    x = everything[torch.randint(len(everything), (n_walkers,), generator=random)]
    u = [torch.rand(n_walkers, generator=random, dtype=torch.float64) for _ in range(n_draws + 1)]

    def move(some):
        state = kernel.start(x[some], model.output(x[some]))
        stream = ScriptedStream([column[some] for column in u], choices)
        return kernel.step(state, ensemble, stream)

    together, info = move(slice(None))
    for w in range(n_walkers):
        alone, alone_info = move(slice(w, w + 1))
        assert torch.equal(alone.x[0], together.x[w]), "the walkers of a batch are mixed"
        assert torch.equal(alone.z[0], together.z[w]), "the walkers of a batch are mixed"
        assert alone_info.accepted[0] == info.accepted[w], "the walkers of a batch are mixed"
    assert torch.allclose(together.z, model.output(together.x), rtol=1e-6, atol=0), "a stale z"


@dataclass(frozen=True)
class Gaussian:
    """Log-weight -beta z - kappa (z - z0)^2 / 2: the slope differs from walker to walker."""

    beta: float = 0.7
    kappa: float = 0.4
    z0: float = -0.5

    def log_weight(self, z):
        return -self.beta * z - 0.5 * self.kappa * (z - self.z0) ** 2

    def slope(self, z):
        return self.beta + self.kappa * (z - self.z0)


class Tabulated:
    """A frozen flat-histogram ensemble: log-weights per bin, and slopes from their differences."""

    def __init__(self, lower=-8.0, upper=8.0, n_bins=16):
        random = np.random.default_rng(2)
        self.lower, self.width = lower, (upper - lower) / n_bins
        self.table = torch.from_numpy(np.cumsum(random.normal(size=n_bins)))
        self.slopes = -torch.gradient(self.table, spacing=self.width)[0]

    def _bin(self, z):
        return ((z - self.lower) / self.width).long().clamp(0, len(self.table) - 1)

    def log_weight(self, z):
        return self.table[self._bin(z)]

    def slope(self, z):
        return self.slopes[self._bin(z)]


def exact_distribution(model, beta):
    """Return exp(-beta z) of all inputs of a small model, normalized, float64 [V^D]."""
    log_p = -beta * model.output(model.all_inputs()).double()
    return (log_p - log_p.logsumexp(0)).exp().numpy()
