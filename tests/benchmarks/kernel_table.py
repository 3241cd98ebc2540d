"""What each kernel costs and yields on language models: the Toy and the English one.

    .venv/bin/python tests/benchmarks/kernel_table.py [--models toy english] [--seconds 4]

Prints a table for each model: whole forwards and backwards a move (positions evaluated, of those of
an input), moves per second, effective samples of z per second at b = 1 and at a second b, and the
time from uniformly random inputs to within one standard deviation of the mean of z at b = 1. Chains
start in equilibrium: at b = 1 from the model's own draws; else from ancestral draws, resampled by
their weights. Means and deviations of z are those of the draws. Seconds are of the CPU on one
thread, so that what else runs on the machine counts little, and of the clock on more.
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from bench_tools import clock, write_json

from omniinput_hpc import kernels, rng
from omniinput_hpc.config import CausalLm
from omniinput_hpc.config.kernels import (
    DiscreteLangevin,
    GibbsWithGradients,
    LmConditional,
    Metropolis,
)
from omniinput_hpc.kernels import DeviceStream
from omniinput_hpc.kernels.independent import AncestralSampler, AutoregressiveSampler
from omniinput_hpc.models.language import causal_lm
from omniinput_hpc.tempering.ensembles import Canonical

WALKERS, DRAWS = 32, 4096
ANCHOR_EVERY = 10
LENGTHS = {"toy": 8, "english": 25}
SECOND_B = {"toy": 0.65 / 7, "english": 1.1}  # inputs/toy.toml's coldest rung; beyond the model
CPU = torch.device("cpu")


def lm_conditional(**weights: float) -> LmConditional:
    """Return the options of lm-conditional, with its default mixture or some weights."""
    keys = {"weights": weights} if weights else {}
    return LmConditional.model_validate({"name": "lm-conditional", **keys})


CASES: dict[str, Any] = {
    "metropolis": Metropolis(),
    "gibbs-with-gradients": GibbsWithGradients(name="gibbs-with-gradients"),
    "discrete-langevin": DiscreteLangevin(name="discrete-langevin"),
    "lm-conditional": lm_conditional(),
    "  its sites": lm_conditional(site=1.0),
    "  its blocks": lm_conditional(block=1.0),
    "  its suffixes": lm_conditional(suffix=1.0),
    "  its flips": lm_conditional(flip=1.0),
    "  with anchors": lm_conditional(),
}


class Counter:
    """Counts what a language model evaluates: positions forward, and whole inputs backward."""

    def __init__(self, model: Any) -> None:
        self.forward = self.backward = 0
        run = model._decoder.run

        def counted_run(tokens: torch.Tensor, *rest: Any) -> Any:
            self.forward += tokens.numel()
            return run(tokens, *rest)

        model._decoder.run = counted_run
        model.lm.base_model.register_forward_pre_hook(self._seen, with_kwargs=True)
        for name in ("output_and_gradient", "output_and_factors"):
            setattr(model, name, self._counted(getattr(model, name)))

    def _seen(self, module: Any, args: Any, kwargs: dict[str, Any]) -> None:
        given = args[0] if args else kwargs.get("input_ids")
        given = kwargs["inputs_embeds"] if given is None else given
        self.forward += given.shape[0] * given.shape[1]

    def _counted(self, method: Any) -> Any:
        def call(x: torch.Tensor) -> Any:
            self.backward += len(x)
            return method(x)

        return call


@dataclass(frozen=True)
class Reference:
    """Equilibrium at one b: mean and deviation of z, inputs, and how many draws' worth it is."""

    beta: float
    mean: float
    deviation: float
    x: torch.Tensor
    effective: float


def stream_of(seed: int) -> DeviceStream:
    """Return random numbers."""
    own, shared = (rng.generator(seed, purpose) for purpose in ("moves", "choices"))
    return DeviceStream(own, CPU, 1 << 16, shared)


