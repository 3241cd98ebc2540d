"""The share of a run's time that is outside the model's work.

    .venv/bin/python tests/benchmarks/overhead.py [--models gpt2-12M gpt2-small] [--ranks 1 2]
        [--seconds 20] [--json FILE]

Whole runs of the program: models of random weights, 25 tokens, one rung a rank (two on one rank),
one thread a rank. The model's work is the time inside the language model's public methods and those
of what it keeps of the walkers (`KVCache`): they are wrapped, outermost calls only. Of it, what a
rung's first move after an exchange evaluates as a whole is shown apart: exchanges cause it.
"kernel" is the rest of the kernel's steps (wrapped as well): random numbers, proposals, draws from
the model's rows of V values, acceptance. "notes" is what else a move takes: noting z and samples,
looks for requests to stop. The rest are the program's own parts (see `clock.py`); "other" is what
none of them holds. Everything is a share of the time from the first
move to the last commit, mean over ranks. What else runs on the machine shows as waiting, which is
therefore no part of the overhead, the sum of notes, exchange, recording, file and other.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from bench_tools import SHAPES, input_text, launch, machine, save_gpt2, write_json

from omniinput_hpc.cli import run as program
from omniinput_hpc.parallel.comm import World
from omniinput_hpc.sampling import build
from omniinput_hpc.sampling.timing import Clock

KERNELS = ("metropolis", "lm-conditional")
WALKERS = {"gpt2-12M": 32, "gpt2-small": 8, "tiny": 32}
STEPS, EXCHANGES = 10, 2
GIGAFLOPS = 30.0
"""A guess of a core's speed, by which the number of rounds is chosen."""


