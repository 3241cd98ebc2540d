"""Warnings after burn-in of first-order transitions that the ladder does not cross."""

from __future__ import annotations

import logging
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from omniinput_hpc.config import Config
from omniinput_hpc.parallel.comm import World
from omniinput_hpc.sampling.rung import Rung
from omniinput_hpc.sampling.stats import RoundStats
from omniinput_hpc.tempering import bridge
from omniinput_hpc.tempering.adaptation import LadderTuning

log = logging.getLogger("omniinput_hpc")


def warn_of_transitions(
    world: World,
    config: Config,
    rungs: Sequence[Rung],
    stats: RoundStats,
    tuning: LadderTuning,
) -> None:
    """Warn if the last round of burn-in saw two separate kinds of inputs (all ranks call this).

    The sign is either canonical neighbours that do not swap, or a canonical rung whose z has two
    peaks. A ladder with Gaussian rungs across the first transition is logged as well. `stats` are
    those of the round; `tuning` has the swaps, and the betas that a proposed ladder keeps.
    """
    rung_k3 = stats.parameters_k3
    if config.sampler.method != "parallel-tempering" or len(rung_k3) < 2:
        return
    if config.ladder is not None and config.ladder.lambdas is not None:
        return  # neighbours also differ by lambda, and Gaussian rungs have none
    low, high = np.clip(stats.extremes, *config.bins.edges[[0, -1]])
    if not low < high:
        return
    edges = bridge.coarse_edges(low, high)
    counts_kc = _counts_of_round(world, config, rungs, edges, len(rung_k3))
    if world.rank != 0:
        return
    number_k, sum_k, squares_k = stats.moments_k3.T
    with np.errstate(divide="ignore", invalid="ignore"):
        mean_k = sum_k / number_k
        std_k = np.sqrt(np.maximum(squares_k / number_k - mean_k**2, 0.0))
    found = bridge.transitions(rung_k3, tuning.swaps_k2, mean_k, std_k, counts_kc, edges)
    for transition in found:
        severity = "note" if transition.below == transition.above else "warning"
        log.warning("%s: %s", severity, words(transition, rung_k3[:, 0]))
    if found:
        ladder = bridge.bridged(rung_k3, found[0], tuning.fixed)
        log.warning(
            "if it does not converge, add Gaussian rungs in a new run with another run.output:\n%s",
            "\n".join(bridge.lines(ladder)),
        )


def _counts_of_round(
    world: World,
    config: Config,
    rungs: Sequence[Rung],
    edges: NDArray[np.float64],
    n_rungs: int,
) -> NDArray[np.float64]:
    """Return the round's counts of all rungs between the coarse `edges`, [K, N_COARSE]."""
    edges_b = config.bins.edges
    part_b = np.searchsorted(edges, 0.5 * (edges_b[:-1] + edges_b[1:]), side="right") - 1
    part_b = part_b.clip(0, bridge.N_COARSE - 1)
    counts_kc = np.zeros((n_rungs, bridge.N_COARSE))
    for rung in rungs:
        counts_kc[rung.k] += np.bincount(part_b, rung.histogram.counts_b, bridge.N_COARSE)
    return np.asarray(world.sum(counts_kc))


def words(transition: bridge.Transition, beta_k: NDArray[np.float64]) -> str:
    """Return a sentence that describes a transition."""
    below, above = transition.below, transition.above
    kinds = f"inputs with z = {transition.z_high:.4g} and with z = {transition.z_low:.4g}"
    if below == above:
        where = f"at beta = {beta_k[below]:.4g} (rung {below}) there are two kinds of inputs"
        return f"{where}, {kinds}, with hardly any between (a first-order transition)"
    return (
        f"rungs {below} and {above} (beta = {beta_k[below]:.4g} and {beta_k[above]:.4g}) do not "
        f"swap: {kinds} with hardly any between (a first-order transition), or too few rungs"
    )
