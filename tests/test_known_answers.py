"""Samplers on spaces that no one can enumerate: over 300 nats, and a first-order transition.

The density must be within 4.5 of its own standard errors in every bin, and the root mean square
of these z-scores within 0.7 to 1.4 over the runs of a method. `python tests/test_known_answers.py`
prints the table of all methods with longer runs.
"""

from __future__ import annotations

import sys
import tempfile
import tomllib
from pathlib import Path

import numpy as np
import pytest
import tomli_w
from known_answers import Occupation, Sites

from omniinput_hpc import launch
from omniinput_hpc.estimators.density import density_of_run
from omniinput_hpc.run_reader import open_run

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
BRIDGE = [-300.0, -270.0, -240.0, -210.0, -180.0, -150.0, -120.0, -90.0, -60.0, -30.0, 0.0]


def case(factory, lower, upper, method, rounds, walkers=64, **tables):
    tables.setdefault("kernel", {"name": "metropolis"})
    return {
        "run": {"rounds": rounds, "burn_in": max(rounds // 2, 8)},
        "model": {"factory": f"known_answers:{factory}"},
        "bins": {"lower": lower, "upper": upper, "width": 1.0},
        "sampler": {"method": method, "walkers": walkers, "steps": 50, "exchanges": 8},
        **tables,
    }


def occupation_case(method, rounds, **tables):
    return case("occupation", -300.5, 0.5, method, rounds, **tables)


def sites_case(method, rounds, **tables):
    return case("sites", -0.5, 700.5, method, rounds, **tables)


LONG = {
    "sites, all 33 rungs": (Sites, sites_case(
        "parallel-tempering", 40, ladder={"betas": ALL})),
    "sites, gibbs-with-gradients": (Sites, sites_case(
        "parallel-tempering", 24, ladder={"betas": WARM}, walkers=32,
        kernel={"name": "gibbs-with-gradients"})),
    "sites, discrete-langevin": (Sites, sites_case(
        "parallel-tempering", 24, ladder={"betas": WARM}, walkers=32,
        kernel={"name": "discrete-langevin"})),
    "occupation, parallel tempering": (Occupation, occupation_case(
        "parallel-tempering", 200, ladder={
            "betas": [0.0, 0.1, 0.2, 0.25, 0.29, 0.31, 0.325, 0.335, 0.34, 0.345, 0.355, 0.38]})),
}  # fmt: skip
CASES = {
    "sites, parallel tempering": (Sites, sites_case(
        "parallel-tempering", 24, ladder={"betas": WARM})),
    "sites, replica-exchange wang-landau": (Sites, sites_case(
        "wang-landau", 40, ladder={"betas": [0.0]},
        wang_landau={"windows": [[40.5, 80.5], [60.5, 110.5], [85.5, 150.5], [120.5, 200.5]],
                     "ln_f_last": 0.003})),
    "occupation, gaussian": (Occupation, occupation_case(
        "parallel-tempering", 40, ladder={
            "betas": [0.339] * len(BRIDGE) + [0.2, 0.0],
            "kappa": [0.01] * len(BRIDGE) + [0.0, 0.0], "z0": [*BRIDGE, 0.0, 0.0]})),
    "occupation, replica-exchange wang-landau": (Occupation, occupation_case(
        "wang-landau", 60, ladder={"betas": [0.0]},
        wang_landau={"windows": 8, "overlap": 0.6, "ln_f_last": 0.003})),
}  # fmt: skip


def input_text(tables, output, seed):
    tree = tomllib.loads(BASE)
    for name, table in tables.items():
        tree[name] = {**tree.get(name, {}), **table}
    tree["run"] |= {"output": str(output), "seed": seed}
    return tomli_w.dumps(tree)


def scores_of(name, folder, seed, more=1):
    """Run one case; return z-scores per bin, and how many nats the bins span."""
    model, tables = {**CASES, **LONG}[name]
    tables = {**tables, "run": {key: more * n for key, n in tables["run"].items()}}
    path = folder / f"run-{seed}.h5"
    (folder / "input.toml").write_text(input_text(tables, path, seed))
    assert launch.main([str(folder / "input.toml")]) == 0
    with open_run(path) as run:
        density = density_of_run(run)
    path.unlink()
    z, log_count = model.log_count()
    exact = np.full(len(density.edges) - 1, -np.inf)
    exact[np.searchsorted(density.edges, z) - 1] = log_count
    known = np.isfinite(density.log_g_error_b) & (density.count_b > 0) & (density.effective_b >= 50)
    assert np.isfinite(exact[known]).all() and density.absolute
    z_score = (density.log_g_b - exact)[known] / density.log_g_error_b[known]
    return z_score, float(np.ptp(exact[known]))


def check(z_score):
    rms = np.sqrt(np.mean(z_score**2))
    assert 0.7 < rms < 1.4, f"rms z-score {rms:.2f}"
    assert np.abs(z_score).max() < 4.5


@pytest.mark.parametrize("name", CASES)
def test_the_known_density_is_found(name, tmp_path):
    parts = [scores_of(name, tmp_path, seed) for seed in (1, 2)]
    check(np.concatenate([part for part, _ in parts]))
    assert min(span for _, span in parts) > (70.0 if "occupation" in name else 50.0)


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parent))
    for case_name in [*CASES, *LONG]:
        with tempfile.TemporaryDirectory() as place:
            found = [scores_of(case_name, Path(place), seed, more=4) for seed in range(1, 5)]
        pooled = np.concatenate([part for part, _ in found])
        print(
            f"{case_name:42} bins {len(pooled):5d}  nats {min(s for _, s in found):6.1f}  "
            f"rms z {np.sqrt(np.mean(pooled**2)):.3f}  largest |z| {np.abs(pooled).max():.2f}",
            flush=True,
        )
