"""Files of Potts models, their energies by loops, and the RNA hairpin of inputs/models."""

from __future__ import annotations

import itertools
import struct
from pathlib import Path

import numpy as np

STEM = ((0, 9), (1, 8), (2, 7))
BONDS = {"GC": 2.5, "CG": 2.5, "AU": 1.8, "UA": 1.8, "GU": 0.8, "UG": 0.8}


def random_model(n_sites=4, q=3, seed=1, scale=1.0):
    """Return h [L, q] and J [L, L, q, q], above the diagonal, float64 with five decimals."""
    random = np.random.default_rng(seed)
    h = random.normal(scale=scale, size=(n_sites, q)).round(5)
    upper = np.triu(np.ones((n_sites, n_sites)), 1)[:, :, None, None]
    return h, upper * random.normal(scale=scale, size=(n_sites, n_sites, q, q)).round(5)


def hairpin():
    """Return h and J of 10 sites of "ACGU": bonds within the stem, a loop that likes A, noise."""
    h, j = random_model(10, 4, scale=0.2)
    h[3:7, 0] += 0.5
    for (a, b), (pair, bond) in itertools.product(STEM, BONDS.items()):
        j[a, b, "ACGU".index(pair[0]), "ACGU".index(pair[1])] += bond
    return h, j


def energies(h, j, x):
    """Return -sum h_i(x_i) - sum over i < j of J_ij(x_i, x_j) of inputs [n, L], term by term."""
    pairs = list(itertools.combinations(range(len(h)), 2))
    fields = np.array([sum(h[i, a] for i, a in enumerate(row)) for row in x])
    return -fields - np.array([sum(j[i, k, row[i], row[k]] for i, k in pairs) for row in x])


def write_text(path, h, j, alphabet=None):
    """Write adabmDCA's format: values are numbers, or the letters of an alphabet."""
    n_sites, q = h.shape
    names = alphabet or [str(a) for a in range(q)]
    values = list(itertools.product(range(q), repeat=2))
    lines = [
        f"J {i} {k} {names[a]} {names[b]} {j[i, k, a, b]:.5f}"
        for i, k in itertools.combinations(range(n_sites), 2)
        for a, b in values
    ]
    lines += [f"h {i} {names[a]} {h[i, a]:.5f}" for i in range(n_sites) for a in range(q)]
    Path(path).write_text("\n".join(lines) + "\n")


def write_plmc(path, h, j, alphabet, n_sequences=3):
    """Write plmc's binary file, in the order of its script read_params.m."""
    n_sites, q = h.shape
    upper = np.triu_indices(n_sites, 1)
    parts = [
        struct.pack("<5i5f", n_sites, q, n_sequences, 0, 10, *[0.5] * 5), alphabet.encode(),
        np.ones(n_sequences, "<f4").tobytes(), b"A" * n_sites,
        np.arange(n_sites, dtype="<i4").tobytes(),
        np.full_like(h, 1 / q, "<f4").tobytes(), h.astype("<f4").tobytes(),
        np.zeros_like(j[upper], "<f4").tobytes(), j[upper].astype("<f4").tobytes(),
    ]  # fmt: skip
    Path(path).write_bytes(b"".join(parts))
