"""How likely is a rare next token, when prompts are drawn from a law?

    OMP_NUM_THREADS=1 .venv/bin/python tests/benchmarks/low_probabilities.py --folder /tmp/low
        [--law few|all] [--seconds 20] [--tune 0.5 1 2] [--itgis 0.5] [--mhis 1] [--kernel joint]
        [--model inputs/models/smollm2-135m --sites 5 --steps 5 --exchanges 1 --mean]

P(t) = P(argmax of the next token's logits = t) for independent tokens, by four methods: plain
sampling; ITGIS and MHIS of Wu & Hilton (arXiv 2410.13211), written anew; and this program, with
z = largest other logit - logit of t (`[output] name = "next"`), P = P(z < 0). This program runs
first, for about `--seconds`; for each target the others get the CPU time of its longest run. With
`--mean`, P(t) is the mean probability of t as the next token, z = -ln of it, P = mean of e^-z.

Two laws of six tokens (`--sites`): `few`, eight tokens per site, whose 8^6 prompts are all
evaluated, so that P is exact; `all`, all tokens with the frequencies of the model's own texts,
whose reference is a longer ITGIS of another seed, which is unbiased. `--tune` prints
what ITGIS and MHIS find at some temperatures for targets of their own, `--kernel` what this program
finds with settings of `KERNELS`. It goes on where it was stopped.
"""

from __future__ import annotations

import argparse
import json
import logging
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from transformers import AutoModelForCausalLM

from omniinput_hpc.cli import run as launch
from omniinput_hpc.estimators.density.density import density_of_run, log_mean_exp
from omniinput_hpc.estimators.errors.jackknife import jackknife_error
from omniinput_hpc.runfile.reader import open_run

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests/helpers"))  # also for the law's factory

import rare_tokens  # noqa: E402
from rare_tokens import Estimate, Problem, exact, itgis, mhis, of_mean, plain  # noqa: E402

MODEL = ROOT / "inputs/models/english"
N_FEW = 8
RANGE = (1e-12, 1e-5)
INPUT = """[run]
output = "{folder}/run.h5"
seed = {seed}
rounds = {rounds}
burn_in = {burn_in}
[model]
kind = "causal-lm"
path = "{model}"
length = {length}
[law]
kind = "python"
factory = "law_models:independent"
options = {{ file = "{rows}" }}
[output]
name = "next"
targets = [{target}]
{more}
[sampler]
walkers = {walkers}
steps = {steps}
exchanges = {exchanges}
[ladder]
{ladder}
{kernel}
[bins]
lower = -20.0
upper = 40.0
width = 0.125
[samples]
every = {every}
"""
LADDER = "betas = [0.0, 0.4, 0.8, 1.2, 1.6, 2.0]\ntune = true"
"""At beta = 2 the tokens of `--tune` win as often as not."""
LADDER_OF_MEAN = "betas = [0.0, 0.2, 0.4, 0.6, 0.8, 1.0]"
SITE = '[kernel]\nname = "gibbs-with-gradients"\nproposal = "site"'


