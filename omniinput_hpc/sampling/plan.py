"""The plan of a run in words: ranks, devices, memory, file size, time; and its machine."""

from __future__ import annotations

import json
import os
import platform
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np

from omniinput_hpc import models
from omniinput_hpc.config import Config
from omniinput_hpc.config.law import Law
from omniinput_hpc.kernels.parts.gradients import MAX_DENSE_ELEMENTS
from omniinput_hpc.parallel import comm
from omniinput_hpc.parallel.comm import World
from omniinput_hpc.runfile.layout import (
    Geometry,
    free_bytes,
    size_in_bytes,
    size_of_groups,
    target_of,
)
from omniinput_hpc.runfile.writers import libraries
from omniinput_hpc.sampling.forecast import describe_time, judge
from omniinput_hpc.sampling.restart import Existing
from omniinput_hpc.sampling.shapes import bytes_of_commit, bytes_of_records
from omniinput_hpc.sampling.trial import ExchangeTrial
from omniinput_hpc.tempering.ladder import Grid
from omniinput_hpc.text import amount

LARGE_FILE = 10 * 2**30
"""Run files of this many bytes or more cause a warning."""
GRADIENT_KERNELS = {"discrete-langevin", "gibbs-with-gradients"}
"""Kernels that keep the gradient at their walkers' inputs."""
MAX_DIGITS = 30
"""Digits of a number of inputs that are shown."""
SMALLER_BY = {
    "samples": " (a larger samples.every records fewer)",
    "histogram": " (a larger bins.width, or a smaller run.histogram_blocks, takes less)",
}
"""How to make a group of datasets smaller, for messages."""


@dataclass(frozen=True)
class Plan:
    """Everything that `describe` prints."""

    config: Config
    geometry: Geometry
    devices: list[str]  # one per rank
    hosts: list[str]  # one per rank
    model_bytes: int | None  # of the weights; None if unknown
    cache_bytes: int  # of packed weights, and of the keys and values of a rank's walkers
    writer: str
    writer_reason: str  # why this writer is used
    found: Existing
    trials: str = ""  # how the number of walkers was found, if it is "auto"
    measured: str | None = None  # memory that trial moves used, if any were made
    without_anchor: str = ""  # which rung is not sampled directly, and why
    forecast: ExchangeTrial | None = None  # from trial exchanges, if any were made
    model_beta: float | None = None  # of the model's own distribution
    tokens: Sequence[str] = ()  # notes on a language model's tokens
    inside: Mapping[str, Any] = field(default_factory=dict)  # of a constrained space, as stored


def describe(plan: Plan) -> str:
    """Return the plan as readable lines."""
    c, g = plan.config, plan.geometry
    grid = Grid(g.n_rungs, c.sampler.blocks, len(plan.devices), c.sampler.whole_ladders)
    share = g.n_rungs * c.sampler.blocks // len(plan.devices)
    batch = c.sampler.block_walkers
    per_round = c.sampler.moves_per_round
    # The records of a rank's blocks and, with several blocks, the merged records that it writes
    written = len(grid.rungs(0)) if c.sampler.blocks > 1 else 0
    host = bytes_of_records(g, share / c.sampler.blocks + written)
    own, of_first = bytes_of_commit(g, len(grid.rungs(0)), len(plan.devices))
    host += own
    weights = f"{amount(plan.model_bytes)} of weights + " if plan.model_bytes is not None else ""
    kept = (
        f"{amount(plan.cache_bytes)} of keys, values and packed weights + "
        if plan.cache_bytes
        else ""
    )
    state = "new"
    if plan.found.resume:
        state = f"resumes after {plan.found.rounds} of {plan.found.rounds_planned} rounds"
        if not plan.found.rounds:
            state = f"resumes after {plan.found.burn_in} of {c.run.burn_in} burn-in rounds"
    rows = {
        "model": f"{c.model.kind}, {g.n_sites} sites of {g.n_values:,} values: "
        f"a space of 10^{g.n_sites * np.log10(g.n_values):.1f} inputs",
        "space": describe_space(plan.inside, c) if plan.inside else "",
        "output": "" if c.output is None else models.z_label(c),
        "law": "" if c.law is None else describe_law(c.law, c),
        "tokens": "; ".join(plan.tokens),
        "ladder": _ladder(c, plan.model_beta),
        "anchors": plan.without_anchor,
        "note": _without_effect(c),
        "ranks": f"{len(plan.devices)} on {len(set(plan.hosts))} host(s), {_share(grid)} each, "
        f"device {', '.join(sorted(set(plan.devices)))}, {c.run.threads} thread(s) per rank"
        + _precision(plan),
        "walkers": f"{g.n_walkers} per rung, {_batches(c)}; {g.n_walkers * g.n_rungs:,} in all"
        + (f"; {plan.trials}" if plan.trials else ""),
        "rounds": f"{_rounds(c, g.rounds, per_round)}; {g.samples_per_round:,} samples per rung "
        "and round",
        "forwards": f"{(c.run.burn_in + g.rounds) * per_round * share:,} per rank, "
        f"of {batch} inputs each",
        "memory": f"{weights}{kept}{amount(_bytes_of_arrays(c, g, share))} of logits or gradients "
        f"+ {amount(host)} of records, per rank",
        "hosts": _hosts(plan, host, of_first, share),
        "file": f"{c.run.output}, {amount(size_in_bytes(g))}, {state}; writer {plan.writer} "
        f"({plan.writer_reason})",
    }
    if plan.measured:
        rows["measured"] = plan.measured
    lines = [f"{name:<9} {text}" for name, text in rows.items() if text]
    return "\n".join(lines + _forecast(plan))


