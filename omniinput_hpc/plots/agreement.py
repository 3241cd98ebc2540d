"""Judges beside people per bin, drawn: mean scores, biases, and FID where there is one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.figure import Figure
from numpy.typing import NDArray

from omniinput_hpc.estimators.precision_recall.agreement import PeopleComparison
from omniinput_hpc.plots.density import STYLE, panels
from omniinput_hpc.plots.scores import COLOURS, MARKERS

FloatArray = NDArray[np.float64]


def agreement_figure(
    columns: Mapping[str, FloatArray], found: Sequence[PeopleComparison], label: str
) -> Figure:
    """Return the figure of a table of `people_columns`, with a column ``fid`` or without."""
    with mpl.rc_context(STYLE):
        has_fid = "fid" in columns
        figure, axes = panels([3.0, 2.0, 1.6] if has_fid else [3.0, 2.0])
        z = 0.5 * (columns["z_lower"] + columns["z_upper"])
        width = float((columns["z_upper"] - columns["z_lower"]).min())
        axes[0].plot(z, columns["r_people"], "_", markersize=14, markeredgewidth=2, color="black",
                     label="people")  # fmt: skip
        axes[1].axhline(0.0, color="black", linewidth=0.8)
        for n, one in enumerate(found):
            at = z + (n - (len(found) - 1) / 2) * 0.7 * width / max(len(found), 2)
            person = one.judge is None
            style: dict[str, Any] = {
                "fmt": MARKERS[n % len(MARKERS)], "markersize": 4, "elinewidth": 0.8,
                "color": "0.55" if person else COLOURS[n % len(COLOURS)],
                "label": one.name + (" beside the other people" if person else " (judge)"),
            }  # fmt: skip
            r, error = columns[f"r_{one.name}"], columns[f"bias_error_{one.name}"]
            axes[0].errorbar(at, r, **style)
            axes[1].errorbar(at, columns[f"bias_{one.name}"], yerr=error, **style)
        axes[0].set_ylim(-0.05, 1.05)
        axes[0].set_ylabel("mean score r(z)")
        axes[1].set_ylabel("bias")
        axes[0].legend(loc="upper left", bbox_to_anchor=(1.0, 1.0))
        if has_fid:
            axes[2].plot(z, columns["fid"], "o", markersize=4, color=COLOURS[0], label="FID")
            axes[2].plot(z, columns["fid_of_reference"], "_", markersize=10, color="black",
                         label="as many of the reference")  # fmt: skip
            axes[2].set_yscale("log")
            axes[2].set_ylabel("FID")
            axes[2].legend(loc="upper left", bbox_to_anchor=(1.0, 1.0))
        axes[-1].set_xlabel(label)
    return figure
