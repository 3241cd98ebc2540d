"""Plot the labels of a bank for a model: their effective number, and what they represent."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from matplotlib.figure import Figure

from omniinput_hpc.estimators import FloatArray
from omniinput_hpc.plots import style
from omniinput_hpc.text import WORDS_OF


@style.styled
def labels_figure(columns: Mapping[str, FloatArray], label: str, measure: str = "count") -> Figure:
    """Return the numbers of labels per bin, and below the share of its inputs that they represent.

    `columns` are those of RUN.bank.csv. Under a law, by the `measure`, shares are of probability.
    """
    figure, (top, bottom) = style.panels([2.6, 2.2])
    low, high = columns["z_lower"], columns["z_upper"]
    z, blue, orange = 0.5 * (low + high), style.colour(0), style.colour(1)
    top.bar(z, columns["labels"], high - low, color=blue, alpha=0.3, label="labelled inputs")
    top.bar(z, columns["effective"], 0.7 * (high - low), color=blue, label="effective number")
    top.set_ylabel("labels per bin")
    share, error = columns["represented"], columns["represented_error"]
    missing = columns["missing"] > 0
    known = np.isfinite(share)
    fine = known & ~missing
    said = "labels represent, ± 1 standard error"
    style.points(bottom, z[fine], share[fine], error[fine], said, blue)
    lost = known & missing
    style.points(bottom, z[lost], share[lost], error[lost], "labels are missing", orange)
    bottom.axhline(1.0, color=style.FAINT, linewidth=1.1)
    bottom.set(xlabel=label, ylabel=f"share of the bin's {WORDS_OF[measure].things}")
    style.legend_above(top, 2)
    style.legend_above(bottom, 2)
    return figure
