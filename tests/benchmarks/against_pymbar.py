"""Free energies of a run beside pymbar's, from the same recorded samples.

    .venv/bin/python tests/benchmarks/against_pymbar.py runs/toy.h5

Prints, per rung, f_k - f_0 by pymbar's MBAR, how far our own MBAR on the samples (`unbinned`) and
the multi-histogram equations on the bins lie from it, and the latter's standard error.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

import numpy as np

from omniinput_hpc.estimators.density.density import density_of_run
from omniinput_hpc.estimators.density.mbar import free_energy_errors, mbar, read_samples
from omniinput_hpc.runfile.reader import open_run


def pymbar_f_k(beta_k: np.ndarray, z_ks: np.ndarray) -> np.ndarray:
    """Return pymbar's free energies of canonical rungs [K] from outputs [K, S]."""
    import pymbar

    solver = ({"method": "adaptive", "options": {"min_sc_iter": 0, "maximum_iterations": 500}},)
    n_k = np.full(len(beta_k), z_ks.shape[1])
    return np.asarray(
        pymbar.MBAR(
            np.outer(beta_k, z_ks.ravel()), n_k, relative_tolerance=1e-13, solver_protocol=solver
        ).f_k
    )


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("run", type=Path, metavar="RUN.h5", help="with canonical rungs")
    parser.add_argument("--samples", type=int, default=1_000_000, help="at most as many")
    options = parser.parse_args()
    with open_run(options.run) as run:
        samples = read_samples(run.data, options.samples)
        n_rounds = int(samples.count_gu.sum()) // (len(run.beta_k) * run.samples_per_round)
        rounds = np.unique(np.linspace(0, run.rounds - 1, n_rounds).astype(int))
        z_rks = np.stack([run.samples_z(slice(r, r + 1))[0] for r in rounds])
        density = density_of_run(run.data)
        beta_k = run.beta_k
    z_ks = z_rks.swapaxes(0, 1).reshape(len(beta_k), -1).astype(np.float64)
    begin = time.process_time()
    ours = mbar(samples)
    middle = time.process_time()
    theirs_k = pymbar_f_k(beta_k, z_ks)
    end = time.process_time()
    error_k = free_energy_errors(samples, ours)
    own_k, bins_k = ours.f_k - ours.f_k[0], density.f_k - density.f_k[0]
    theirs_k = theirs_k - theirs_k[0]
    print(f"{z_ks.size:,} samples; CPU seconds: ours {middle - begin:.2f}, ", end="")
    print(f"pymbar {end - middle:.2f}")
    print("      beta       pymbar   samples - pymbar   bins - pymbar   standard error")
    for beta, f, own, binned, error in zip(
        beta_k, theirs_k, own_k - theirs_k, bins_k - theirs_k, error_k, strict=True
    ):
        print(f"{beta:10.4g} {f:12.6f} {own:18.1e} {binned:15.1e} {error:16.1e}")
    known = error_k > 0
    sigmas = np.abs(bins_k - theirs_k)[known] / error_k[known]
    print(f"largest: samples {np.abs(own_k - theirs_k).max():.1e} nats, ", end="")
    print(f"bins {sigmas.max():.2f} standard errors")


if __name__ == "__main__":
    main()
