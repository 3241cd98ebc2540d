"""A census in this process: of a model, up to some Z, and what enumeration says."""

from __future__ import annotations

import itertools

import numpy as np

from omniinput_hpc.models import batches, offers_of
from omniinput_hpc.models.prefix_tree import PrefixTree
from omniinput_hpc.parallel.comm import World
from omniinput_zoo.census import saved
from omniinput_zoo.census.search import Search, Space

MARGIN = 1e-4
WALKERS = 64


def enumerated(model):
    """Return all inputs [n, D] in the order of numbers, and their outputs, float32 [n]."""
    x = np.array(list(itertools.product(range(model.n_values), repeat=model.n_sites)))
    return x, batches.evaluate(model, x, WALKERS, "cpu")


def search(model, below=None, margin=MARGIN, frontier=10**6, batch=16, best_first=None):
    """Return a census of a model that has done nothing yet."""
    first = offers_of(model).predicted_from
    shape = (model.n_sites, model.n_values, first)
    space = Space(*shape, below, margin, WALKERS, "cpu")
    state = saved.begin(space, np.linspace(0.0, 10.0, 101), frontier, 10**6)
    tree = PrefixTree(model, "cpu", batch, 4)
    order = below is None if best_first is None else best_first
    return Search(World(), space, model, tree, state, order)


def finish(census):
    """Make all rounds; return the found inputs as a set."""
    while census.step():
        pass
    return found(census)


def found(census, up_to=np.inf):
    """Return the found inputs with outputs up to a z, as a set of tuples; none is found twice."""
    listed = census.state.found
    rows = [tuple(row) for row in listed.x[listed.z.astype(float) <= up_to].tolist()]
    assert len(set(rows)) == len(rows)
    return set(rows)


def expected(x, z, below):
    """Return the inputs with z <= Z, by enumeration, as a set of tuples."""
    return {tuple(row) for row in x[z.astype(float) <= below].tolist()}


def thresholds(z, n):
    """Return some of the outputs themselves, where rounding decides, and numbers between them."""
    levels = np.unique(z.astype(float))
    at = levels[np.unique(np.linspace(0, len(levels) - 1, n).astype(int))]
    return [levels[0] - 0.1, *at, *(at[:-1] + 1e-3), levels[-1] + 0.1]
