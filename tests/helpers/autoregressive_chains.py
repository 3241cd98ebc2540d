"""First-order autoregressive chains, whose autocorrelation time is known."""

import numpy as np


def autoregressive(n, chains, rho, rng, means=0.0):
    """Return chains [n, chains] of variance 1 with autocorrelation rho^t."""
    noise = rng.standard_normal((n, chains)) * np.sqrt(1.0 - rho**2)
    x = np.empty((n, chains))
    x[0] = rng.standard_normal(chains)
    for t in range(1, n):
        x[t] = rho * x[t - 1] + noise[t]
    return x + means