def reference(model: Any, b: float) -> Reference:
    """Draw inputs token by token from p^b and resample them by what is missing to exp(-beta z)."""
    beta = b * (model.n_sites - model.predicted_from)
    draws = AncestralSampler(model, WALKERS, [beta])
    stream, parts = stream_of(11), []
    x = torch.zeros((WALKERS, model.n_sites), dtype=torch.int64)
    for _ in range(DRAWS // WALKERS):
        state, info = draws.step(draws.start(x, torch.zeros(WALKERS)), Canonical(beta), stream)
        parts.append((state.x, state.z.double(), info.log_q[:, 0]))
    xs, z, log_q = (torch.cat(column) for column in zip(*parts, strict=True))
    share = torch.softmax(-beta * z - log_q, 0).numpy()
    zs = z.numpy()
    mean = float(share @ zs)
    chosen = np.random.default_rng(3).choice(len(zs), size=WALKERS, p=share)
    deviation = float(np.sqrt(share @ (zs - mean) ** 2))
    return Reference(
        beta, mean, deviation, xs[torch.from_numpy(chosen)], float(1 / (share**2).sum())
    )


def moves(
    model: Any, options: Any, anchored: bool, beta: float, x: torch.Tensor, seconds: float
) -> tuple[np.ndarray, np.ndarray, float]:
    """Move walkers for some seconds; return z [T, W], seconds after each [T], acceptance."""
    kernel, stream, ensemble = kernels.build(options, model, len(x)), stream_of(5), Canonical(beta)
    anchor = AutoregressiveSampler(model, len(x)) if anchored else None
    state = kernel.start(x, model.output(x))
    z, times, accepted = [], [], 0
    begin = clock()
    while not times or times[-1] < seconds:
        if anchor is not None and len(z) % ANCHOR_EVERY == ANCHOR_EVERY - 1:
            state, info = anchor.step(state, ensemble, stream)
            state = kernel.start(state.x, state.z)
        else:
            state, info = kernel.step(state, ensemble, stream)
        z.append(state.z.numpy().copy())
        times.append(clock() - begin)
        accepted += int(info.accepted.sum())
    return np.array(z), np.array(times), accepted / (len(z) * len(x))


def autocorrelation_time(z_tw: np.ndarray, at: Reference) -> tuple[float, bool]:
    """Return tau, in moves, by Sokal's window, about the known mean; and whether T is enough."""
    t = len(z_tw)
    d = z_tw.astype(np.float64) - at.mean
    spectrum = np.abs(np.fft.rfft(d, 2 * t, axis=0)) ** 2
    covariance = np.fft.irfft(spectrum, axis=0)[:t].mean(axis=1) / np.arange(t, 0, -1)
    tau = 2 * np.cumsum(covariance / at.deviation**2) - 1
    window = np.flatnonzero(np.arange(t) >= 5 * tau)
    if not len(window):
        return max(float(tau.max()), 1.0), False
    return max(float(tau[window[0]]), 1.0), t > 20 * tau[window[0]]


def row_of(
    model: Any, counter: Counter, name: str, at: list[Reference], seconds: float
) -> dict[str, Any]:
    """Measure one kernel."""
    options, anchored = CASES[name], "anchors" in name
    row: dict[str, Any] = {"kernel": name}
    for label, one in zip(("b1", "b2"), at[: 1 if anchored else 2], strict=False):
        if isinstance(options, DiscreteLangevin):
            options = tuned(model, options, one)
        counter.forward = counter.backward = 0
        z, times, acceptance = moves(model, options, anchored, one.beta, one.x, seconds)
        n = z.size
        tau, enough = autocorrelation_time(z, one)
        row[f"ess_{label}"], row[f"enough_{label}"] = n / tau / times[-1], enough
        row[f"accepted_{label}"] = acceptance
        if label == "b1":
            row["forwards"] = counter.forward / (n * (model.n_sites - 1))
            row["backwards"] = counter.backward / n
            row["moves_per_s"] = n / times[-1]
    random = rng.generator(7, "start").integers(model.n_values, size=at[0].x.shape)
    z, times, _ = moves(model, options, anchored, at[0].beta, torch.from_numpy(random), seconds)
    there = np.flatnonzero(np.abs(z.mean(axis=1) - at[0].mean) < at[0].deviation)
    row["from_random_s"] = float(times[there[0]]) if len(there) else None
    row["z_at_end"] = float(z[-1].mean())
    return row


def tuned(model: Any, options: DiscreteLangevin, at: Reference) -> DiscreteLangevin:
    """Return the options with the step size that burn-in would find."""
    kernel, stream = kernels.build(options, model, WALKERS), stream_of(9)
    state = kernel.start(at.x, model.output(at.x))
    for _ in range(12):
        accepted = 0
        for _ in range(3):
            state, info = kernel.step(state, Canonical(at.beta), stream)
            accepted += int(info.accepted.sum())
        kernel.adapt(np.array([3 * WALKERS]), np.array([accepted]))
    return options.model_copy(update={"step_size": float(kernel.tuned[0])})


def shown(row: dict[str, Any], label: str) -> str:
    """Return effective samples per second for the table."""
    if f"ess_{label}" not in row:
        return "-"
    return f"{'' if row[f'enough_{label}'] else '< '}{row[f'ess_{label}']:,.3g}"


def measure(name: str, seconds: float) -> dict[str, Any]:
    """Measure all kernels on one model and print the table."""
    options = CausalLm(kind="causal-lm", path=f"inputs/models/{name}", length=LENGTHS[name])
    model = causal_lm.build(options, "cpu")
    at = [reference(model, 1.0), reference(model, SECOND_B[name])]
    b2 = SECOND_B[name]
    print(f"\n{name}: {WALKERS} walkers, {torch.get_num_threads()} thread(s), {seconds:g} s each")
    for b, one in zip((1.0, b2), at, strict=True):
        print(
            f"b = {b:.3g}: mean z {one.mean:.3f}, deviation {one.deviation:.3f} "
            f"({one.effective:,.0f} effective of {DRAWS:,} ancestral draws)"
        )
    print(
        "| kernel | forwards, backwards a move | moves/s | accepted | effective/s, b = 1 "
        f"| b = {b2:.3g} | from random, s |\n| --- | --- | --- | --- | --- | --- | --- |"
    )
    counter, rows = Counter(model), []
    for case in CASES:
        row = row_of(model, counter, case, at, seconds)
        rows.append(row)
        arrived = row["from_random_s"]
        reached = f"{arrived:.2f}" if arrived is not None else f"> {seconds:g}"
        print(
            f"| {case} | {row['forwards']:.2f}, {row['backwards']:.0f} | {row['moves_per_s']:,.0f} "
            f"| {row['accepted_b1']:.0%} | {shown(row, 'b1')} | {shown(row, 'b2')} "
            f"| {reached} (z = {row['z_at_end']:.2f}) |",
            flush=True,
        )
    ess = {row["kernel"]: row["ess_b1"] for row in rows}
    ratio = ess["lm-conditional"] / ess["gibbs-with-gradients"]
    print(f"lm-conditional over gibbs-with-gradients, effective samples/s at b = 1: {ratio:.3g}")
    return {"model": name, "b": [1.0, b2], "seconds": seconds, "rows": rows, "ratio": ratio}


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--models", nargs="+", choices=sorted(LENGTHS), default=["toy", "english"])
    parser.add_argument("--seconds", type=float, default=4.0, help="of each measurement")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    results = [measure(name, options.seconds) for name in options.models]
    write_json(options.json, results)


if __name__ == "__main__":
    main()
