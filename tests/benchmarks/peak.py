"""The share of the machine's measured matrix peak that moves of a language model reach.

    .venv/bin/python tests/benchmarks/peak.py [--walkers 128] [--moves 8] [--threads 1]
    .venv/bin/python tests/benchmarks/peak.py --model olmo-1b --dtype bfloat16 --walkers 8 --moves 4

GPT-2 small's shape or OLMo-1B's (1.18 billion numbers: 2.4 GB in bfloat16, 4.7 GB in float32, and
as much again on the disk for some seconds), random weights, 25 tokens of 50,257 or 50,304. The
floor is the multiplications of the matrices alone, for the tokens that the moves must evaluate (a
position that changed, and the output rows that are wanted), at the speed of a large product of
matrices on this machine, measured before, between and after. The rest of the time is everything
else. Seconds are of the CPU on one thread, of the clock on more.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path
from typing import Any

import torch
from bench_tools import SHAPES, clock, machine, save_gpt2, save_olmo_1b, write_json

from omniinput_hpc import kernels, rng
from omniinput_hpc.config import CausalLm
from omniinput_hpc.config.kernels import LmConditional, Metropolis
from omniinput_hpc.kernels import DeviceStream
from omniinput_hpc.models.language import causal_lm
from omniinput_hpc.models.language.packed import Linear
from omniinput_hpc.tempering.ensembles import Canonical

LENGTH, SIZE = 25, 2048


def peak(weights: Linear, x: torch.Tensor) -> float:
    """Return operations per second of a large product, the best of a few."""
    seconds = []
    for _ in range(4):
        begin = clock()
        weights(x)
        seconds.append(clock() - begin)
    return 2.0 * SIZE**3 / min(seconds)


class Operations:
    """Counts the multiplications and additions of a decoder's matrices."""

    def __init__(self, decoder: Any, lm: Any) -> None:
        self.done = 0.0
        tables = ("wte", "wpe", "embed_tokens")  # looked up, not multiplied with
        block = sum(
            p.numel()
            for name, p in lm.base_model.named_parameters()
            if p.dim() == 2 and not any(table in name for table in tables)
        )
        row = lm.get_output_embeddings().weight.numel()
        run, head = decoder.run, decoder.head

        def counted_run(tokens: torch.Tensor, *rest: Any) -> Any:
            self.done += 2.0 * block * tokens.numel()
            return run(tokens, *rest)

        def counted_head(hidden: torch.Tensor) -> Any:
            self.done += 2.0 * row * hidden[..., 0].numel()
            return head(hidden)

        decoder.run, decoder.head = counted_run, counted_head


def random_model(name: str, dtype: str) -> Any:
    """Return a model of random weights."""
    with tempfile.TemporaryDirectory() as folder:
        if name == "olmo-1b":
            save_olmo_1b(Path(folder), dtype)
        else:
            save_gpt2(Path(folder), LENGTH, **SHAPES[name])
        options = CausalLm(kind="causal-lm", path=folder, length=LENGTH, dtype=dtype)
        return causal_lm.build(options, "cpu")


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", choices=["gpt2-small", "olmo-1b"], default="gpt2-small")
    parser.add_argument("--dtype", choices=["float32", "bfloat16"], default="float32")
    parser.add_argument("--walkers", type=int, default=128)
    parser.add_argument("--moves", type=int, default=8)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    dtype = getattr(torch, options.dtype)
    large = Linear(torch.randn(SIZE, SIZE, dtype=dtype), None)
    x = torch.randn(SIZE, SIZE, dtype=dtype)
    peak(large, x)
    model = random_model(options.model, options.dtype)
    counted = Operations(model._decoder, model.lm)
    n, beta = options.walkers, float(LENGTH - 1)
    print(
        f"{machine()}\n{options.model}, {options.dtype}, {n} walkers, {options.threads} thread(s)"
    )
    print("| kernel | ms a move of each walker | moves/s | Gflop/s | peak | share |")
    print("| --- | --- | --- | --- | --- | --- |")
    rows = []
    for table in (Metropolis(), LmConditional(name="lm-conditional")):
        kernel = kernels.build(table, model, n)
        own, shared = (rng.generator(3, purpose) for purpose in ("moves", "choices"))
        stream = DeviceStream(own, torch.device("cpu"), 1 << 16, shared)
        start = rng.generator(3, "start").integers(model.n_values, size=(n, LENGTH))
        x_start = torch.from_numpy(start)
        state = kernel.start(x_start, model.output(x_start))
        state, _ = kernel.step(state, Canonical(beta), stream)
        peaks = [peak(large, x)]
        counted.done, seconds = 0.0, 0.0
        for move in range(options.moves):
            begin = clock()
            state, _ = kernel.step(state, Canonical(beta), stream)
            seconds += clock() - begin
            if move % 4 == 3:
                peaks.append(peak(large, x))
        top = sorted(peaks)[len(peaks) // 2]
        speed = counted.done / seconds
        row = {"kernel": table.name, "seconds": seconds / options.moves, "flops": speed,
               "peak": top, "share": speed / top}  # fmt: skip
        rows.append(row)
        print(
            f"| {table.name} | {1e3 * seconds / options.moves / n:.1f} | "
            f"{n * options.moves / seconds:.1f} | {speed / 1e9:.0f} | {top / 1e9:.0f} | "
            f"{speed / top:.0%} |",
            flush=True,
        )
    write_json(options.json, rows)


if __name__ == "__main__":
    main()
