"""Other codes beside this one, on one thread, and what else docs/results/speed.md shows.

    .venv/bin/python tests/benchmarks/peers.py [--samplers FOLDER] [--other CHECKOUT]
        [--tables samplers ladders draws z states start choose] [--json FILE]

The tables, all of them unless `--tables` names some:

- samplers: moves of a 20 x 20 Ising lattice by the authors of discrete-langevin. `--samplers` is a
  folder with `samplers.py` and `utils.py` of the public repository ruqizhang/discrete-langevin (at
  e3e2834); it has gibbs-with-gradients of wgrathwohl/GWG_release as well. Both have the same
  distribution and are timed in turn, theirs with the coupling matrix that they use, ours with
  recording. (Their `utils.py` imports torchvision for its plots: install it, or leave it out.)
- ladders: whole runs of an 8 x 8 ladder of 16 rungs with 64 walkers, exchanges and file included,
  beside a plain loop in numba that does the same (parallel tempering with histograms), and beside
  another checkout's run of the same input file with `--other`. A run's seconds are those of a long
  one less those of a short one, so that the start is not in them.
- draws: independent draws of SmolLM2 (python -m omniinput_hpc.zoo.smollm2), 25 tokens each, by
  `generate` of transformers, at the fastest of some batch sizes, and by ours. "14 temperatures" are
  those of inputs/smollm2-135m-ancestral.toml, with each text's log-probability at all of them.
- z: outputs of 16 inputs of 25 tokens of a model of GPT-2 small's shape with random weights, and of
  SmolLM2, by OpenVINO, by torch.compile with frozen weights, and by ours.
- states, start, choose: prefix_states.py of decoders with recurrent states, start_up.py, and
  large_run.py with `--choose`, as they print them.

Seconds are of the CPU.
"""

from __future__ import annotations

import argparse
import math
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import moves
import numpy as np
import torch
from bench_tools import ROOT, SHAPES, input_text, machine, save_gpt2, write_json
from moves import median

SIDE, SIGMA = 20, 0.2
"""Of the samplers: ln p = 2 SIGMA (sum over pairs of neighbours of s s')."""
WALKERS = (4, 64, 512)
REPEATS = 5
RUNGS, LADDER_WALKERS = 16, 64
STEPS = {10: 1e7, 100: 5e7, 1000: 2e8}
"""Moves between exchanges, and walkers' moves that are timed by compiled code."""
EXCHANGES = {10: 100, 100: 10, 1000: 10}
"""Exchanges in a round, which ends with a commit to the file."""
SLOW = 1e7
"""Moves that are timed without it."""
N_TOKENS, LM_WALKERS = 25, 16
SMOLLM2 = "inputs/models/smollm2-135m"
BATCHES, DRAW_REPEATS = (64, 128, 256), 3
"""Batches that `generate` is tried with."""
TABLES = ("samplers", "ladders", "draws", "z", "states", "start", "choose")
STATES = ["prefix_states.py", "--types", "qwen3_next", "olmo_hybrid", "mamba2"]
CHOOSE = ["large_run.py", "--choose", "--gib", "0.8", "1.6", "3.2"]
INPUT = """
[run]
output = "{folder}/{name}.h5"
seed = 1
rounds = {rounds}
[model]
kind = "python"
factory = "ising:{make}"
options = {{side = 8}}
[sampler]
walkers = 64
steps = {steps}
exchanges = {exchanges}
[ladder]
lowest = 0.0
highest = 40.0
rungs = 16
spacing = "linear"
[kernel]
name = "metropolis"
[bins]
lower = -2.03125
upper = 2.03125
width = 0.0625
[samples]
every = {every}
"""


