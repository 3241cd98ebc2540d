"""Recorded samples evaluated again: does the model still give the outputs in the run file."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from omniinput_hpc import models
from omniinput_hpc.config import Config
from omniinput_hpc.histogram import bin_of
from omniinput_hpc.models import device as devices
from omniinput_hpc.models.batches import evaluate
from omniinput_hpc.runfile.reader import RunReader

if TYPE_CHECKING:
    from omniinput_hpc.cli.verify import Findings


def check(run: RunReader, config: Config, n: int, findings: Findings) -> list[str]:
    """Evaluate n samples, spread over rounds and rungs, and compare; return notes, a line each.

    Raises
    ------
    UserError
        The model cannot be built.
    """
    about = models.preflight(config)
    if about["fingerprint"] != run.fingerprint:
        findings.add("model", "its files or options are others than those of the run")
    device = devices.choose("auto", 0, config.run.threads)
    model = models.build(config, device, about.get("folder"))
    if (model.n_sites, model.n_values) != (run.n_sites, run.n_values):
        findings.add(
            "model",
            f"{model.n_sites} sites of {model.n_values} values; the run's has {run.n_sites} "
            f"of {run.n_values}",
        )
        return []
    most = models.closeness(config)
    worst, n_elsewhere, n_done = 0.0, 0, 0
    for (round_, k), samples in choose(run, n).items():
        rung = range(k, k + 1)
        x_nd = run.slab("samples/x", round_, rung)[0, samples]
        if x_nd.max() >= run.n_values:  # `verify` has said so
            continue
        stored_n = run.slab("samples/z", round_, rung)[0, samples].astype(np.float64)
        z_n = evaluate(model, x_nd, run.walkers, device).astype(np.float64)
        error_n = np.abs(z_n - stored_n)
        for i in np.flatnonzero(~(error_n <= most * np.maximum(1.0, np.abs(stored_n)))):
            findings.add(
                "rescored",
                f"round {round_}, rung {k}, sample {samples[i]}: stored z = {stored_n[i]:.7g}, "
                f"the model gives {z_n[i]:.7g}",
            )
        worst = max(worst, float(error_n.max()))
        n_elsewhere += int(np.sum(bin_of(z_n, run.edges) != bin_of(stored_n, run.edges)))
        n_done += len(samples)
    return [
        f"rescored {n_done:,} samples on {device}: largest difference {worst:.2g} (tolerance "
        f"{most:g} x max(1, |z|)), {n_elsewhere} in another bin than before"
    ]


def choose(run: RunReader, n: int) -> dict[tuple[int, int], NDArray[np.int64]]:
    """Return which samples to take of each (round, rung): one at random of each n-th part of all.

    The same ones each time.
    """
    g = run.geometry
    total = run.rounds * g.n_rungs * g.samples_per_round
    n = min(n, total)
    edge = np.array([i * total // n for i in range(n + 1)], dtype=np.int64)
    flat = np.random.default_rng(1).integers(edge[:-1], edge[1:])
    part, sample = np.divmod(flat, g.samples_per_round)
    starts = np.flatnonzero(np.diff(part, prepend=-1))
    groups = zip(part[starts].tolist(), np.split(sample, starts[1:]), strict=True)
    return {divmod(p, g.n_rungs): samples for p, samples in groups}
