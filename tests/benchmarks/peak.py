"""The share of the machine's measured matrix peak that moves of a GPT-2-small-shaped model reach.

    .venv/bin/python tests/benchmarks/peak.py [--walkers 128] [--moves 8] [--threads 1]

Random weights, 25 tokens of 50,257. The floor is the multiplications of the matrices alone, for the
tokens that the moves must evaluate (a position that changed, and the output rows that are wanted),
at the speed of a large product of matrices on this machine, measured before, between and after. The
rest of the time is everything else. Seconds are of the CPU on one thread, of the clock on more.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import torch
from transformers import GPT2Config, GPT2LMHeadModel

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from omniinput_hpc import kernels, streams
from omniinput_hpc.config import CausalLm
from omniinput_hpc.config.kernels import LmConditional, Metropolis
from omniinput_hpc.ensembles import Canonical
from omniinput_hpc.kernels import DeviceStream
from omniinput_hpc.models import causal_lm
from omniinput_hpc.models.trunks import Linear

LENGTH, SIZE = 25, 2048


def clock() -> float:
    """Return seconds (see the module's docstring)."""
    return time.process_time() if torch.get_num_threads() == 1 else time.perf_counter()


def peak(weights: Linear, x: torch.Tensor) -> float:
    """Return operations per second of a large product, the best of a few."""
    seconds = []
    for _ in range(4):
        begin = clock()
        weights(x)
        seconds.append(clock() - begin)
    return 2.0 * SIZE**3 / min(seconds)


class Operations:
    """Counts the multiplications and additions of a trunk's matrices."""

    def __init__(self, trunk: Any, lm: Any) -> None:
        self.done = 0.0
        block = sum(p.numel() for p in lm.transformer.h.parameters() if p.dim() == 2)
        row = lm.lm_head.weight.numel()
        run, head = trunk.run, trunk.head

        def counted_run(tokens: torch.Tensor, *rest: Any) -> Any:
            self.done += 2.0 * block * tokens.numel()
            return run(tokens, *rest)

        def counted_head(hidden: torch.Tensor) -> Any:
            self.done += 2.0 * row * hidden[..., 0].numel()
            return head(hidden)

        trunk.run, trunk.head = counted_run, counted_head


def small_model(folder: str) -> Any:
    """Return GPT-2 small with random weights."""
    torch.manual_seed(1)
    GPT2LMHeadModel(GPT2Config()).save_pretrained(folder)
    return causal_lm.build(CausalLm(kind="causal-lm", path=folder, length=LENGTH), "cpu")


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--walkers", type=int, default=128)
    parser.add_argument("--moves", type=int, default=8)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    large, x = Linear(torch.randn(SIZE, SIZE), None), torch.randn(SIZE, SIZE)
    peak(large, x)
    with tempfile.TemporaryDirectory() as folder:
        model = small_model(folder)
    counted = Operations(model._trunk, model.lm)
    n, beta = options.walkers, float(LENGTH - 1)
    print(f"GPT-2 small's shape, {n} walkers, {options.threads} thread(s)")
    print("| kernel | ms a move of each walker | moves/s | Gflop/s | peak | share |")
    print("| --- | --- | --- | --- | --- | --- |")
    rows = []
    for table in (Metropolis(), LmConditional(name="lm-conditional")):
        kernel = kernels.build(table, model, n)
        own, shared = (streams.generator(3, purpose) for purpose in ("moves", "choices"))
        stream = DeviceStream(own, torch.device("cpu"), 1 << 16, shared)
        start = streams.generator(3, "start").integers(model.n_values, size=(n, LENGTH))
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
    if options.json is not None:
        options.json.write_text(json.dumps(rows, indent=1))


if __name__ == "__main__":
    main()
