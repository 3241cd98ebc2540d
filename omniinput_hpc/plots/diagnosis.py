"""Plot a run's mixing: accepted moves and swaps, R-hat, traces of z, walkers on the ladder."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator
from numpy.typing import NDArray

from omniinput_hpc.estimators.errors.chains import rhat_limit
from omniinput_hpc.estimators.errors.diagnosis import Diagnosis
from omniinput_hpc.plots import style

MAX_POINTS = 600  # per line
MAX_RUNG_LABELS = 8
LINE_STYLES = ("-", "--", ":", "-.")


@style.styled
def diagnosis_figure(
    d: Diagnosis, traces: Mapping[int, style.FloatArray], paths_rv: NDArray[np.int64], label: str
) -> Figure:
    """Return the figure of a diagnosis.

    Parameters
    ----------
    traces : by rung, float64 [T], the recorded z of one lane in order of time
    paths_rv : int64 [rounds, n], the rung of some walkers after each round
    label : axis label of the output z, with its unit
    """
    figure = style.blank(9.6, 7.2)
    (moves, rhat), (trace, paths) = figure.subplots(2, 2)
    _moves(moves, d)
    _rhat(rhat, d)
    _traces(trace, d, traces, label)
    _paths(paths, d, paths_rv)
    return figure


def _moves(axes: Axes, d: Diagnosis) -> None:
    rung_k = np.arange(len(d.beta_k))
    axes.plot(rung_k[:-1] + 0.5, 100 * d.swapped_k, "D-", color=style.exact(), ms=4, label="swaps")
    for n, name in enumerate(d.part_names):
        line = style.marker(n) + LINE_STYLES[n % len(LINE_STYLES)]
        axes.plot(rung_k, 100 * d.accepted_kn[:, n], line, color=style.sampled(), ms=4, label=name)
    axes.set(ylabel="accepted (%)", ylim=(-2, 102))
    _rung_axis(axes, d)
    style.legend_above(axes, 3)


def _rung_axis(axes: Axes, d: Diagnosis) -> None:
    """Label rungs by their beta, or by their number if flat-histogram rungs have none."""
    axes.set_xticks(*_rung_labels(d))
    axes.set_xlabel(_rung_name(d))


def _rung_labels(d: Diagnosis) -> tuple[NDArray[np.int64], list[str]]:
    """Return some rungs, int64 [n], and their labels."""
    n = len(d.beta_k)
    step = max(1, -(-(n - 1) // (MAX_RUNG_LABELS - 1)))  # evenly, so that no two labels touch
    shown = np.arange(n - 1, -1, -step)[::-1]
    flat = np.isnan(d.beta_k)
    return shown, [f"flat {k}" if flat[k] else f"{d.beta_k[k]:.3g}" for k in shown]


def _rung_name(d: Diagnosis) -> str:
    return "rung" if np.isnan(d.beta_k).all() else "beta of the rung"


def _rhat(axes: Axes, d: Diagnosis) -> None:
    rung_k = np.arange(len(d.beta_k))
    axes.plot(rung_k, d.ess_k, "o-", color=style.sampled(), ms=4)
    axes.set(yscale="log")
    _rung_axis(axes, d)
    axes.set_ylabel("effective sample size of z", color=style.sampled())
    right = axes.twinx()
    right.spines["right"].set_visible(True)
    right.grid(False)
    right.plot(rung_k, d.rhat_k, "s--", color=style.exact(), ms=4)
    limit = float(rhat_limit(len(d.beta_k), len(d.trips_v) // len(d.beta_k)))
    right.axhline(limit, color=style.FAINT, lw=1)
    right.annotate(
        f"limit {limit:.3g}", (1.0, limit), xycoords=("axes fraction", "data"),
        xytext=(-4, 3), textcoords="offset points", fontsize=8, color=style.NOTE, ha="right",
    )  # fmt: skip
    right.set_ylabel("R-hat over lanes", color=style.exact())
    known_k = d.rhat_k[np.isfinite(d.rhat_k)]
    right.set_ylim(0.99, max(1.1, 1.02 * float(known_k.max(initial=limit))))


def _traces(axes: Axes, d: Diagnosis, traces: Mapping[int, style.FloatArray], label: str) -> None:
    for i, (k, z_t) in enumerate(traces.items()):
        name = f"rung {k}, flat" if np.isnan(d.beta_k[k]) else f"beta = {d.beta_k[k]:.3g}"
        _thinned(axes, z_t, color=style.colour(i), label=name)
    axes.set(xlabel="recorded sample of lane 0", ylabel=label.partition(",")[0])
    style.legend_above(axes, 2)


def _paths(axes: Axes, d: Diagnosis, paths_rv: NDArray[np.int64]) -> None:
    for i, path_r in enumerate(paths_rv.T):
        _thinned(axes, path_r, color=style.colour(i))
    axes.set(xlabel="round", ylabel=f"{_rung_name(d)}, {paths_rv.shape[1]} walkers")
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.set_yticks(*_rung_labels(d))


def _thinned(axes: Axes, y_t: NDArray[Any], **look: Any) -> None:
    """Draw a series against its index; of a long one, only every n-th point."""
    step = max(1, len(y_t) // MAX_POINTS)
    axes.plot(np.arange(len(y_t))[::step], y_t[::step], lw=0.8, **look)
