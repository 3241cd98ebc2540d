"""How often the 95% intervals cover the truth, over many small runs of an exactly solvable model.

    OMP_NUM_THREADS=1 .venv/bin/python tests/benchmarks/interval_coverage.py
        [--synthetic 1000] [--real 400]

Prints a table: six coarse quantities (the log number of inputs in six ranges of z that follow one
another) and the AUPR of the rule "site 0 has value 0". Synthetic runs are
drawn by numpy from the rungs' exact laws, correlated in time: a lane of rung k keeps its input with
probability rho_k, else draws anew. Real runs are the sampler's own, in this process.
"""

from __future__ import annotations

import argparse
import logging
import sys
import tempfile
import time
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "helpers"))

from lattice import ArrayRun, Lattice, first_is_zero
from run_tools import LATTICE

from omniinput_hpc.estimators.density.density import Density, density_of_run
from omniinput_hpc.estimators.errors.jackknife import jackknife_error, t_quantile
from omniinput_hpc.estimators.precision_recall.curves import accumulate, area
from omniinput_hpc.estimators.precision_recall.from_rule import rule_curve, sum_scores

MODEL = Lattice()
EDGES = (np.arange(len(MODEL.z_l()) + 1) - 0.5) * MODEL.unit  # one level per bin
BETA_K = np.array([-5.0, -2.0, 0.0, 2.0, 5.0])
RHO_K = np.array([0.8, 0.6, 0.3, 0.6, 0.8])
CUTS = [0, 2, 5, 8, 11, 14, 21]  # levels: six ranges of 9 to 35,000 inputs
QUANTITIES = [
    *(f"ln g, z {MODEL.z_l()[a]:.2f} to {MODEL.z_l()[b - 1]:.2f}" for a, b in
      pairwise(CUTS)),
    "AUPR",
]  # fmt: skip
ALLOWED = (0.92, 0.98)
LANES, AT_ONCE = 16, 40


def synthetic_run(seed: int, rounds: int = 16, walkers: int = 16, moves: int = 20) -> ArrayRun:
    """Return a run of correlated draws: AR(1)-like autocorrelation rho_k^t, lanes independent."""
    rng = np.random.default_rng([seed, 20])
    n_times = rounds * moves
    x = MODEL.draw(BETA_K, n_times * walkers, rng)
    x_ktwd = x.reshape(len(BETA_K), n_times, walkers, -1)
    fresh = rng.random(x_ktwd.shape[:3]) >= RHO_K[:, None, None]
    fresh[:, 0] = True
    since = np.maximum.accumulate(np.where(fresh, np.arange(n_times)[:, None], 0), axis=1)
    x_ktwd = np.take_along_axis(x_ktwd, since[..., None], axis=1)
    x_rksd = x_ktwd.reshape(len(BETA_K), rounds, moves * walkers, -1).swapaxes(0, 1)
    return ArrayRun(x_rksd, MODEL.z(x_rksd), walkers, BETA_K, EDGES, MODEL.n_values)


