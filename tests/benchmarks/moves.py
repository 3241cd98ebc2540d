"""Moves per second of kernels on language models, beside those of another checkout.

    .venv/bin/python tests/benchmarks/moves.py [--other FOLDER] [--models toy] [--threads 1]
        [--json FILE]
    .venv/bin/python tests/benchmarks/moves.py --recording

The Toy, the English model, one of Llama's shape with random weights (47 million numbers, 8 heads
that share 4 of keys and values, 32,000 tokens), and a model that costs next to nothing: the Ising
model on a square lattice, which says how z changes with a site ("ising-whole" does not). Prints a
table: milliseconds per move of W walkers, moves per second, and, where --other names the root of
another checkout, how many times more that is than its own. Both are timed in turn, each in a
process of its own, so that a drift of the machine's speed cancels; seconds are of the CPU on one
thread, of the clock on more. Recording is included, the histogram and exchange are not.
`--recording` prints what the histogram takes of a segment of 100 moves of 64 walkers: all cells
added, and only those met, in turn in one process.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parents[2]
REPEATS = 5
TEMPLATE = """
[run]
output = "unused.h5"
seed = 1
rounds = 1
[model]
{model}
[sampler]
walkers = {walkers}
steps = 10
exchanges = 1
[ladder]
betas = [{beta}]
[kernel]
name = "{kernel}"
[bins]
lower = -20.0
upper = 20.0
width = 0.1
[samples]
every = 10
"""
LANGUAGE_MODEL = 'kind = "causal-lm"\npath = "{path}"\nlength = {length}'
ISING = 'kind = "python"\nfactory = "ising:{factory}"\noptions = {{side = {length}}}'
CASES = [
    # model, length (a side of the lattice), walkers, beta, kernel, moves per timing
    ("toy", 8, 256, 0.5, "metropolis", 30),
    ("toy", 8, 256, 0.5, "lm-conditional", 30),
    ("english", 25, 64, 24.0, "metropolis", 10),
    ("english", 25, 64, 24.0, "lm-conditional", 20),
    ("llama", 25, 16, 24.0, "metropolis", 3),
    ("llama", 25, 16, 24.0, "lm-conditional", 5),
    *(("ising", 20, w, 160.0, "discrete-langevin", 20) for w in (4, 64, 512)),
    *(("ising", 20, w, 160.0, "gibbs-with-gradients", 20) for w in (4, 64, 512)),
    *(
        (name, side, w, 24.0, "metropolis", 100)
        for side, w in ((8, 4), (8, 64), (8, 512), (20, 512), (64, 64))
        for name in ("ising", "ising-whole")
    ),
]


def seconds_per_move(case: list[Any], threads: int) -> list[float]:
    """Time segments of moves with their recording, in this process."""
    import torch

    from omniinput_hpc import kernels, models, rng
    from omniinput_hpc.config import input_file
    from omniinput_hpc.models.checked import CheckedModel
    from omniinput_hpc.sampling.shapes import geometry_of
    from omniinput_hpc.sampling.walkers import Recording, Walkers
    from omniinput_hpc.tempering.ensembles import Canonical

    torch.set_num_threads(threads)
    clock = time.process_time if threads == 1 else time.perf_counter
    name, length, n_walkers, beta, kernel_name, steps = case
    path = HERE / "inputs/models" / name
    factory = {"ising": "make", "ising-whole": "make_whole"}.get(name)
    model = LANGUAGE_MODEL if factory is None else ISING
    model = model.format(path=path, length=length, factory=factory)
    text = TEMPLATE.format(model=model, walkers=n_walkers, beta=beta, kernel=kernel_name)
    config = input_file.parse(text, "benchmark")
    checked = CheckedModel(models.build(config, "cpu"), "model")
    x_dtype = geometry_of(config, checked.n_values, checked.n_sites).x_dtype
    kernel = kernels.build(config.kernel, checked, n_walkers)
    recording = Recording(steps, 10, x_dtype)
    walkers = Walkers(kernel, checked, Canonical(beta), torch.device("cpu"), recording)
    x = rng.generator(0, "start").integers(checked.n_values, size=(n_walkers, checked.n_sites))
    walkers.place(x, walkers.evaluate(x))
    seconds = []
    for repeat in range(REPEATS + 1):
        own, shared = (rng.generator(0, purpose, repeat) for purpose in ("moves", "choices"))
        begin = clock()
        segment = walkers.begin_segment(own, shared, 0)
        for _ in range(steps):
            segment.step()
        segment.recorded()
        seconds.append((clock() - begin) / steps)
    return seconds[1:]


def time_elsewhere(root: Path, case: tuple[Any, ...], threads: int) -> list[float]:
    """Do the same by another checkout's package, in a process of its own."""
    words = ["--package", str(root), "--case", json.dumps(case), "--threads", str(threads)]
    done = subprocess.run(
        [sys.executable, __file__, *words], check=True, capture_output=True, text=True
    )
    return [float(s) for s in json.loads(done.stdout.splitlines()[-1])]