def describe_space(inside: Mapping[str, Any], config: Config) -> str:
    """Return how many inputs a constrained space has, in words; `inside` is what is stored."""
    n_inputs, share = inside["n_inputs"], inside.get("canonical_share")
    shown = f"{Decimal(n_inputs):{',' if len(n_inputs) <= MAX_DIGITS else '.4e'}}"
    drawn = "; beta = 0 draws them uniformly" if config.law is None and _draws(config) else ""
    shown += f" of these inputs, by {config.constraint}{drawn}"
    if share is None:
        return shown
    low, high = inside["canonical_share_low"], inside["canonical_share_high"]
    return f"{shown}; {share:.2%} of them are canonical ({low:.2%} to {high:.2%})"


def _without_effect(c: Config) -> str:
    """Return which keys have no effect, in words; "" if there are none."""
    ways = getattr(c.wang_landau, "proposal", "slope") != "slope"
    takes_them = [
        part.name not in ("metropolis", "from-law") and not getattr(part, "proposal_beta", None)
        for part in getattr(c.kernel, "parts", [c.kernel])
    ]
    drawn = c.sampler.method == "ancestral"
    keys = {
        "wang_landau.proposal": ways and not any(takes_them),
        "run.burn_in": drawn and c.run.burn_in,
        "ladder.anchors": drawn and getattr(c.ladder, "anchors", None) is not None,
        "[kernel]": drawn and c.kernel.names != ("metropolis",),
    }
    named = ", ".join(key for key, given in keys.items() if given)
    return named and f"without effect here: {named}"


def _draws(config: Config) -> bool:
    """Whether inputs of the rung at beta = 0 are drawn directly."""
    return config.ladder is not None and config.ladder.with_anchors and 0.0 in config.canonical_k


def describe_law(law: Law, config: Config) -> str:
    """Return what inputs are weighed by, in words."""
    name = {"model": "the [model] itself"}.get(law.kind, "")
    name = name or str(getattr(law, "path", "") or getattr(law, "factory", ""))
    words = f"inputs weigh as {name} draws them"
    if law.temperature != 1.0:
        words += f" at temperature {law.temperature:g}"
    if law.prompt is not None:
        of = getattr(law.prompt, "file", "") or getattr(law.prompt, "path", "")
        of = of or getattr(law.prompt, "factory", "") or "uniform values"
        words += f", after a prompt of {law.prompt.sites} sites from {of}"
    return f"{words}; beta = 0 is drawn from this law" if _draws(config) else words


def _forecast(plan: Plan) -> list[str]:
    """Return the lines on the trial exchanges."""
    if plan.forecast is None:
        return []
    places = Counter(zip(plan.hosts, plan.devices, strict=True))
    cpu = plan.devices[0] == "cpu"
    processors = len(plan.devices) * plan.config.run.threads if cpu else len(places)
    done = plan.found.burn_in + plan.found.rounds if plan.found.resume else 0
    words = describe_time(plan.config, plan.forecast, processors, plan.devices[0], done)
    notes = judge(plan.config, plan.forecast, plan.model_beta)
    nothing = [] if notes else ["judged    the trial moves found nothing wrong"]
    return [f"time      {words}", *nothing, *(f"judged    {note}" for note in notes)]


def _precision(plan: Plan) -> str:
    """Return a note on the precision of matrix products; "" for the default."""
    if plan.config.run.precision == "highest":
        return ""
    on_cpu = all(device == "cpu" for device in plan.devices)
    return '; precision = "tf32" has no effect on a CPU' if on_cpu else "; matrix products in TF32"


def _rounds(c: Config, rounds: int, per_round: int) -> str:
    """Return the rounds, and what a round consists of."""
    if c.sampler.method == "ancestral":
        return f"{rounds}, of {per_round:,} draws per walker"
    return (
        f"{c.run.burn_in} of burn-in + {rounds}, of {c.sampler.exchanges} exchanges x "
        f"{c.sampler.steps} moves = {per_round:,} moves per walker"
    )


def _share(grid: Grid) -> str:
    """Return the rungs and blocks that each rank holds, in words."""
    rungs = f"{len(grid.rungs(0))} rung(s)"
    if grid.n_blocks == 1:
        return rungs
    return f"{len(grid.blocks(0))} of {grid.n_blocks} blocks of {rungs}"