class Stopwatch:
    """Adds up the time inside functions, outermost calls only."""

    def __init__(self) -> None:
        self.seconds, self._depth = 0.0, 0

    def enter(self) -> float:
        self._depth += 1
        return time.perf_counter()

    def leave(self, begin: float) -> None:
        self._depth -= 1
        if self._depth == 0:
            self.seconds += time.perf_counter() - begin

    def timed(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """Return a function that is timed; so is each step of a generator that it returns."""

        def call(*args: Any, **kwargs: Any) -> Any:
            begin = self.enter()
            try:
                result = function(*args, **kwargs)
            finally:
                self.leave(begin)
            return self._steps(result) if hasattr(result, "__next__") else result

        return call

    def _steps(self, generator: Any) -> Any:
        while True:
            begin = self.enter()
            try:
                value = next(generator)
            except StopIteration:
                return
            finally:
                self.leave(begin)
            yield value


def wrap(owner: Any, watch: Stopwatch, names: list[str] | None = None) -> None:
    """Time a class's public methods."""
    for name, found in list(vars(owner).items()):
        if callable(found) and (not name.startswith("_") if names is None else name in names):
            setattr(owner, name, watch.timed(found))


def inside(folder: Path, words: list[str]) -> int:
    """Run the program on this rank with stopwatches, and write down what they say."""
    from omniinput_hpc.kernels.lm_conditional import LmConditional
    from omniinput_hpc.kernels.metropolis import Metropolis
    from omniinput_hpc.models.language.causal_lm import CausalLanguageModel
    from omniinput_hpc.models.language.kv_cache import KVCache

    model, again, steps = Stopwatch(), Stopwatch(), Stopwatch()
    wrap(KVCache, again, ["load", "evaluate", "current_rows"])
    for owner in (CausalLanguageModel, KVCache):
        wrap(owner, model)
    for kernel in (Metropolis, LmConditional):
        wrap(kernel, steps, ["step"])
    world = World()

    class Noting(Clock):
        """The run's clock; stopwatches begin with it, and end when its table is made."""

        def __init__(self, world: World) -> None:
            for watch in (model, again, steps):
                watch.seconds = 0.0
            super().__init__(world)

        def table(self) -> str:
            total = time.perf_counter() - self.begin
            watches = {"model": model.seconds, "again": again.seconds, "steps": steps.seconds}
            found = {**self.seconds, "total": total, **watches}
            (folder / f"{world.rank}.json").write_text(json.dumps(found))
            return super().table()

    build.Clock = Noting  # type: ignore[misc]
    return program.main(words, world)


def measure(name: str, kernel: str, ranks: int, seconds: float) -> dict[str, Any]:
    """Run one case; return shares of the total time."""
    shape, walkers = SHAPES[name], WALKERS[name]
    numbers = 12 * shape["n_layer"] * shape["n_embd"] ** 2 + shape["n_embd"] * shape["vocab_size"]
    move = walkers * numbers * 25 / GIGAFLOPS / 1e9  # half of 25 positions, 2 operations a number
    rungs = max(ranks, 2)
    rounds = max(1, round(seconds * ranks / (rungs * STEPS * EXCHANGES * move)))
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        save_gpt2(folder / "model", **shape)
        text = input_text(
            output=folder / "run.h5", path=folder / "model", rounds=rounds, walkers=walkers,
            steps=STEPS, exchanges=EXCHANGES, rungs=rungs, kernel=kernel, every=STEPS,
        )  # fmt: skip
        (folder / "input.toml").write_text(text)
        words = ["--inside", str(folder), str(folder / "input.toml")]
        launch(words, ranks, script=__file__)
        parts = [json.loads((folder / f"{rank}.json").read_text()) for rank in range(ranks)]
    mean = {key: sum(part[key] for part in parts) / ranks for key in parts[0]}
    total = mean.pop("total")
    row = {key: value / total for key, value in mean.items()}
    row["notes"] = row.pop("moves") - row["steps"]
    row["kernel"] = row.pop("steps") - row["model"]
    named = ("model", "kernel", "notes", "exchange", "recording", "writing", "waiting")
    row["other"] = 1.0 - sum(row[key] for key in named)
    row["overhead"] = 1.0 - row["model"] - row["kernel"] - row["waiting"]
    moves = rounds * STEPS * EXCHANGES * walkers * rungs / total
    return {"model_name": name, "kernel_name": kernel, "ranks": ranks, "rungs": rungs,
            "walkers": walkers, "rounds": rounds, "seconds": total, "moves_per_s": moves,
            **row}  # fmt: skip


def main() -> None:
    """Print the table."""
    if sys.argv[1:2] == ["--inside"]:
        raise SystemExit(inside(Path(sys.argv[2]), sys.argv[3:]))
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--models", nargs="+", choices=SHAPES, default=["gpt2-12M", "gpt2-small"])
    parser.add_argument("--kernels", nargs="+", choices=KERNELS, default=KERNELS)
    parser.add_argument("--ranks", nargs="+", type=int, default=[1, 2])
    parser.add_argument("--seconds", type=float, default=20.0, help="of each run, about")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    print(f"{machine()}; {STEPS} moves an exchange, {EXCHANGES} exchanges a round")
    columns = (
        "model", "again", "kernel", "notes", "exchange", "recording", "writing", "other", "waiting"
    )  # fmt: skip
    print(
        "| model, kernel, ranks | seconds, moves/s | model's work | of it after exchanges | kernel "
        "| notes | exchange | recording | file | other | overhead: these five | waiting |\n"
        f"| {' | '.join(['---'] * 12)} |"
    )
    rows = []
    for name in options.models:
        for kernel in options.kernels:
            for ranks in options.ranks:
                row = measure(name, kernel, ranks, options.seconds)
                rows.append(row)
                shown = [f"{row[key]:.2%}" for key in columns]
                shown.insert(-1, f"**{row['overhead']:.2%}**")
                print(
                    f"| {name}, {kernel}, {ranks} | {row['seconds']:.0f}, "
                    f"{row['moves_per_s']:,.0f} | {' | '.join(shown)} |",
                    flush=True,
                )
    write_json(options.json, {"machine": machine(), "rows": rows})


if __name__ == "__main__":
    main()