@dataclass(frozen=True)
class Program:
    """Runs of this program for one law; `rounds` and `kernel` as in the input file.

    `rivals` are the tokens that may be the likeliest next one; None: all. `mean`: of P.
    """

    folder: Path
    rows: Path
    model: Path = MODEL
    rivals: list[int] | None = None
    walkers: int = 16
    steps: int = 5
    exchanges: int = 4
    ladder: str = LADDER
    kernel: str = SITE
    mean: bool = False

    def estimate(self, target: int, rounds: int, seed: int) -> Estimate:
        """Run the program, and read P(z < 0) off its density."""
        log_p = np.load(self.rows, mmap_mode="r")
        least = 1 if self.mean else -(-6 // self.exchanges)  # tuning needs six exchanges
        text = INPUT.format(
            folder=self.folder, seed=seed, rounds=rounds,
            burn_in=max(rounds // 4, least),
            model=self.model, length=len(log_p), rows=self.rows, target=target,
            more="" if self.mean else self._more(target), walkers=self.walkers,
            steps=self.steps, exchanges=self.exchanges, every=self.steps * self.exchanges,
            ladder=LADDER_OF_MEAN if self.mean else self.ladder, kernel=self.kernel,
        )  # fmt: skip
        path = self.folder / "run.toml"
        (self.folder / "run.h5").unlink(missing_ok=True)
        path.write_text(text)
        begun = time.process_time()
        code = launch.main([str(path)])
        seconds = time.process_time() - begun
        if code:
            raise RuntimeError(f"the program ended with {code}")
        return self._read(seconds)

    def _more(self, target: int) -> str:
        others = None if self.rivals is None else [v for v in self.rivals if v != target]
        return f'against = {others or chr(34) + "others" + chr(34)}\naggregate = "max"'

    def _read(self, seconds: float) -> Estimate:
        with open_run(self.folder / "run.h5") as run:
            density = density_of_run(run.data)
        verdict = density.verdict
        print(f"  converged: {'yes' if verdict.converged else 'no; ' + verdict.reasons[0]}")
        if self.mean:
            found = log_mean_exp(density)
            n = int(density.count_b.sum())
            return Estimate(float(found.value), float(found.error), n, seconds)
        use_b = (density.edges[1:] <= 0) & (density.count_b > 0)
        n = int(density.count_b.sum())
        if not use_b.any():
            return Estimate(-np.inf, np.inf, n, seconds)
        value = float(np.logaddexp.reduce(density.log_g_b[use_b]))
        each = np.logaddexp.reduce(density.log_g_jb[:, use_b], axis=1)
        return Estimate(value, float(jackknife_error(value, each, density.lanes_g)), n, seconds)


KERNELS: dict[str, dict[str, Any]] = {
    "default": {"kernel": ""},
    "joint": {"kernel": '[kernel]\nname = "gibbs-with-gradients"'},
    "64 walkers": {"walkers": 64},
}
"""What `--kernel` tries of this program beside `SITE`."""


def own_frequencies(lm: Any, n: int = 48, length: int = 16) -> NDArray[np.float64]:
    """Return the mean next-token distribution along n texts that the model draws."""
    random = torch.Generator().manual_seed(1)
    x, mean = torch.zeros((n, 1), dtype=torch.int64), 0.0
    with torch.no_grad():
        for _ in range(length):
            p = lm(x, logits_to_keep=1).logits[:, -1].double().softmax(dim=1)
            mean = mean + p.mean(dim=0) / length
            x = torch.cat([x, torch.multinomial(p, 1, generator=random)], dim=1)
    return np.asarray(mean)


def law_rows(name: str, lm: Any, n_sites: int) -> NDArray[np.float32]:
    """Return ln p of the sites of the law `few` or `all`, float32 [D, V]."""
    p_v = own_frequencies(lm)
    rows = np.tile(p_v, (n_sites, 1))
    if name == "few":
        random = np.random.default_rng(1)
        for row in rows:  # half common, half rare tokens
            common = random.choice(len(p_v), N_FEW // 2, replace=False, p=p_v / p_v.sum())
            left = np.setdiff1d(np.arange(len(p_v)), common)
            rare = random.choice(left, N_FEW - N_FEW // 2, replace=False)
            row[np.setdiff1d(left, rare)] = 0.0
    with np.errstate(divide="ignore"):
        return np.log(rows / rows.sum(axis=1, keepdims=True)).astype(np.float32)


def piloted(
    problem: Problem, seen_v: list[float], temperature: float, n: int, seconds: float = 1.5
) -> list[int]:
    """Return n random tokens, not among those seen, for which a short ITGIS finds a P in `RANGE`.

    This favours ITGIS: a token that it misses is never a target.
    """
    found: list[int] = []
    unseen = np.flatnonzero(np.equal(seen_v, 0))
    for target in np.random.default_rng(5).permutation(unseen).tolist():
        log_p = itgis(problem, target, temperature, seconds, 7).log_p
        if RANGE[0] <= np.exp(log_p) <= RANGE[1]:
            found.append(target)
        print(f"pilot: {target} {log_p:.2f}", flush=True)
        if len(found) == n:
            break
    return found


def spread(log_p_v: NDArray[np.float64], n: int, seed: int, use_v: NDArray[np.bool_]) -> list[int]:
    """Return n tokens, one from each of n equal parts of ln `RANGE`, as far as there are any."""
    random, found = np.random.default_rng(seed), []
    edges = np.linspace(*np.log(RANGE), n + 1)
    for low, high in pairwise(edges):
        inside = np.flatnonzero(use_v & (log_p_v >= low) & (log_p_v < high))
        if len(inside):
            found.append(int(random.choice(inside)))
    return found


class Table:
    """What was measured, kept in a file, so that the benchmark goes on where it was stopped."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._rows = json.loads(path.read_text()) if path.exists() else {}

    def get(self, key: str, measure: Callable[[], Any]) -> Any:
        """Return what is kept under a key; measure it if there is nothing."""
        if key not in self._rows:
            found = measure()
            self._rows[key] = asdict(found) if isinstance(found, Estimate) else found
            self._path.write_text(json.dumps(self._rows))
        return self._rows[key]

    def estimate(self, key: str, measure: Callable[[], Estimate]) -> Estimate:
        """Return the estimate of a key, printed."""
        found = Estimate(**self.get(key, measure))
        print(f"{key}: {found}, {found.evaluations} evaluations, {found.seconds:.0f} s", flush=True)
        return found


def main() -> None:
    """Measure and print the tables."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--folder", type=Path, required=True, help="for what was measured")
    parser.add_argument("--model", type=Path, default=MODEL, help="a folder of a decoder")
    parser.add_argument("--sites", type=int, default=6)
    parser.add_argument("--batch", type=int, default=rare_tokens.BATCH, help="of ITGIS and draws")
    for name in ("walkers", "steps", "exchanges"):
        parser.add_argument(f"--{name}", type=int, default=getattr(Program, name), help="of ours")
    parser.add_argument("--law", choices=("few", "all"), default="few")
    parser.add_argument("--seconds", type=float, default=20.0, help="of CPU per target, of ours")
    parser.add_argument("--targets", type=int, default=10)
    parser.add_argument("--least", type=int, default=1, help="prompts that it wins after")
    parser.add_argument("--tune", nargs="*", type=float, help="temperatures to try, on 2 targets")
    parser.add_argument("--itgis", type=float, default=1.0, help="temperature")
    parser.add_argument("--mhis", type=float, default=1.0, help="temperature")
    parser.add_argument("--mean", action="store_true", help="P is the mean probability")
    parser.add_argument("--longer", type=int, default=4, help="times the seconds of a reference")
    parser.add_argument("--kernel", nargs="*", default=[], help="of ours; see `KERNELS`")
    options = parser.parse_args()
    logging.disable(logging.INFO)
    torch.set_num_threads(1)
    rare_tokens.BATCH = options.batch
    folder = options.folder / options.law
    folder.mkdir(parents=True, exist_ok=True)
    lm = AutoModelForCausalLM.from_pretrained(options.model, dtype=torch.float32).eval()
    if not (folder / "rows.npy").exists():
        np.save(folder / "rows.npy", law_rows(options.law, lm, options.sites))
    rows = np.load(folder / "rows.npy")
    problem = Problem(lm, torch.from_numpy(rows), options.mean)
    table = Table(folder / "found.json")
    n = 2 if options.tune else options.targets
    if options.law == "few":
        with np.errstate(divide="ignore"):
            p_v, inputs_v = np.array(table.get("exact", lambda: np.stack(exact(problem)).tolist()))
            log_p_v = np.log(p_v)
        least = 0 if options.mean else options.least
        targets = spread(log_p_v, n, 2 if options.tune else 1, inputs_v >= least)
    else:
        log_p_v = None
        seen_v, _, _ = drawn(problem, table, options.seconds)
        targets = table.get(f"targets {n}", lambda: piloted(problem, seen_v, options.itgis, n))
    if options.tune:
        tune(problem, table, targets, options)
    else:
        compare(problem, table, targets, log_p_v, options, folder)


def tune(problem: Problem, table: Table, targets: list[int], options: argparse.Namespace) -> None:
    """Print what ITGIS and MHIS find at several temperatures."""
    for target in targets:
        for t in options.tune:
            for method in (itgis, mhis):
                key = f"{method.__name__} {target} at T = {t}, {options.seconds} s"
                table.estimate(
                    key, lambda m=method, a=target, b=t: m(problem, a, b, options.seconds, 3)
                )


def compare(
    problem: Problem,
    table: Table,
    targets: list[int],
    log_p_v: NDArray[np.float64] | None,
    options: argparse.Namespace,
    folder: Path,
) -> None:
    """Print the estimates of all methods, their errors, and the rms error of each method."""
    seconds, sizes = options.seconds, (options.walkers, options.steps, options.exchanges)
    # under the law `few` it is known which tokens ever win
    rivals = None if log_p_v is None else np.flatnonzero(log_p_v > -np.inf).tolist()
    model, mean = options.model.resolve(), options.mean
    program = Program(folder, folder / "rows.npy", model, rivals, *sizes, mean=mean)
    if mean:
        program = replace(program, kernel="")  # a mean needs no gradient to the rarest prompts
    kernels = {"omniinput": program}
    for name in options.kernel:
        kernels[f"omniinput, {name}"] = replace(program, **KERNELS[name])
    ours_t: dict[int, dict[str, Estimate]] = {target: {} for target in targets}
    for name, ours in kernels.items():
        rounds = table.get(f"rounds {name} {seconds}", lambda o=ours: _rounds(o, seconds))
        for target in targets:
            ours_t[target][name] = table.estimate(
                f"{name} {target}, {seconds} s",
                lambda o=ours, a=target, r=rounds: o.estimate(a, r, 1),
            )
    seconds = float(round(max(each["omniinput"].seconds for each in ours_t.values())))
    p_v, error_v, n = drawn(problem, table, seconds)
    errors: dict[str, list[float]] = {}
    for target in targets:
        found = {"plain": of_mean(p_v[target], error_v[target], n, seconds)}
        for name, method, t in (("ITGIS", itgis, options.itgis), ("MHIS", mhis, options.mhis)):
            key = f"{name} {target} at T = {t}, {seconds} s"
            found[name] = table.estimate(
                key, lambda m=method, a=target, b=t: m(problem, a, b, seconds, 1)
            )
        found |= ours_t[target]
        if log_p_v is not None:
            true = float(log_p_v[target])
        else:
            long, t = options.longer * seconds, options.itgis
            true = table.estimate(
                f"reference {target} at T = {t}, {long} s",
                lambda a=target, t=t, long=long: itgis(problem, a, t, long, 2),
            ).log_p
        print(
            f"| {target} | {true:.2f} | " + " | ".join(map(str, found.values())) + " |", flush=True
        )
        for name, estimate in found.items():
            errors.setdefault(name, []).append(estimate.log_p - true)
    for name, each in errors.items():
        off = np.array(each)
        there = off[np.isfinite(off)]
        rms = np.sqrt(np.mean(there**2)) if len(there) else np.nan
        print(f"{name}: rms error {rms:.2f} of {len(there)}, no estimate {len(off) - len(there)}")


def drawn(problem: Problem, table: Table, seconds: float) -> tuple[list[float], list[float], int]:
    """Return P, its errors and the number of draws of plain sampling; the same for all targets."""

    def measure() -> list[Any]:
        p_v, error_v, n = plain(problem, seconds, 1)
        return [p_v.tolist(), error_v.tolist(), n]

    found: tuple[list[float], list[float], int] = table.get(f"plain {seconds}", measure)
    return found


def _rounds(program: Program, seconds: float) -> int:
    """Return how many rounds take so many seconds of CPU."""
    few, more = (program.estimate(0, rounds, 1).seconds for rounds in (8, 16))
    per_round = (more - few) / 8
    return max(8, int((seconds - few) / per_round) + 8)


if __name__ == "__main__":
    main()
