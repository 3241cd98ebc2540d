"""Time and memory of analysing a large run file, or of drawing inputs from it.

    OMP_NUM_THREADS=1 .venv/bin/python tests/benchmarks/large_run.py [--gib 20] [--folder /tmp]
        [--choose]

Prints a table. The file has the full layout and all its rounds committed (25 sites of 50,257
values, 16 rungs, 64 walkers, 50 recorded samples a walker and round), but its samples are holes on
the disk: they are read as zeros, all bytes of them. `analysis/reweight.py` runs on it in a process
of its own, whose largest resident memory is shown. With `--choose` the samples are written, each
input another one, and `analysis/choose.py` draws 50 of each of 30 bins.
"""

from __future__ import annotations

import argparse
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import h5py
import numpy as np

from omniinput_hpc.runfile import layout

ROOT = Path(__file__).resolve().parents[2]
BETA_K = np.linspace(0.0, 15.0, 16)
EDGES = np.linspace(0.0, 12.0, 301)
WALKERS, PER_WALKER, BLOCKS = 64, 50, 64
CONFIG = """
[run]
output = "large.h5"
seed = 1
rounds = {rounds}
[model]
kind = "causal-lm"
path = "{model}"
length = 25
"""


def write(path: Path, gib: float) -> int:
    """Write the file; return its size in bytes."""
    n_rungs, n_bins = len(BETA_K), len(EDGES) - 1

    def geometry(rounds: int) -> layout.Geometry:
        return layout.Geometry(
            rounds=rounds,
            n_rungs=n_rungs,
            n_walkers=WALKERS,
            n_bins=n_bins,
            samples_per_round=WALKERS * PER_WALKER,
            n_sites=25,
            n_values=50257,
            n_kernels=1,
        )

    per_round = layout.size_in_bytes(geometry(2)) - layout.size_in_bytes(geometry(1))
    rounds = int(gib * 2**30 / per_round) + 1
    attributes = {
        "config": CONFIG.format(rounds=rounds, model=ROOT / "inputs/models/english"),
        "model_fingerprint": "none",
    }
    layout.create(path, geometry(rounds), layout.first_values(BETA_K, EDGES), attributes)
    z_b = 0.5 * (EDGES[:-1] + EDGES[1:])
    log_p_kb = -0.5 * ((z_b - 9.0 + 0.5 * BETA_K[:, None]) / 0.7) ** 2
    p_kb = np.exp(log_p_kb) / np.exp(log_p_kb).sum(axis=1, keepdims=True)
    rng = np.random.default_rng(1)
    groups = 16
    lanes_kgb = np.stack([rng.multinomial(BLOCKS * 64, p, groups) for p in p_kb]).astype(np.uint64)
    counts_kb = lanes_kgb.sum(axis=1)
    with h5py.File(path, "r+", locking=False) as file:
        for i, round_ in enumerate(np.linspace(0, rounds - 1, BLOCKS).astype(int)):
            share = counts_kb // BLOCKS + (i < counts_kb % BLOCKS)
            file["histogram/counts"][round_] += share.astype(np.uint32)
        for parity in range(2):
            file["histogram/lane_counts"][parity] = lanes_kgb
            file["histogram/z_sum"][parity] = counts_kb * z_b
        file["progress/rounds_committed"][0] = rounds
    return path.stat().st_size


def fill(path: Path) -> None:
    """Write samples: z as in the histogram, and inputs of the English model's 2,000 tokens."""
    rng = np.random.default_rng(2)
    with h5py.File(path, "r+", locking=False) as file:
        z, x = file["samples/z"], file["samples/x"]
        for round_ in range(len(z)):
            drawn = 9.0 - 0.5 * BETA_K[:, None] + 0.7 * rng.normal(size=z.shape[1:])
            z[round_] = drawn.clip(EDGES[0], EDGES[-1] - 0.01)
            x[round_] = rng.integers(0, 2000, size=x.shape[1:], dtype=x.dtype)


def analyse(path: Path, verb: str = "reweight", *options: str) -> tuple[float, float, float, str]:
    """Return seconds, CPU seconds, largest resident memory in MiB, and what was printed."""
    script = str(ROOT / "analysis" / f"{verb}.py")
    begin = time.perf_counter()
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    code = (
        "import resource, runpy, sys\n"
        "sys.argv = sys.argv[1:]\n"
        "sys.path.insert(0, sys.argv[0].rpartition('/')[0])\n"
        "try:\n"
        "    runpy.run_path(sys.argv[0], run_name='__main__')\n"
        "finally:\n"
        "    print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, script, str(path), *options],
        capture_output=True,
        text=True,
    )
    if done.returncode:
        raise RuntimeError(done.stdout + done.stderr)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    *lines, peak = done.stdout.splitlines()
    return time.perf_counter() - begin, cpu, float(peak) / 1024, "\n".join(lines)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--gib", type=float, nargs="+", default=[0.1, 20.0])
    parser.add_argument("--folder", type=Path, help="a file system with holes (default: temporary)")
    parser.add_argument("--choose", action="store_true", help="draw inputs instead")
    options = parser.parse_args()
    words = ["choose", "--width", "0.4", "--range", "0", "12"] if options.choose else []
    print("file (GiB)  on disk (MiB)  z alone (MiB)  wall (s)  CPU (s)  largest memory (MiB)")
    for gib in options.gib:
        with tempfile.TemporaryDirectory(dir=options.folder) as folder:
            path = Path(folder) / "large.h5"
            size = write(path, gib)
            if options.choose:
                fill(path)
            on_disk = path.stat().st_blocks * 512
            with h5py.File(path, "r") as file:
                z = file["samples/z"].nbytes
            wall, cpu, peak, _ = analyse(path, *words)
        print(
            f"{size / 2**30:10.2f} {on_disk / 2**20:14.0f} {z / 2**20:14.0f} {wall:9.1f} "
            f"{cpu:8.1f} {peak:21.0f}"
        )


if __name__ == "__main__":
    main()
