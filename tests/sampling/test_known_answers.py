"""Samplers on spaces that no one can enumerate: over 300 nats, and a first-order transition.

The density must be within 4.5 of its own standard errors in every bin, and the root mean square
of these z-scores within 0.7 to 1.4 over the runs of a method. To print the table of all methods:
`PYTHONPATH=tests/helpers .venv/bin/python tests/sampling/test_known_answers.py [RUNS [CASE ...]]`
"""

from __future__ import annotations

import sys
import tempfile
import time
import tomllib
from pathlib import Path

import numpy as np
import pytest
import tomli_w
from known_answers import Occupation, Sites
from scipy.stats import norm
from scipy.stats import t as student

from omniinput_hpc.cli import run as launch
from omniinput_hpc.estimators.density.density import density_of_run
from omniinput_hpc.runfile.reader import open_run

pytestmark = pytest.mark.slow

BASE = """
[run]
seed = 1
[model]
kind = "python"
[samples]
every = 10
"""
WARM = [0.0, 0.09, 0.19, 0.3, 0.43, 0.57, 0.73, 0.92, 1.15, 1.45, 1.8]
ALL = [
    -2.3,
    -2.0,
    -1.75,
    -1.53,
    -1.36,
    -1.23,
    -1.12,
    -1.02,
    -0.92,
    -0.84,
    -0.76,
    -0.68,
    -0.61,
    -0.54,
    -0.47,
    -0.4,
    -0.33,
    -0.26,
    -0.19,
    -0.12,
    -0.05,
    0.0,
    0.08,
    *WARM[2:],
    2.3,
    2.9,
]
# kappa makes one phase of what is two at beta = 0.339; z0 moves it through the valley
BRIDGE = {-300.0: 0.002, -250.0: 0.002, -200.0: 0.002, -150.0: 0.003, -120.0: 0.004, -90.0: 0.005,
          -65.0: 0.006, -40.0: 0.006, -20.0: 0.006, 0.0: 0.004}  # fmt: skip


