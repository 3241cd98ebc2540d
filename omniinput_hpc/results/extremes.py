"""Recorded inputs of lowest and of highest z, and the model's own texts, as people see them."""

from __future__ import annotations

import numpy as np

from omniinput_hpc.estimators import FloatArray, IntArray
from omniinput_hpc.estimators.samples import extreme_inputs
from omniinput_hpc.histogram import bin_of
from omniinput_hpc.results.representatives import Representative, Representatives, how_to_show
from omniinput_hpc.runfile.reader import RunReader

EXTREMES = 5


def extremes(
    run: RunReader, n: int = EXTREMES, render: bool = False
) -> tuple[Representatives, Representatives]:
    """Return the n recorded inputs of lowest z and those of highest z, the most extreme first.

    Their bins are those of the run; an output outside them gets the nearest one. `render` is as in
    `representatives.how_to_show`.
    """
    found = []
    for sign, end in ((1.0, "lowest"), (-1.0, "highest")):
        x_nd, z_n = extreme_inputs(run.data, n, sign)
        found.append(_shown(run, x_nd, z_n, f"the recorded inputs of {end} z", render))
    return found[0], found[1]


def own_rung(run: RunReader) -> int | None:
    """Return the rung that samples a language model's own texts (beta = m); None if none does.

    With a law, or with an output other than the loss, no beta gives the model's own texts.
    """
    if run.config.law is not None or run.config.output is not None:
        return None
    m = run.model_beta
    if run.config.sampler.method == "ancestral":
        m = float(run.n_sites - (run.config.predicted_from or 0))
    own = np.flatnonzero(run.data.weights.is_canonical(m))  # without rungs of another lambda
    return int(own[0]) if own.size else None


def own_texts(run: RunReader, k: int, n: int = EXTREMES, render: bool = False) -> Representatives:
    """Return n recorded inputs of rung k, of different lanes, from the last round."""
    ((x_ksd, z_ks),) = run.data.source.samples([run.rounds - 1])
    lanes = np.unique(np.linspace(0, run.walkers - 1, n).astype(int)) - run.walkers
    z_n = z_ks[k, lanes].astype(np.float64)
    order = np.argsort(z_n)
    x_nd = x_ksd[k, lanes].astype(np.int64)[order]
    return _shown(run, x_nd, z_n[order], "the model's own texts", render)


def _shown(
    run: RunReader, x_nd: IntArray, z_n: FloatArray, drawn: str, render: bool
) -> Representatives:
    how = how_to_show(run.config, render)
    bin_n = np.clip(bin_of(z_n, run.edges), 0, len(run.edges) - 2)
    rows = zip(bin_n.tolist(), z_n.tolist(), how.show(x_nd), x_nd, strict=True)
    items = [Representative(b, z, shown, 1, x_d) for b, z, shown, x_d in rows]
    return Representatives(how.kind, how.prefix, how.note, drawn, run.edges, items)