def _batches(config: Config) -> str:
    """Return how the walkers of a rung are split into batches, in words."""
    if config.sampler.blocks == 1:
        return "one batch"
    return f"in {config.sampler.blocks} blocks of {config.sampler.block_walkers}, each a batch"


def _bytes_of_arrays(config: Config, g: Geometry, n_batches: int) -> int:
    """Return the bytes of the float32 arrays [batch, D, n_values] of a rank.

    Most kernels need three in a move. Those in `GRADIENT_KERNELS` also keep one of each batch,
    unless it is so large that it is kept in factors. It counts twice: measured on a CPU, the
    allocator needs 1.8 times as much for it.
    """
    size = config.sampler.block_walkers * g.n_sites * g.n_values
    dense = size <= MAX_DENSE_ELEMENTS and GRADIENT_KERNELS & {*config.kernel.names}
    return (3 + 2 * n_batches if dense else 3) * 4 * size


def _hosts(plan: Plan, records: int, of_first: int, n_batches: int) -> str:
    """Return a host's peak memory, in words.

    `records` is in bytes per rank, `of_first` what the first rank needs besides. A rank moves
    `n_batches`, one after the other.
    """
    n_ranks = max(Counter(plan.hosts).values())
    if plan.model_bytes is None:
        return f"up to {n_ranks} rank(s) each; the memory of the model is not known"
    on_host = any(device == "cpu" for device in plan.devices)
    arrays = _bytes_of_arrays(plan.config, plan.geometry, n_batches)
    batch = arrays + plan.cache_bytes if on_host else 0
    # All ranks of a host load their weights into its memory first.
    need = n_ranks * (plan.model_bytes + records + batch) + of_first
    there = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    short = "" if need < there else ": too little; start fewer ranks per host"
    return (
        f"up to {n_ranks} rank(s) each, at peak {amount(need)} of memory plus the libraries; "
        f"the host of rank 0 has {amount(there)}{short}"
    )


def _ladder(config: Config, model_beta: float | None) -> str:
    """Return a description of the ladder; `model_beta` is m if it can be sampled directly."""
    windows, beta_k = config.windows, config.beta_k
    parts = [f"{len(beta_k)} rungs, {config.sampler.method}"]
    if windows:
        parts.append(f"{len(windows)} window(s) of z")
    canonical_k = beta_k[len(windows) :]
    if len(canonical_k):
        assert config.ladder is not None
        parts.append(f"beta {canonical_k.min():g} to {canonical_k.max():g}")
        if config.ladder.observable is not None:
            n, y = np.count_nonzero(config.ladder.lambda_k), config.ladder.observable
            parts.append(f"{n} of them also along {y}")
        if config.ladder.tune:
            parts.append("tuned in burn-in")
        if config.ladder.kappa is not None and any(config.ladder.kappa):
            parts.append(f"{np.count_nonzero(config.ladder.kappa)} of them Gaussian")
        if config.kernel.learns_ahead:
            parts.append("with look_ahead")
    known = {0.0, model_beta} & set(config.canonical_k.tolist())
    if not known and not config.sampler.weighs_draws:
        other = " without kappa or lambda" if 0.0 in canonical_k else ""
        parts.append(f"relative density, since no rung has beta = 0{other}")
    return ", ".join(parts)


def disk_warnings(config: Config, g: Geometry) -> list[str]:
    """Return warnings if the run file will be large, or larger than the free space.

    Early allocation is sparse on most file systems, so a full disk shows only in a later round.
    """
    need, free = size_in_bytes(g), free_bytes(target_of(Path(config.run.output)).parent)
    found = []
    if need > free:
        words = f"the run file will grow to {amount(need)}, but only {amount(free)} is free there"
        found.append(words)
    if need >= LARGE_FILE:
        largest = max(sizes := size_of_groups(g), key=lambda group: sizes[group])
        share = f"{amount(sizes[largest])} of it for {largest}"
        remedy = SMALLER_BY.get(largest, "")
        found.append(f"the run file will take {amount(need)}; {share}{remedy}")
    return found


def environment() -> dict[str, str]:
    """Return the library versions and the processor, on which a result's last bits may depend.

    `models.device.versions` adds torch and transformers, which this function must not import.
    """
    return {
        "python": platform.python_version(),
        "numpy": np.__version__,
        "h5py": libraries()["h5py"],
        "mpi": comm.library(),
        "cpu": _processor(),
    }


def gpus(world: World, mine: Mapping[str, str]) -> dict[str, str]:
    """Return the results `mine` of `models.device.gpu`, merged over ranks (all ranks call this)."""
    everywhere = [json.loads(text) for text in world.texts(json.dumps(dict(mine)))]
    keys = sorted({key for found in everywhere for key in found})
    return {
        key: ", ".join(sorted({found[key] for found in everywhere if key in found})) for key in keys
    }


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()
