"""Scaling: ranks 1 to 4 on this machine, and a model of 64 to 4,096 ranks from measured sizes.

    .venv/bin/python tests/benchmarks/scaling.py [--input inputs/gpt2-small-25.toml] [--json FILE]

First table: weak scaling, one rung a rank and one thread, whole runs; more ranks than cores share
them. Second table: what a rank sends and writes, counted in the runs and computed from the layout:
they must agree, or the program ends. Third table: the model, for a ladder of as many rungs as ranks
with the input file's other numbers. A round is `steps * exchanges` moves; beside them it takes

- exchanges: a message of W configurations each way, latency + bytes / bandwidth;
- agreement: the collective sums of a round (their number is counted in the runs), each
  ceil(log2 P) times the latency and the polling of a rank that has waited for long (a waiting rank
  looks for messages every `--poll` seconds), and tables of all rungs at the bandwidth;
- file: all ranks' bytes at the file's bandwidth, and their requests at its rate, whichever takes
  longer; where rank 0 gathers: a message of each rank (as long as measured here), all bytes through
  one link, and to the file;
- the slowest: the expected largest of P normal times with the given relative deviation, above the
  mean, of a round's moves. Speeds of chips that differ for good have to be given so.

With `--blocks B` each rung's walkers are cut into B, a block a rank (as `[sampler] blocks`): then
ranks have a B-th as many rungs, send a B-th of the walkers, and write through each rung's first
block. With `--rungs K` the ladder keeps K rungs whatever the number of ranks, cut into ranks / K
blocks of as many walkers as the input file's. With `--simulate` nothing is run: see `pace`.

Sources of the defaults: latency below 2 us (measured at the University of Michigan,
arc-ts.umich.edu/flux/using-flux/infiniband), 12.5 GB/s (HDR100, TU Darmstadt's hlr pages), one
stripe a file (wiki.lustre.org, Lustre Striping Best Practices), hence 2 GB/s for it, which like
50,000 requests/s, 2% and the seconds of a move is an assumption: give your own.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import sys
import tempfile
import time
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pace
from bench_tools import ROOT, SHAPES, input_text, launch, machine, save_gpt2, write_json
from launches import CHIPS

from omniinput_hpc.cli import run as program
from omniinput_hpc.config import Config, input_file
from omniinput_hpc.parallel.comm import World
from omniinput_hpc.runfile.layout import Geometry, layout, shape_of, slab
from omniinput_hpc.sampling import loop
from omniinput_hpc.sampling.shapes import geometry_of

ROUNDS, STEPS, EXCHANGES, WALKERS = 3, 10, 4, 16
RANKS = (64, 256, 1024, 4096)


def inside(folder: Path, words: list[str]) -> int:
    """Run the program on this rank and count what it sends and writes after burn-in."""
    counts: Counter[str] = Counter()
    reduce_, swap, write = World._reduce, World.swap, h5py.Dataset.__setitem__
    writing = [False]

    def counted_reduce(self: World, values: Any, operation: Any) -> Any:
        counts["sums"] += 1
        counts["sum bytes"] += values.nbytes
        return reduce_(self, values, operation)

    def counted_swap(self: World, outgoing: Any) -> Any:
        counts["exchanges"] += 1
        counts["messages"] += len(outgoing)
        counts["message bytes"] += sum(data.nbytes for _, data in outgoing.values())
        return swap(self, outgoing)

    def counted_write(self: Any, where: Any, values: Any) -> None:
        if writing[0]:
            counts["writes"] += 1
            counts["written bytes"] += np.asarray(values).size * self.dtype.itemsize
        write(self, where, values)

    World._reduce, World.swap = counted_reduce, counted_swap  # type: ignore[method-assign]
    h5py.Dataset.__setitem__ = counted_write
    sample, seconds = loop.sample, [0.0]

    def run(*rest: Any) -> Any:
        counts.clear()
        writing[0] = True
        begin = time.perf_counter()
        totals = sample(*rest)
        seconds[0] = time.perf_counter() - begin
        writing[0] = False
        (folder / f"{world.rank}.json").write_text(json.dumps({**counts, "seconds": seconds[0]}))
        return totals

    loop.sample = run
    world = World()
    return program.main(words, world)


def micro(folder: Path) -> int:
    """Time what rank 0 needs for a gathered message, and a sum, on all ranks."""
    world, some, n = World(), np.zeros(100, dtype=np.uint8), 300
    times = {}
    for name, call in (("sum", world.sum), ("gather", world.gather)):
        world.barrier()
        begin = time.perf_counter()
        for _ in range(n):
            call(some)
        times[name] = (time.perf_counter() - begin) / n
    if world.rank == 0:
        (folder / "micro.json").write_text(json.dumps(times))
    return 0


def written(g: Geometry, rungs: range) -> tuple[int, int]:
    """Return the datasets and bytes that a holder of rungs writes in a counted round."""
    sizes = [
        math.prod(shape_of(field, where)) * np.dtype(field.dtype).itemsize
        for field in layout(g).values()
        if (where := slab(field, 0, rungs, g.n_rungs)) is not None
    ]
    return len(sizes), sum(sizes)


def configuration_bytes(g: Geometry) -> int:
    """Return the bytes of a walker in a message: x, z, identity, direction."""
    return g.n_sites * g.x_dtype.itemsize + 4 + 4 + 1


def weak_scaling(ranks: int, kernel: str) -> dict[str, Any]:
    """Run with one rung a rank, and check the counts against the layout."""
    shape = SHAPES["gpt2-12M"]
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        save_gpt2(folder / "model", **shape)
        betas = {"lowest": 6.0, "highest": 18.0, "rungs": ranks}
        if ranks == 1:  # the template wants two rungs
            betas["rungs"] = 2
        text = input_text(
            output=folder / "run.h5", path=folder / "model", rounds=ROUNDS, walkers=WALKERS,
            steps=STEPS, exchanges=EXCHANGES, kernel=kernel, every=STEPS, **betas,
        )  # fmt: skip
        if ranks == 1:
            lines = [line for line in text.splitlines()
                     if not line.startswith(("lowest", "highest", "rungs", "spacing"))]  # fmt: skip
            text = "\n".join(lines).replace("[ladder]", "[ladder]\nbetas = [12.0]")
        (folder / "input.toml").write_text(text)
        words = [str(folder / "input.toml")]
        launch(["--inside", str(folder), *words], ranks, script=__file__)
        counted = [json.loads((folder / f"{r}.json").read_text()) for r in range(ranks)]
        config = input_file.load(folder / "input.toml")
    g = geometry_of(config, shape["vocab_size"], config.model.length)  # type: ignore[union-attr]
    for r, found in enumerate(counted):
        n, size = written(g, range(r, r + 1))
        n, size = n + (r == 0), size + 8 * (r == 0)  # rank 0 counts the round
        if (found["writes"], found["written bytes"]) != (ROUNDS * n, ROUNDS * size):
            raise RuntimeError(f"rank {r} of {ranks}: wrote {found}, the layout says {n}, {size}")
        sent = WALKERS * configuration_bytes(g) * found.get("messages", 0)
        if found.get("message bytes", 0) != sent:
            raise RuntimeError(f"rank {r} of {ranks}: sent {found}, not {sent} bytes")
    seconds = statistics.mean(found["seconds"] for found in counted)
    middle = counted[ranks // 2]
    moves = ROUNDS * STEPS * EXCHANGES * WALKERS
    return {"ranks": ranks, "seconds": seconds, "moves_per_s_and_rank": moves / seconds,
            "sums_a_round": middle["sums"] / ROUNDS,
            "bytes_a_message": WALKERS * configuration_bytes(g),
            "messages_an_exchange": middle.get("messages", 0) / (ROUNDS * EXCHANGES),
            "writes_a_round": middle["writes"] / ROUNDS,
            "written_a_round": middle["written bytes"] / ROUNDS}  # fmt: skip


def micro_times(ranks: int) -> dict[str, float]:
    """Return the seconds of a sum, and of a gathered message, between some ranks."""
    with tempfile.TemporaryDirectory() as place:
        launch(["--micro", place], ranks, script=__file__)
        times: dict[str, float] = json.loads((Path(place) / "micro.json").read_text())
    times["message"] = max(times["gather"] - times["sum"], 0.0) / (ranks - 1)
    return times


def largest_of(n: int) -> float:
    """Return the expected largest of n standard normal numbers (Blom 1958)."""
    return statistics.NormalDist().inv_cdf((n - 0.375) / (n + 0.25))


def model(g: Geometry, config: Config, ranks: int, sums: float, o: Any) -> dict[str, float]:
    """Return the seconds of a round's parts on so many ranks, one block of a rung each."""
    s = config.sampler
    n_blocks = ranks // o.rungs if o.rungs else o.blocks or s.blocks
    rungs, times = ranks // n_blocks, n_blocks / s.blocks if o.rungs else 1
    n_walkers, n_samples = int(times * g.n_walkers), int(times * g.samples_per_round)
    g = replace(g, n_rungs=rungs, n_walkers=n_walkers, samples_per_round=n_samples)
    middle = range(rungs // 2, rungs // 2 + 1)
    stages = math.ceil(math.log2(ranks))
    n_datasets, size = written(g, middle)
    total = rungs * size + 8 * g.n_walkers * rungs  # and rank 0's round trips
    message = g.n_walkers // n_blocks * configuration_bytes(g)
    tables = 16 * (2 * rungs - 1) + 8 * g.n_walkers  # moves and swaps of all rungs, lanes' sums
    record = size / n_blocks + 12 * g.n_bins  # of a block: its lanes, and a histogram of its own
    joined = (n_blocks - 1) * (o.latency + record / o.bandwidth)
    moves = config.sampler.moves_per_round * o.move
    to_file = total / o.file_bandwidth
    return {
        "moves": moves,
        "exchanges": config.sampler.exchanges * (o.latency + message / o.bandwidth),
        "agreement": sums * stages * (o.latency + o.poll) + 2 * tables / o.bandwidth,
        "mpio": joined + max(to_file, rungs * n_datasets / o.requests),
        "gather": joined + rungs * o.message + total / o.bandwidth + to_file
        + stages * (o.latency + o.poll),
        "slowest": largest_of(ranks) * o.deviation * moves,
        "file": total * config.run.rounds,
    }  # fmt: skip


def print_model(rows: list[dict[str, float]], config: Config, o: Any) -> None:
    """Print the third table: each part as a share of a round's moves."""
    s = config.sampler
    print(
        f"\n{o.input}: {s.walkers} walkers in {o.blocks or s.blocks} block(s)"
        f"{f', {o.rungs} rungs' if o.rungs else ''}, "
        f"{s.moves_per_round} moves of {1e3 * o.move:g} ms a round, {s.exchanges} exchanges; "
        f"latency {1e6 * o.latency:g} us, {o.bandwidth / 1e9:g} GB/s a link; "
        f"file {o.file_bandwidth / 1e9:g} GB/s, {o.requests:,.0f} requests/s; polls "
        f"{1e3 * o.poll:g} ms; deviation {o.deviation:.0%}; gathered message "
        f"{1e6 * o.message:.0f} us\n"
        "| ranks | exchanges | agreement | file: all write | file: rank 0 gathers | slowest rank "
        "| file, GB |\n| --- | --- | --- | --- | --- | --- | --- |"
    )
    for row in rows:
        names = ("exchanges", "agreement", "mpio", "gather", "slowest")
        shares = " | ".join(f"{row[name] / row['moves']:.2%}" for name in names)
        print(f"| {row['ranks']:,.0f} | {shares} | {row['file'] / 1e9:,.1f} |")


def arguments() -> argparse.Namespace:
    """Return what was asked for."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])  # type: ignore[union-attr]
    parser.add_argument("--input", type=Path, default=ROOT / "inputs/gpt2-small-25.toml")
    parser.add_argument("--values", type=int, default=50257, help="of a site")
    parser.add_argument("--move", type=float, default=0.02, help="seconds of a move of W walkers")
    parser.add_argument("--latency", type=float, default=2e-6, help="seconds")
    parser.add_argument("--bandwidth", type=float, default=12.5e9, help="bytes/s of a link")
    parser.add_argument("--file-bandwidth", type=float, default=2e9, help="bytes/s")
    parser.add_argument("--requests", type=float, default=5e4, help="writes a second, of a file")
    parser.add_argument("--poll", type=float, default=1e-3, help="seconds, as in comm.py")
    parser.add_argument("--deviation", type=float, default=0.02, help="relative, of a rank's speed")
    parser.add_argument("--ranks", type=int, nargs="+", default=[1, 2, 3, 4], help="here")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--blocks", type=int, default=0, help="of a rung; 0: the input file's")
    parser.add_argument("--rungs", type=int, default=0, help="at any number of ranks; 0: grow")
    parser.add_argument("--simulate", action="store_true", help="GPUs at work on an input file")
    parser.add_argument("--shape", choices=list(pace.SHAPES), default="olmo")
    parser.add_argument("--chip", choices=list(CHIPS), default="h100", help="simulated")
    parser.add_argument("--gpus", type=int, nargs="+", default=[1, 8, 64], help="simulated")
    parser.add_argument("--rounds", type=int, default=5, help="simulated")
    parser.add_argument("--sync", type=float, default=7e-3, help="seconds a segment without GPU")
    return parser.parse_args()


def simulate(o: Any) -> None:
    """Print how busy GPUs are, and how long the run takes on them."""
    given = input_file.load(o.input, [f"sampler.blocks={o.blocks}"] if o.blocks else [])
    length = given.model.length  # type: ignore[union-attr]
    asked = given.with_look_ahead(length, length - 1)
    write_json(o.json, pace.print_simulation(asked, o.input.name, o))


def main() -> None:
    """Print the tables."""
    if sys.argv[1:2] == ["--inside"]:
        raise SystemExit(inside(Path(sys.argv[2]), sys.argv[3:]))
    if sys.argv[1:2] == ["--micro"]:
        raise SystemExit(micro(Path(sys.argv[2])))
    o = arguments()
    if o.simulate:
        simulate(o)
        return
    print(f"{machine()}; a GPT-2 of 12 million numbers, {WALKERS} walkers, metropolis")
    print(
        "| ranks | s | moves/s a rank | all | sums a round | messages an exchange, bytes each "
        "| writes, bytes a round |\n| --- | --- | --- | --- | --- | --- | --- |"
    )
    here = []
    for ranks in o.ranks:
        row = weak_scaling(ranks, "metropolis")
        here.append(row)
        rate = row["moves_per_s_and_rank"]
        print(
            f"| {ranks} | {row['seconds']:.1f} | {rate:.0f} | {rate * ranks:.0f} | "
            f"{row['sums_a_round']:.1f} | {row['messages_an_exchange']:.1f}, "
            f"{row['bytes_a_message']:,} | {row['writes_a_round']:.0f}, "
            f"{row['written_a_round']:,.0f} |",
            flush=True,
        )
    times = micro_times(2)
    o.message = times["message"]
    print(f"counts agree with the layout; a sum of 2 ranks takes {1e6 * times['sum']:.0f} us")
    config = input_file.load(o.input)
    g = geometry_of(config, o.values, config.model.length)  # type: ignore[union-attr]
    sums = here[-1]["sums_a_round"]
    rows = [{"ranks": float(n), **model(g, config, n, sums, o)} for n in RANKS]
    print_model(rows, config, o)
    write_json(o.json, {"machine": machine(), "here": here, "micro": times, "model": rows})


if __name__ == "__main__":
    main()
