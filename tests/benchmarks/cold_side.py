"""Checks of a language model's run below its own text that do not rest on its error bars.

    .venv/bin/python tests/benchmarks/cold_side.py RUN.h5 [OTHER.h5] [--draws 1024] [--range 0.15]

prints, for the rungs of RUN.h5: how many standard errors the three parts of the lanes are apart;
ln Z by the density, and by independent draws of whole inputs from what `look_ahead` has learned
(an importance sample, unbiased for Z whatever was learned); the lowest bins' numbers of inputs
beside how many different ones were recorded, a lower bound; and, given a run of another seed or
method (its bins may differ), by both ln Z at the other's rungs and ln of the number of inputs in
ranges of z. `--draws 0` leaves out all that concerns RUN.h5 alone.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import numpy as np
import torch
from scipy.special import logsumexp

from omniinput_hpc import kernels
from omniinput_hpc.config import input_file
from omniinput_hpc.estimators.density.density import Density, density_of_run
from omniinput_hpc.estimators.errors.convergence import part_distances
from omniinput_hpc.estimators.errors.jackknife import jackknife_error
from omniinput_hpc.histogram import bin_of
from omniinput_hpc.kernels import DeviceStream
from omniinput_hpc.kernels.parts import conditionals
from omniinput_hpc.kernels.parts.spans import Span
from omniinput_hpc.models.table import build
from omniinput_hpc.runfile.reader import RunReader, open_run

BATCH = 128
MIN_EFFECTIVE = 50
MAX_DIFFERENT = 100
"""Inputs of a bin up to which those recorded are compared with it."""


def log_z(density: Density, beta: float) -> tuple[float, float]:
    """Return ln of the sum of g exp(-beta z), and its standard error."""
    use = density.count_b > 0
    weight = -beta * density.z_b[use]
    each = logsumexp(density.log_g_jb[:, use] + weight, axis=1)
    value = float(logsumexp(density.log_g_b[use] + weight))
    return value, float(jackknife_error(value, each, density.lanes_g))


def drawn_log_z(run: RunReader, k: int, draws: int) -> tuple[float, float, float]:
    """Return ln Z of rung k by independent draws from its psi, its error, and ESS / N."""
    config = input_file.parse(run.config_toml, "stored input")
    model: Any = build(config, "cpu")
    kernel: Any = kernels.build(config.kernel, model, BATCH)
    kernel.tuned = run.checkpoint(range(k, k + 1)).rungs[0].tuned.copy()
    m = model.n_sites - model.predicted_from
    b = torch.full((BATCH,), run.beta_k[k] / m, dtype=torch.float64)
    stream = DeviceStream(np.random.default_rng(k), torch.device("cpu"), BATCH * model.n_sites)
    x = torch.zeros((BATCH, model.n_sites), dtype=torch.int64)
    span = Span(kernel.parts.index("suffix"), 0, model.n_sites)
    ahead = kernel._look_ahead(torch.device("cpu"))
    log_w = []
    with torch.no_grad():
        for _ in range(max(1, draws // BATCH)):
            kernel._kv_cache = conditionals.kv_cache_of(kernel._offers, None, BATCH)
            cache = kernel._evaluate(x, b, run.beta_k[k], ahead)
            _, new = kernel._propose(x, b, cache, span, stream)
            log_w.append(b * new.log_p.double().sum(dim=1) - kernel._log_q(new, b, span))
    w_i = torch.cat(log_w).numpy()
    top = w_i.max()
    w = np.exp(w_i - top)
    error = w.std() / w.mean() / np.sqrt(len(w))
    return float(np.log(w.mean()) + top), float(error), float(w.sum() ** 2 / (w**2).sum() / len(w))


def print_rungs(run: RunReader, density: Density, draws: int) -> None:
    """Print the parts' distances, and ln Z by the density and by draws."""
    apart_kp = part_distances(run.lane_counts_kgb(), density.z_b, run.data.cold_starts)
    print("| beta | b | parts apart, standard errors | ln Z | by draws | ESS / N |")
    for k in np.flatnonzero(run.beta_k > run.model_beta):
        beta = float(run.beta_k[k])
        value, error = log_z(density, beta)
        drawn, drawn_error, ess = drawn_log_z(run, int(k), draws)
        print(
            f"| {beta:.2f} | {beta / run.model_beta:.3f} | "
            f"{', '.join(f'{apart:.1f}' for apart in apart_kp[k])} | {value:.3f} +- {error:.3f} | "
            f"{drawn:.3f} +- {drawn_error:.3f} | {ess:.3f} |",
            flush=True,
        )


