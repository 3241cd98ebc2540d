"""Compare methods with exact densities: ``omniinput benchmark [--models NAME ...]``.

Each line is a model of `zoo.exact` and a method, run several times with different random numbers.
z is (log g - exact) / standard error in a bin with at least 50 effective counts, converted from
Student's t of the groups of lanes to the normal deviate of the same probability. If sampler and
errors are right, the rms of z is about 1, and about 95 % of the intervals hold the truth. Bins of
one run are correlated, so the results of few runs scatter. To check a sampler of your own, or a
model whose density you know, add a `Case` or a method to `omniinput_zoo/benchmark/cases.py`.
"""

from __future__ import annotations

import argparse
import logging
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import scipy
import tomli_w

from omniinput_hpc.cli import run as program
from omniinput_hpc.cli.arguments import new_parser, positive_count
from omniinput_hpc.errors import EXIT_COMPLETE, EXIT_FAILURE
from omniinput_hpc.estimators import BoolArray, EstimateError, FloatArray
from omniinput_hpc.estimators.density.density import MIN_EFFECTIVE_COUNT, Density, density_of_run
from omniinput_hpc.estimators.errors.jackknife import t_quantile
from omniinput_hpc.runfile.reader import open_run
from omniinput_hpc.text import print_any_text
from omniinput_zoo.benchmark.cases import CASES, METHODS, Case

LEVEL = 0.95
PROGRAM = "omniinput benchmark"
HEAD = f"{'model':12}{'method':30}{'runs':>5}{'converged':>10}{'bins':>7}{'nats':>7}"
HEAD += f"{'rms z':>8}{'largest':>9}{'held by 95%':>13}{'seconds':>9}"


@dataclass
class Row:
    """The results of all runs of one method on one model."""

    z: list[FloatArray] = field(default_factory=list)
    held: list[BoolArray] = field(default_factory=list)
    nats: float = 0.0
    n_runs: int = 0
    n_converged: int = 0

    def add(self, density: Density, exact_b: FloatArray) -> None:
        """Add a run. Raises an EstimateError if a bin that no input belongs to has counts."""
        if not np.isfinite(exact_b[density.count_b > 0]).all():
            raise EstimateError("counts in a bin that no input belongs to")
        use = (density.effective_b >= MIN_EFFECTIVE_COUNT) & np.isfinite(density.log_g_error_b)
        use &= density.log_g_error_b > 0
        exact = exact_b[use]
        if not density.absolute:  # normalize to 1 over the visited bins, like the estimate
            exact = exact - np.logaddexp.reduce(exact_b[density.count_b > 0])
        t = (density.log_g_b[use] - exact) / density.log_g_error_b[use]
        n_groups = len(density.lanes_g)
        self.z.append(scipy.stats.norm.ppf(scipy.stats.t.cdf(t, n_groups - 1)))
        self.held.append(np.abs(t) <= t_quantile(n_groups, LEVEL))
        self.nats = max(self.nats, float(np.ptp(exact)) if exact.size else 0.0)
        self.n_runs += 1
        self.n_converged += density.verdict.converged

    def words(self, model: str, method: str, seconds: float) -> str:
        """Return the row as a line of the table."""
        z = np.concatenate(self.z or [np.zeros(0)])
        held = np.concatenate(self.held or [np.zeros(0, dtype=bool)])
        numbers = f"{'-':>8}{'-':>9}{'-':>13}"
        if z.size:
            rms, largest = np.sqrt(np.mean(z**2)), np.abs(z).max()
            numbers = f"{rms:8.2f}{largest:9.2f}{100 * held.mean():12.1f}%"
        return (
            f"{model:12}{method:30}{self.n_runs:5d}{self.n_converged:10d}{len(z):7d}"
            f"{self.nats:7.1f}{numbers}{seconds:9.0f}"
        )


def run_case(case: Case, method: str, n_runs: int, folder: Path) -> Row:
    """Run a method on a model with seeds 1, 2, ...; return the results.

    Raises a RuntimeError if a run fails.
    """
    row, model = Row(), case.make("cpu")
    for seed in range(1, n_runs + 1):
        path = folder / f"run-{seed}.h5"
        tables = case.tables(method)
        tables["run"] |= {"output": str(path), "seed": seed}
        (folder / "input.toml").write_text(tomli_w.dumps(tables), encoding="utf-8")
        if program.main([str(folder / "input.toml")]) != EXIT_COMPLETE:
            raise RuntimeError(f"the run of {method} with seed {seed} failed")
        with open_run(path) as run:
            density = density_of_run(run.data)
        row.add(density, model.log_g(density.edges))
        path.unlink()
    return row


def main(argv: Sequence[str] | None = None, program: str = PROGRAM) -> int:
    """Print the table; return 0, or 1 if a method failed."""
    print_any_text()
    text = (__doc__ or "").partition("\n\n")
    example, kind = "--models lattice --runs 2", argparse.ArgumentParser
    parser = new_parser(program, text[0], example, more=text[2].rstrip(), kind=kind)
    add, models = parser.add_argument, ["lattice", "markov"]
    words = "models of zoo.exact (default: lattice markov)"
    add("--models", nargs="+", choices=CASES, default=models, help=words)
    words = "sampling methods (default: all that a model supports)"
    add("--methods", nargs="+", choices=METHODS, default=list(METHODS), help=words)
    add("--runs", type=positive_count, default=4, metavar="N", help="runs of each (default: 4)")
    options = parser.parse_args(argv)
    code = EXIT_COMPLETE
    print(HEAD, flush=True)
    for name in options.models:
        case = CASES[name]
        for method in (m for m in options.methods if m in case.methods()):
            begin = time.monotonic()
            with tempfile.TemporaryDirectory(prefix="omniinput-benchmark-") as folder:
                logging.disable(logging.INFO)
                try:
                    row = run_case(case, method, options.runs, Path(folder))
                except (EstimateError, RuntimeError) as error:
                    print(f"{name:12}{method:30}{error}", flush=True)
                    code = EXIT_FAILURE
                    continue
                finally:
                    logging.disable(logging.NOTSET)
            print(row.words(name, method, time.monotonic() - begin), flush=True)
    return code
