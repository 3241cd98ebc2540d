"""Convert a run for ArviZ: the lanes of each rung become chains of the output z."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from omniinput_hpc.errors import UserError
from omniinput_hpc.estimators.run_data import require_rounds
from omniinput_hpc.runfile.reader import RunReader
from omniinput_hpc.text import __version__

if TYPE_CHECKING:
    import xarray


def to_arviz(run: RunReader) -> xarray.DataTree:
    """Return the recorded outputs as a DataTree.

    Its group `posterior` holds ``z``, float64 [chain, draw, rung]. Chain w is lane w of every rung,
    an independent copy of the whole ladder; draws are in order of time, over all committed rounds.
    The group `sample_stats` holds ``walker``, int64 of the same shape: the walker that was sampled.
    The coordinate ``beta`` [rung] is the rung's beta (NaN: flat histogram). Draws are samples of
    their rung, weighted by exp(-beta z); only beta = 0 gives all inputs the same weight, or that of
    the run's law. A ladder with an observable y has the coordinate ``lambda`` [rung], too: its
    rungs weigh by exp(-beta z - lambda y). Two methods differ: rungs of an ancestral run draw each
    value from p^b, with p the model's probability and b = beta / m, and walkers of an annealed run
    represent exp(-beta z) only with their populations' weights, which the tree does not hold.

    Raises
    ------
    UserError
        xarray is not installed.
    EstimateError
        No committed round.
    """
    try:
        import xarray
    except ModuleNotFoundError:
        words = "xarray is not installed: python -m pip install arviz"
        raise UserError(words) from None
    require_rounds(run)
    z_rks = run.samples_z()
    walker_rks = np.stack([run.slab("samples/walker", r) for r in range(run.rounds)])

    def by_lane(values_rks: np.ndarray) -> np.ndarray:
        n_rungs, lanes = values_rks.shape[1], run.walkers
        split = values_rks.reshape(run.rounds, n_rungs, -1, lanes)  # samples are time-major
        return split.transpose(3, 0, 2, 1).reshape(lanes, -1, n_rungs)

    dims = ("chain", "draw", "rung")
    z_wtk = by_lane(z_rks.astype(np.float64))
    coords = {
        "chain": np.arange(z_wtk.shape[0]),
        "draw": np.arange(z_wtk.shape[1]),
        "rung": np.arange(z_wtk.shape[2]),
        "beta": ("rung", run.beta_k),
    }
    ladder = run.config.ladder
    if ladder is not None and ladder.observable:
        coords["lambda"] = ("rung", ladder.lambda_k)
    about = {
        "inference_library": "omniinput_hpc",
        "inference_library_version": __version__,
        "model_fingerprint": run.fingerprint,
        "run_file": str(run.path),
    }
    posterior = xarray.Dataset({"z": (dims, z_wtk)}, coords, about)
    stats = xarray.Dataset({"walker": (dims, by_lane(walker_rks.astype(np.int64)))}, coords, about)
    return xarray.DataTree.from_dict({"posterior": posterior, "sample_stats": stats})