def save_llama(folder: Path) -> None:
    """Write a model of Llama's shape with random weights."""
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(1)
    shape = {"hidden_size": 512, "intermediate_size": 1024, "num_hidden_layers": 6}
    config = LlamaConfig(num_attention_heads=8, num_key_value_heads=4, **shape)
    LlamaForCausalLM(config).save_pretrained(folder)


def print_recording() -> None:
    """Print the table of the histogram's milliseconds a segment."""
    import numpy as np

    from omniinput_hpc import histogram

    z_tw = np.random.default_rng(0).normal(5.0, 2.0, size=(100, 64)).astype(np.float32)
    own = histogram.SPARSE_FROM
    print("| bins | all cells, ms | only those met, ms | what a run does, ms |")
    print("| --- | --- | --- | --- |")
    for n_bins in (100, 1000, 10_000, 100_000, 1_000_000):
        seconds: dict[int, list[float]] = {10**9: [], 0: [], own: []}
        counted = histogram.Histogram(np.linspace(0.0, 12.0, n_bins + 1), z_tw.shape[1])
        for _ in range(REPEATS + 1):
            for histogram.SPARSE_FROM, found in seconds.items():
                begin = time.perf_counter()
                counted.add(z_tw)
                found.append(time.perf_counter() - begin)
        shown = (f"{1e3 * median(found[1:]):.2f}" for found in seconds.values())
        print(f"| {n_bins:,} | {' | '.join(shown)} |", flush=True)


def median(values: list[float]) -> float:
    """Return the median."""
    return sorted(values)[len(values) // 2]


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--other", type=Path, help="the root of another checkout")
    parser.add_argument("--models", nargs="+", choices=sorted({case[0] for case in CASES}))
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--turns", type=int, default=3, help="processes of each checkout")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--package", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--case", type=json.loads, help=argparse.SUPPRESS)
    parser.add_argument("--recording", action="store_true", help="time the histogram instead")
    options = parser.parse_args()
    if options.recording:
        sys.path.insert(0, str(HERE))
        print_recording()
        return
    if options.case is not None:
        sys.path[:0] = [str(options.package), str(HERE / "tests/helpers")]
        print(json.dumps(seconds_per_move(options.case, options.threads)))
        return
    print(f"{options.threads} thread(s), median of {options.turns} x {REPEATS}")
    print("| model, kernel, walkers | ms per move | moves/s | times the other's |")
    print("| --- | --- | --- | --- |")
    rows = []
    for case in CASES:
        if options.models is not None and case[0] not in options.models:
            continue
        ours: list[float] = []
        theirs: list[float] = []
        with tempfile.TemporaryDirectory() as folder:
            given = case
            if case[0] == "llama":
                save_llama(Path(folder))
                given = (folder, *case[1:])
            for _ in range(options.turns):
                ours += time_elsewhere(HERE, given, options.threads)
                if options.other is not None:
                    theirs += time_elsewhere(options.other.resolve(), given, options.threads)
        seconds = median(ours)
        ratio = median(theirs) / seconds if theirs else None
        name, length, walkers, _, kernel, _ = case
        print(
            f"| {name} {length}, {kernel}, {walkers} | {1e3 * seconds:.2f} | "
            f"{walkers / seconds:,.0f} | {'-' if ratio is None else f'{ratio:.2f}'} |",
            flush=True,
        )
        rows.append({"model": name, "kernel": kernel, "walkers": walkers, "seconds": seconds,
                     "ratio": ratio})  # fmt: skip
    if options.json is not None:
        options.json.write_text(json.dumps(rows, indent=1))


if __name__ == "__main__":
    main()