def real_runs(first_seed: int, n: int) -> Iterator[ArrayRun]:
    """Yield runs of the sampler: parallel tempering of the same model, every move recorded.

    Lanes are independent copies of the whole ladder, so that one run file of 40 times 16 lanes
    holds 40 independent runs.
    """
    from omniinput_hpc.cli import run as launch
    from omniinput_hpc.runfile.reader import open_run

    logging.disable(logging.WARNING)
    with tempfile.TemporaryDirectory() as folder:
        toml = Path(folder) / "lattice.toml"
        for seed in range(first_seed, first_seed + -(-n // AT_ONCE)):
            output = Path(folder) / f"{seed}.h5"
            toml.write_text(LATTICE.format(output=output))
            betas = ", ".join(map(str, BETA_K))
            settings = [
                f"run.seed={seed}", "run.rounds=40", "run.burn_in=2",
                f"sampler.walkers={AT_ONCE * LANES}", "sampler.steps=20", "sampler.exchanges=2",
                "model.options.n_sites=8", "bins.upper=6.125", f"ladder.betas=[{betas}]",
                "samples.every=1",
            ]  # fmt: skip
            words = [str(toml), *(word for s in settings for word in ("--set", s))]
            if launch.main(words) != 0:
                raise RuntimeError("a run failed")
            with open_run(output) as run:
                x_rksd, z_rks = (np.stack(part) for part in zip(*run.samples(), strict=True))
            output.unlink()
            lane_s = np.arange(z_rks.shape[2]) % (AT_ONCE * LANES)  # time-major
            for i in range(AT_ONCE):
                own = lane_s // LANES == i
                part = x_rksd[:, :, own], z_rks[:, :, own]
                yield ArrayRun(*part, LANES, BETA_K, EDGES, MODEL.n_values)


def truth() -> np.ndarray:
    """Return the exact quantities [Q]."""
    count, right = MODEL.count_l(), MODEL.right_l()
    coarse = [np.log(count[a:b].sum()) for a, b in pairwise(CUTS)]
    levels = np.flatnonzero(count)
    curve = accumulate(np.log(count[levels]), right[levels] / count[levels], "low")
    return np.array([*coarse, area(*curve)])


def coarse_log_g(log_g_b: np.ndarray) -> np.ndarray:
    """Return log sums over the six ranges, [..., 6]."""
    ranges = pairwise(CUTS)
    return np.stack([np.logaddexp.reduce(log_g_b[..., a:b], axis=-1) for a, b in ranges], axis=-1)


def estimates(run) -> tuple[np.ndarray, np.ndarray, np.ndarray, Density]:
    """Return estimates, lower and upper ends of the 95% intervals [Q], and the density."""
    density = density_of_run(run)
    curve = rule_curve(density, sum_scores(run, density, first_is_zero), whole=True)
    theta = coarse_log_g(density.log_g_b)
    half = t_quantile(len(density.lanes_g)) * jackknife_error(
        theta, coarse_log_g(density.log_g_jb), density.lanes_g
    )
    return (
        np.r_[theta, curve.aupr],
        np.r_[theta - half, curve.aupr_low],
        np.r_[theta + half, curve.aupr_high],
        density,
    )


def campaign(runs) -> dict[str, np.ndarray]:
    """Return, per quantity: the share covered, bias and spread of estimates, half-width [Q]."""
    exact, found = truth(), [estimates(run) for run in runs]
    theta, low, high = (np.array([row[i] for row in found]) for i in range(3))
    densities = [row[3] for row in found]
    return {
        "covered": ((low <= exact) & (exact <= high)).mean(axis=0),
        "bias": (theta - exact).mean(axis=0),
        "spread": theta.std(axis=0, ddof=1),
        "half": np.median((high - low) / 2, axis=0),
        "converged": np.array(np.mean([d.verdict.converged for d in densities])),
        "runs": np.array(len(found)),
    }


def print_table(name: str, result: dict[str, np.ndarray], seconds: float) -> bool:
    """Print one campaign's table; return whether every quantity's coverage is allowed."""
    print(
        f"{name}: {int(result['runs'])} runs, {result['converged']:.1%} of them converged by ",
        end="",
    )
    print(f"their own verdict, {seconds:.0f} s")
    print("quantity                  covered   mean deviation   spread of estimates   half-width")
    for i, quantity in enumerate(QUANTITIES):
        print(
            f"{quantity:24s} {result['covered'][i]:8.1%} {result['bias'][i]:16.5f} "
            f"{result['spread'][i]:21.5f} {result['half'][i]:12.5f}"
        )
    return bool(np.all((result["covered"] >= ALLOWED[0]) & (result["covered"] <= ALLOWED[1])))


def main() -> int:
    """Print the tables; 0 if every interval covers in 92% to 98% of the runs."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--synthetic", type=int, default=1000, help="number of runs drawn by numpy")
    parser.add_argument("--real", type=int, default=400, help="number of the sampler's own runs")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    good = True
    for name, n, runs in (
        ("synthetic", options.synthetic, map(synthetic_run, range(options.seed, 10**9))),
        ("sampler", options.real, real_runs(options.seed, options.real)),
    ):
        if n:
            begin = time.perf_counter()
            result = campaign(run for run, _ in zip(runs, range(n), strict=False))
            good &= print_table(name, result, time.perf_counter() - begin)
    print("every interval covers in 92% to 98% of the runs" if good else "NOT all in 92% to 98%")
    return 0 if good else 1


if __name__ == "__main__":
    raise SystemExit(main())
