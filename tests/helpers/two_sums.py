"""A model with an observable: both are sums over sites, so that their joint density is exact."""

import numpy as np
import torch

Z_V, Y_V = np.array([0, 1, 1, 3]), np.array([0, 1, 3, 0])
"""What each value adds to z, in units of `UNIT`, and to y."""
UNIT = 0.25


class TwoSums:
    """z = UNIT times a sum over sites."""

    n_values = len(Z_V)

    def __init__(self, n_sites):
        self.n_sites = n_sites
        self._z_v = torch.from_numpy(Z_V).float() * UNIT

    def output(self, x):
        return self._z_v.to(x.device)[x].sum(dim=1)


def model(device, n_sites=12):
    """Return the model, for ``[model] kind = "python"``."""
    return TwoSums(n_sites)


def y(x):
    """The observable of inputs, int64 [n, D]."""
    return Y_V[x].sum(axis=1).astype(float)


def log_counts(n_sites):
    """Return ln of the number of inputs with each z / UNIT and y, float64 [., .]."""
    count = np.ones((1, 1))
    for _ in range(n_sites):
        wider = np.zeros(np.add(count.shape, (Z_V.max(), Y_V.max())))
        for dz, dy in zip(Z_V, Y_V, strict=True):
            wider[dz : dz + count.shape[0], dy : dy + count.shape[1]] += count
        count = wider
    with np.errstate(divide="ignore"):
        return np.log(count)


def log_g(n_sites, z_edges, y_edges):
    """Return ln of the number of inputs in cells, float64 [B, C]."""
    log_n = log_counts(n_sites)
    found = np.full((len(z_edges) - 1, len(y_edges) - 1), -np.inf)
    for i, j in zip(*np.nonzero(np.isfinite(log_n)), strict=True):
        b = np.searchsorted(z_edges, i * UNIT, side="right") - 1
        c = np.searchsorted(y_edges, j, side="right") - 1
        c -= j == y_edges[-1]
        if 0 <= b < found.shape[0] and 0 <= c < found.shape[1]:
            found[b, c] = np.logaddexp(found[b, c], log_n[i, j])
    return found
