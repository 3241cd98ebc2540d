"""The inputs of lowest and of highest z among those that a run recorded, as people see them."""

from __future__ import annotations

import numpy as np

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
    how = how_to_show(run.config, render)

    def at(sign: float, end: str) -> Representatives:
        x_nd, z_n = extreme_inputs(run.data, n, sign)
        bin_n = np.clip(bin_of(z_n, run.edges), 0, len(run.edges) - 2)
        rows = zip(bin_n.tolist(), z_n.tolist(), how.show(x_nd), x_nd, strict=True)
        items = [Representative(b, z, shown, 1, x_d) for b, z, shown, x_d in rows]
        drawn = f"the recorded inputs of {end} z"
        return Representatives(how.kind, how.prefix, how.note, drawn, run.edges, items)

    return at(1.0, "lowest"), at(-1.0, "highest")