class TheirIsing(torch.nn.Module):
    """Their lattice model's log-density, by its dense coupling matrix."""

    def __init__(self, side: int) -> None:
        super().__init__()
        at = np.arange(side**2).reshape(side, side)
        coupled = np.zeros((side**2, side**2), dtype=np.float32)
        for axis in (0, 1):
            for by in (1, -1):
                coupled[at.ravel(), np.roll(at, by, axis).ravel()] = SIGMA
        self.coupled = torch.from_numpy(coupled)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return ln p, float32 [W], but for a constant, of x in {0, 1}, float32 [W, D]."""
        s = 2 * x - 1
        return ((s @ self.coupled) * s).sum(-1)


def print_samplers(folder: Path) -> list[dict[str, Any]]:
    """Print the table of samplers, and return its rows."""
    sys.path.insert(0, str(folder))
    # benchmarks here have a `samplers` as well
    import importlib.util

    theirs: dict[str, Any] = {}
    for name in ("utils", "samplers"):
        spec = importlib.util.spec_from_file_location(name, folder / f"{name}.py")
        assert spec is not None and spec.loader is not None
        theirs[name] = sys.modules[name] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(theirs[name])
    classes = {
        "discrete-langevin": theirs["samplers"].LangevinSampler,
        "gibbs-with-gradients": theirs["samplers"].DiffSampler,
    }
    model, rows = TheirIsing(SIDE), []
    print("| kernel | walkers | theirs, ms a move | ours, ms a move | times theirs |")
    print("| --- | --- | --- | --- | --- |")
    for kernel, sampler_class in classes.items():
        for n_walkers in WALKERS:
            sampler = sampler_class(SIDE**2, 1, approx=True, temp=2.0)
            n_moves = 200 if n_walkers < 512 else 50
            case = ["ising", SIDE, n_walkers, 2.0 * SIGMA * SIDE**2, kernel, n_moves]
            x = torch.bernoulli(torch.full((n_walkers, SIDE**2), 0.5))
            seconds: dict[str, list[float]] = {"theirs": [], "ours": []}
            for _ in range(REPEATS):
                begin = time.process_time()
                for _ in range(n_moves):
                    x = sampler.step(x.detach(), model).detach()
                seconds["theirs"].append((time.process_time() - begin) / n_moves)
                seconds["ours"].append(median(moves.seconds_per_move(case, 1)))
            their, our = (1e3 * median(found) for found in seconds.values())
            print(
                f"| {kernel} | {n_walkers} | {their:.2f} | {our:.2f} | {their / our:.2f} |",
                flush=True,
            )
            rows.append({"kernel": kernel, "walkers": n_walkers, "theirs": their, "ours": our})
    return rows


def numba_ladder(steps: int, rounds: int) -> float:
    """Return the CPU seconds of the same ladder as a plain loop in numba."""
    from ising import IsingModel
    from numba import njit

    neighbours = IsingModel(8).neighbours.numpy()
    beta_k = np.linspace(0.0, 40.0, RUNGS)

    @njit
    def ladder(
        x_kwd: Any, z_kw: Any, beta_k: Any, counts_kb: Any, steps: int, n_exchanges: int
    ) -> None:
        n_rungs, n_walkers, n_sites = x_kwd.shape
        for exchange in range(n_exchanges):
            for k in range(n_rungs):
                for w in range(n_walkers):
                    x = x_kwd[k, w]
                    for _ in range(steps):
                        site = int(np.random.random() * n_sites)  # noqa: NPY002
                        around = -4
                        for neighbour in neighbours[site]:
                            around += 2 * x[neighbour]
                        dz = -2.0 * (1 - 2 * x[site]) * around / n_sites
                        if np.random.random() < math.exp(min(0.0, -beta_k[k] * dz)):  # noqa: NPY002
                            x[site] = 1 - x[site]
                            z_kw[k, w] += dz
                        counts_kb[k, int((z_kw[k, w] + 2.03125) / 0.0625)] += 1
            for k in range(exchange % 2, n_rungs - 1, 2):
                for w in range(n_walkers):
                    log_ratio = (beta_k[k] - beta_k[k + 1]) * (z_kw[k, w] - z_kw[k + 1, w])
                    if np.random.random() < math.exp(min(0.0, log_ratio)):  # noqa: NPY002
                        x_kwd[k, w], x_kwd[k + 1, w] = x_kwd[k + 1, w].copy(), x_kwd[k, w].copy()
                        z_kw[k, w], z_kw[k + 1, w] = z_kw[k + 1, w], z_kw[k, w]

    x_kwd = np.random.default_rng(1).integers(2, size=(RUNGS, LADDER_WALKERS, 64))
    z_kw = np.stack([IsingModel(8).output(torch.from_numpy(x)).double().numpy() for x in x_kwd])
    counts_kb = np.zeros((RUNGS, 65), dtype=np.int64)
    ladder(x_kwd, z_kw, beta_k, counts_kb, 1, 1)
    begin = time.process_time()
    ladder(x_kwd, z_kw, beta_k, counts_kb, steps, EXCHANGES[steps] * rounds)
    return time.process_time() - begin


def run_seconds(checkout: Path, make: str, steps: int, rounds: int) -> float:
    """Return the CPU seconds of a whole run by a checkout's package."""
    with tempfile.TemporaryDirectory() as folder:
        name = f"run-{rounds}"
        text = INPUT.format(
            folder=folder,
            name=name,
            make=make,
            steps=steps,
            rounds=rounds,
            every=steps,
            exchanges=EXCHANGES[steps],
        )
        file = Path(folder) / f"{name}.toml"
        file.write_text(text)
        path = f"{checkout}:{ROOT / 'tests/helpers'}"
        environment = {**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1"}
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run(
            [sys.executable, "-m", "omniinput_hpc", str(file)],
            cwd=folder, env=environment, check=True, capture_output=True,
        )  # fmt: skip
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def per_move(checkout: Path, make: str, steps: int, rounds: int) -> float:
    """Return the CPU seconds of a move of one walker in a whole run, without its start."""
    seconds = [run_seconds(checkout, make, steps, n) for n in (1, 1 + rounds)]
    return (seconds[1] - seconds[0]) / (rounds * EXCHANGES[steps] * steps * RUNGS * LADDER_WALKERS)


def print_ladders(other: Path | None) -> list[dict[str, Any]]:
    """Print the table of ladders, and return its rows."""
    print("\nNanoseconds of the CPU a move of one walker, whole runs:")
    print("| moves between exchanges | numba | compiled_change | change | neither | other |")
    print("| --- | --- | --- | --- | --- | --- |")
    rows = []
    for steps, n_moves in STEPS.items():
        a_round = EXCHANGES[steps] * steps * RUNGS * LADDER_WALKERS
        n_fast, n_slow = (round(moves / a_round) for moves in (n_moves, SLOW))
        ns = {
            "numba": numba_ladder(steps, n_fast) / (n_fast * a_round),
            "compiled_change": per_move(ROOT, "make_compiled", steps, n_fast),
            "change": per_move(ROOT, "make", steps, n_slow),
            "neither": per_move(ROOT, "make_whole", steps, n_slow),
            "other": per_move(other, "make_whole", steps, n_slow) if other else math.nan,
        }
        shown = (f"{1e9 * seconds:,.0f}" for seconds in ns.values())
        print(f"| {steps} | {' | '.join(shown)} |", flush=True)
        rows.append({"steps": steps, **ns})
    return rows


class MeanLoss(torch.nn.Module):
    """z of tokens, given the tokens that follow them, by Hugging Face's model."""

    def __init__(self, lm: Any) -> None:
        super().__init__()
        self.lm = lm
        self.weights = torch.tensor([1.0 / (N_TOKENS - 1)] * (N_TOKENS - 1) + [0.0])

    def forward(self, x: torch.Tensor, following: torch.Tensor) -> torch.Tensor:
        """Return the mean over all but the last token, float32 [W]; all are int64 [W, D]."""
        logits = self.lm(input_ids=x, attention_mask=torch.ones_like(x), use_cache=False).logits
        chosen = torch.gather(logits, 2, following.unsqueeze(-1)).squeeze(-1)
        return ((torch.logsumexp(logits, -1) - chosen) * self.weights).sum(-1)


def print_draws() -> list[dict[str, Any]]:
    """Print the table of draws per second, and return its rows."""
    from transformers import AutoModelForCausalLM

    from omniinput_hpc import models
    from omniinput_hpc.config import input_file
    from omniinput_hpc.kernels.independent import AncestralSampler, AutoregressiveSampler
    from omniinput_hpc.kernels.parts.device_rng import DeviceStream
    from omniinput_hpc.kernels.state import State
    from omniinput_hpc.tempering.ensembles import Canonical

    config = input_file.load(ROOT / "inputs/smollm2-135m-ancestral.toml", [])
    beta_k, n = config.beta_k.tolist(), config.sampler.walkers
    model = models.build(config, "cpu")
    lm = AutoModelForCausalLM.from_pretrained(ROOT / SMOLLM2, dtype=torch.float32).eval()
    stream = DeviceStream(np.random.default_rng(1), torch.device("cpu"), 1 << 16)
    like = State(torch.zeros((n, N_TOKENS), dtype=torch.int64), torch.zeros(n))

    def generate(batch: int) -> float:
        x, new = torch.randint(model.n_values, (batch, 1)), N_TOKENS - 1
        begin = time.process_time()
        with torch.inference_mode():
            lm.generate(
                x, attention_mask=torch.ones_like(x), do_sample=True, top_k=0, temperature=1.3,
                max_new_tokens=new, min_new_tokens=new, pad_token_id=0,
            )  # fmt: skip
        return batch / (time.process_time() - begin)

    def ours(sampler: Any, betas: list[float]) -> float:
        begin = time.process_time()
        for beta in betas:
            sampler.step(like, Canonical(beta), stream)
        return n * len(betas) / (time.process_time() - begin)

    one, all_ = AutoregressiveSampler(model, n), AncestralSampler(model, n, beta_k)
    found: dict[str, list[float]] = {"generate": [], "one": [], "all": []}
    for _ in range(DRAW_REPEATS):
        found["generate"].append(max(generate(batch) for batch in BATCHES))
        found["one"].append(ours(one, [config.beta_k.max()]))
        found["all"].append(ours(all_, beta_k[1::4]))
    rates = {name: median(rate) for name, rate in found.items()}
    print("\n| draws of SmolLM2 per second | generate | ours | times |")
    print("| --- | --- | --- | --- |")
    for name, shown in (("one", "one temperature"), ("all", f"{len(beta_k)} temperatures")):
        row = f"{rates['generate']:.1f} | {rates[name]:.1f}"
        print(f"| {shown} | {row} | {rates[name] / rates['generate']:.2f} |", flush=True)
    return [rates]


def print_z() -> list[dict[str, Any]]:
    """Print the table of outputs, and return its rows."""
    print(
        "\n| model, type | OpenVINO, ms | torch.compile, ms | ours, ms | ours with OpenVINO, ms |"
    )
    print("| --- | --- | --- | --- | --- |")
    with tempfile.TemporaryDirectory() as folder:
        save_gpt2(Path(folder), N_TOKENS, **SHAPES["gpt2-small"])
        rows = compare_z("GPT-2 small's shape", Path(folder))
    return rows + (compare_z("SmolLM2-135M", ROOT / SMOLLM2) if (ROOT / SMOLLM2).is_dir() else [])


def compare_z(name: str, folder: Path) -> list[dict[str, Any]]:
    """Print the rows of a model in the table of outputs, and return them."""
    from transformers import AutoModelForCausalLM

    from omniinput_hpc import models
    from omniinput_hpc.config import input_file

    rows = []
    for dtype in ("bfloat16", "float32"):
        lm = AutoModelForCausalLM.from_pretrained(folder, dtype=getattr(torch, dtype)).eval()
        x = torch.randint(lm.config.vocab_size, (LM_WALKERS, N_TOKENS))
        following = x.roll(-1, 1).contiguous()
        ways = {"openvino": with_openvino(lm, x, following), "compile": compiled(lm, x, following)}
        for engine in ("torch", "openvino"):
            text = input_text(output="none.h5", path=folder, walkers=LM_WALKERS, dtype=dtype)
            text = text.replace("[sampler]", f'engine = "{engine}"\n[sampler]')
            model = models.build(input_file.parse(text, "benchmark"), "cpu")
            ways[f"ours, {engine}"] = partial(model.output, x)
        seconds: dict[str, list[float]] = {way: [] for way in ways}
        for _ in range(REPEATS + 1):
            for way, evaluate in ways.items():
                begin = time.process_time()
                evaluate()
                seconds[way].append(time.process_time() - begin)
        ms = {way: 1e3 * median(found[1:]) for way, found in seconds.items()}
        shown = " | ".join(f"{number:,.0f}" for number in ms.values())
        print(f"| {name}, {dtype} | {shown} |", flush=True)
        rows.append({"model": name, "dtype": dtype, **ms})
    return rows


def with_openvino(lm: Any, x: torch.Tensor, following: torch.Tensor) -> Callable[[], Any]:
    """Return a function that computes the losses of inputs, as OpenVINO's own pages do it."""
    import openvino

    graph = openvino.convert_model(MeanLoss(lm), example_input=(x, following))
    graph.reshape({port: list(x.shape) for port in graph.inputs})
    hint = "f32" if lm.dtype == torch.float32 else "bf16"
    options = {"INFERENCE_PRECISION_HINT": hint, "INFERENCE_NUM_THREADS": 1}
    program = openvino.Core().compile_model(
        graph, "CPU", {**options, "PERFORMANCE_HINT": "LATENCY"}
    )
    return lambda: program([x.numpy(), following.numpy()])[0]


def compiled(lm: Any, x: torch.Tensor, following: torch.Tensor) -> Callable[[], Any]:
    """Return the same as torch.compile makes it, with frozen weights."""
    import torch._inductor.config

    torch._inductor.config.freezing = True
    torch._dynamo.reset()
    loss = torch.compile(MeanLoss(lm), dynamic=False)

    @torch.no_grad()
    def evaluate() -> torch.Tensor:
        found: torch.Tensor = loss(x, following)
        return found

    return evaluate


def run_script(*words: str) -> None:
    """Run another benchmark, which prints its table."""
    print(flush=True)
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    script = str(ROOT / "tests/benchmarks" / words[0])
    subprocess.run([sys.executable, script, *words[1:]], cwd=ROOT, env=environment, check=True)


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--samplers", type=Path)
    parser.add_argument("--other", type=Path)
    parser.add_argument("--tables", nargs="+", choices=TABLES, default=TABLES)
    parser.add_argument("--json", type=Path)
    o = parser.parse_args()
    torch.set_num_threads(1)
    print(f"{machine()}; one thread; medians of {REPEATS} repeats in turn")
    found = {}
    if o.samplers and "samplers" in o.tables:
        found["samplers"] = print_samplers(o.samplers)
    if "ladders" in o.tables:
        found["ladders"] = print_ladders(o.other)
    if (ROOT / SMOLLM2).is_dir() and "draws" in o.tables:
        found["draws"] = print_draws()
    if "z" in o.tables:
        found["z"] = print_z()
    write_json(o.json, found)
    scripts = {"states": STATES, "start": ["start_up.py"], "choose": CHOOSE}
    for table, words in scripts.items():
        if table in o.tables:
            run_script(*words)


if __name__ == "__main__":
    main()
