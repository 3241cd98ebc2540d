"""A language model's two known constants: what a ladder must find between them by itself.

At beta = 0 all V^D inputs weigh the same; at beta = m, the number of predicted tokens, the weight
exp(-m z) is the model's own probability of them. So log Z(0) - log Z(m) = m log V exactly, and a
density that is scaled to log Z(0) alone shows whether the ladder in between is right.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.special import logsumexp

from omniinput_hpc.estimators import FloatArray
from omniinput_hpc.estimators.errors.jackknife import jackknife_error, t_quantile

if TYPE_CHECKING:
    from omniinput_hpc.estimators.density.density import Density
    from omniinput_hpc.estimators.run_data import RunData


def exact_difference(config: dict[str, Any], model_beta: float, n_values: int) -> float:
    """Return m log V, or NaN where the model's probabilities of the inputs do not add up to 1.

    They do for a decoder whose sites may take every value of its vocabulary.
    """
    model = config.get("model", {})
    every = model.get("kind") == "causal-lm" and model.get("tokens", "all") == "all"
    return model_beta * float(np.log(n_values)) if every else float("nan")


def log_constants_apart(density: Density, beta: float) -> tuple[float, float]:
    """Return log Z(0) - log Z(beta) of a density, and its standard error over lane groups.

    Z(beta) is the sum over bins of g exp(-beta z), z being a bin's mean output.

    Returns
    -------
    float, float
        In nats; the error is inf where a replicate is not known.
    """
    bins = np.flatnonzero(density.believed_b)
    weight_b = -beta * density.z_b[bins]

    def apart(log_g: FloatArray) -> FloatArray:
        of_all, weighted = log_g[..., bins], log_g[..., bins] + weight_b
        return np.asarray(logsumexp(of_all, axis=-1) - logsumexp(weighted, axis=-1))

    value = apart(density.log_g_b)
    return float(value), float(jackknife_error(value, apart(density.log_g_jb), density.lanes_g))


def describe(density: Density, run: RunData) -> list[str]:
    """Return a line that compares a run's constants with the exact ones; none if not known."""
    exact = exact_difference(run.config, run.model_beta, run.n_values)
    if not np.isfinite(exact) or not density.absolute:
        return []
    value, error = log_constants_apart(density, run.model_beta)
    interval = t_quantile(len(density.lanes_g)) * error
    within = "inside" if abs(value - exact) <= interval else "NOT inside"
    return [
        f"log Z(0) - log Z({run.model_beta:g}) = {value:.4f}, 95% interval +- {interval:.4f}; "
        f"exact {run.model_beta:g} ln {run.n_values} = {exact:.4f}, {within} the interval"
    ]