def print_lowest(run: RunReader, density: Density) -> None:
    """Print how many inputs the lowest bins have, and how many different ones were recorded."""
    few_b = (density.count_b > 0) & (density.log_g_b < np.log(MAX_DIFFERENT))
    seen: dict[int, set[bytes]] = {int(b): set() for b in np.flatnonzero(few_b)}
    for x_ksd, z_ks in run.samples():
        x_id, bin_i = x_ksd.reshape(-1, run.n_sites), bin_of(z_ks.ravel().astype(float), run.edges)
        for i in np.flatnonzero((bin_i >= 0) & few_b[bin_i.clip(0, len(few_b) - 1)]):
            seen[int(bin_i[i])].add(x_id[i].tobytes())
    print("| z from | inputs, by the density | different ones recorded |")
    for b, inputs in seen.items():
        g, error = float(np.exp(density.log_g_b[b])), float(density.log_g_error_b[b])
        print(f"| {run.edges[b]:.4g} | {g:.2f} +- {100 * error:.0f} % | {len(inputs)} |")


def print_constants(one: Density, other: Density, beta_k: np.ndarray) -> None:
    """Print ln Z at the other run's rungs by both densities; wrong beyond the rungs of either."""
    print("| beta | ln Z | other run | standard errors apart |")
    for beta in beta_k:
        (a, a_error), (b, b_error) = log_z(one, float(beta)), log_z(other, float(beta))
        apart = (a - b) / np.hypot(a_error, b_error)
        print(f"| {beta:.2f} | {a:.3f} +- {a_error:.3f} | {b:.3f} +- {b_error:.3f} | {apart:.2f} |")


def print_ranges(one: Density, other: Density, width: float) -> None:
    """Print ln of the number of inputs in ranges of z by two runs."""
    apart = []
    print("| z from | ln inputs | other run | standard errors apart |")
    for low in np.arange(0.0, float(one.edges[-1]), width):
        found = [of_range(density, low, width) for density in (one, other)]
        if min(effective for _, _, effective in found) < MIN_EFFECTIVE:
            continue
        (a, a_error, _), (b, b_error, _) = found
        apart.append((a - b) / np.hypot(a_error, b_error))
        print(
            f"| {low:.2f} | {a:.2f} +- {a_error:.2f} | {b:.2f} +- {b_error:.2f} | {apart[-1]:.2f} |"
        )
    rms = np.sqrt(np.mean(np.square(apart)))
    print(f"{len(apart)} ranges: rms {rms:.2f}, largest {np.abs(apart).max():.2f}")


def of_range(density: Density, low: float, width: float) -> tuple[float, float, float]:
    """Return ln of the inputs with z from low on, its error, and the range's effective counts."""
    use = (density.count_b > 0) & (density.edges[:-1] >= low - 1e-9)
    use &= density.edges[1:] <= low + width + 1e-9
    if not use.any():
        return 0.0, np.inf, 0.0
    value = float(logsumexp(density.log_g_b[use]))
    error = jackknife_error(value, logsumexp(density.log_g_jb[:, use], axis=1), density.lanes_g)
    return value, float(error), float(density.effective_b[use].sum())


def main() -> None:
    """Read the runs and print the tables."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("run", type=Path)
    parser.add_argument("other", type=Path, nargs="?")
    parser.add_argument("--draws", type=int, default=1024, help="independent draws a rung")
    parser.add_argument(
        "--range", type=float, default=0.15, help="width of the ranges: a multiple of both bins'"
    )
    options = parser.parse_args()
    with open_run(options.run) as run:
        density = density_of_run(run.data)
        if options.draws > 0:
            print_rungs(run, density, options.draws)
            print_lowest(run, density)
    if options.other is not None:
        with open_run(options.other) as run:
            other = density_of_run(run.data)
            print_constants(density, other, run.beta_k)
            print_ranges(density, other, options.range)


if __name__ == "__main__":
    main()