def case(factory, bins, method, rounds, walkers=128, **tables):
    tables.setdefault("kernel", {"name": "metropolis"})
    return {
        "run": {"rounds": rounds, "burn_in": max(2 * rounds // 3, 8)},
        "model": {"factory": f"known_answers:{factory}"},
        "bins": dict(zip(("lower", "upper", "width"), bins, strict=True)),
        "sampler": {"method": method, "walkers": walkers, "steps": 40, "exchanges": 8},
        **tables,
    }


def tempering(betas, **more):
    return {"ladder": {"betas": betas, **more}}


def flat(**options):
    return {"ladder": {"betas": [0.0]}, "wang_landau": {"ln_f_last": 0.003, **options}}


def sites_case(method, rounds, **tables):
    return Sites(), case("sites", (-0.5, 700.5, 1.0), method, rounds, **tables)


def occupation_case(method, rounds, width=1.0, **tables):
    """From 24 equal values to 25 it takes a uniform move 1,575 tries: rounds of 1,000 moves."""
    made = case("occupation", (-302.5, 2.5, width), method, rounds, 64, **tables)
    made["sampler"] |= {"steps": 125}
    return Occupation(), made


PT, WL = "parallel-tempering", "wang-landau"
WINDOWS = [[40.5, 80.5], [60.5, 110.5], [85.5, 150.5], [120.5, 200.5]]
FORWARD = {"name": "gibbs-with-gradients"}
AROUND = [0.0, 0.1, 0.2, 0.25, 0.29, 0.31, 0.325, 0.335, 0.34, 0.345, 0.355, 0.38]
CASES = {
    "sites, tempering": sites_case(PT, 8, **tempering(WARM)),
}
LONG = {
    # the highest energy is one value of 256 at each of 100 sites: 25,600 moves a sweep of them
    "sites, tempering, 33 rungs": sites_case(PT, 200, **tempering(ALL)),
    "sites, gibbs-with-gradients, 33 rungs": sites_case(
        PT, 8, **tempering(ALL), walkers=32, kernel=FORWARD),
    "sites, gibbs-with-gradients": sites_case(
        PT, 8, **tempering(WARM), walkers=64, kernel=FORWARD),
    "sites, discrete-langevin": sites_case(
        PT, 8, **tempering(WARM), walkers=32, kernel={"name": "discrete-langevin"}),
    "sites, wang-landau": sites_case(WL, 40, **flat(windows=[[60.5, 200.5]])),
    "sites, gradient wang-landau": sites_case(
        WL, 24, walkers=64, kernel=FORWARD, **flat(windows=[[60.5, 130.5], [100.5, 200.5]])),
    "sites, replica-exchange wang-landau": sites_case(WL, 30, **flat(windows=WINDOWS)),
    "occupation, tempering": occupation_case(PT, 40, **tempering(AROUND)),
    "occupation, gaussian ladder": occupation_case(PT, 30, **tempering(
        [0.339] * len(BRIDGE) + [0.2, 0.0],
        kappa=[*BRIDGE.values(), 0.0, 0.0], z0=[*BRIDGE, 0.0, 0.0])),
    "occupation, replica-exchange wang-landau": occupation_case(
        WL, 60, 5.0, **flat(windows=5, overlap=0.5, ln_f_last=1e-5)),
}  # fmt: skip


def input_text(tables, output, seed):
    tree = tomllib.loads(BASE)
    for name, table in tables.items():
        tree[name] = {**tree.get(name, {}), **table}
    tree["run"] |= {"output": str(output), "seed": seed}
    return tomli_w.dumps(tree)


def scores_of(name, folder, seed, rounds=None):
    """Run one case; return z-scores per bin, and how many nats the bins span."""
    model, tables = {**CASES, **LONG}[name]
    if rounds:
        tables = {**tables, "run": {"rounds": rounds, "burn_in": 6}}
    path = folder / f"run-{seed}.h5"
    (folder / "input.toml").write_text(input_text(tables, path, seed))
    assert launch.main([str(folder / "input.toml")]) == 0
    with open_run(path) as run:
        density = density_of_run(run.data)
    path.unlink()
    z, log_count = model.log_count()
    exact = np.full(len(density.edges) - 1, -np.inf)
    np.logaddexp.at(exact, np.searchsorted(density.edges, z) - 1, log_count)
    known = np.isfinite(density.log_g_error_b) & (density.count_b > 0) & (density.effective_b >= 50)
    assert np.isfinite(exact[known]).all() and density.absolute
    t = (density.log_g_b[known] - exact[known]) / density.log_g_error_b[known]
    # errors come from 16 groups of lanes: Student's t, as the normal deviate of equal probability
    z_score = norm.ppf(student.cdf(t, len(density.lanes_g) - 1))
    return z_score, float(np.ptp(exact[known]))


def check(z_score):
    rms = np.sqrt(np.mean(z_score**2))
    assert 0.7 < rms < 1.4, f"rms z-score {rms:.2f}"
    assert np.abs(z_score).max() < 4.5


@pytest.mark.parametrize("seeds", [[1], pytest.param([1, 2], marks=pytest.mark.release)])
@pytest.mark.parametrize("name", CASES)
def test_the_known_density_is_found(name, tmp_path, seeds):
    """Bins of one run are correlated: a run holds a few independent numbers only, so some count."""
    parts = [scores_of(name, tmp_path, seed, rounds=4) for seed in seeds]
    check(np.concatenate([part for part, _ in parts]))
    assert min(span for _, span in parts) > 50.0


def table(n_runs, names):
    """Print the z-scores of all methods."""
    for name in names:
        begin = time.monotonic()
        with tempfile.TemporaryDirectory() as place:
            found = [scores_of(name, Path(place), seed) for seed in range(1, n_runs + 1)]
        pooled = np.concatenate([part for part, _ in found])
        print(
            f"{name:42} bins {len(pooled):5d}  nats {min(s for _, s in found):6.1f}  "
            f"rms z {np.sqrt(np.mean(pooled**2)):.3f}  largest |z| {np.abs(pooled).max():.2f}  "
            f"{time.monotonic() - begin:.0f} s",
            flush=True,
        )


if __name__ == "__main__":
    table(int(sys.argv[1]) if len(sys.argv) > 1 else 4, sys.argv[2:] or [*CASES, *LONG])
