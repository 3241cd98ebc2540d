"""The picture of a run's mixing: moves and swaps, R-hat, traces of z, walkers on the ladder."""

from __future__ import annotations

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from omniinput_hpc.estimators.errors.chains import MAX_RHAT
from omniinput_hpc.plots.density import EXACT, FAINT, OTHER, SAMPLED, STYLE
from omniinput_hpc.results.diagnosis import Diagnosis, lane_series
from omniinput_hpc.runfile.reader import RunReader

TRACES, PATHS, MOST_POINTS = 4, 6, 600


def diagnosis_figure(d: Diagnosis, run: RunReader, z_label: str) -> Figure:
    """Draw a diagnosis."""
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(9.6, 7.2))
        FigureCanvasAgg(figure)
        (moves, rhat), (traces, paths) = figure.subplots(2, 2)
        _moves(moves, d)
        _rhat(rhat, d)
        _traces(traces, d, run, z_label)
        _paths(paths, d, run)
    return figure


def _moves(axes: Axes, d: Diagnosis) -> None:
    rung_k = np.arange(len(d.beta_k))
    axes.plot(rung_k[:-1] + 0.5, 100 * d.swapped_k, "D-", color=EXACT, label="swaps")
    styles = ["o-", "s--", "^:", "v-.", "x-", "+--"]
    for n, name in enumerate(d.part_names):
        axes.plot(rung_k, 100 * d.accepted_kn[:, n], styles[n % 6], color=SAMPLED, ms=4, label=name)
    axes.set(xlabel="rung", ylabel="accepted (%)", ylim=(-2, 102))
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    _legend_above(axes, 3)


def _legend_above(axes: Axes, ncols: int) -> None:
    """Put the legend above the panel, where it covers nothing."""
    axes.legend(
        ncols=ncols, fontsize=8, loc="lower left", bbox_to_anchor=(0.0, 1.0), borderaxespad=0.2,
        columnspacing=1.2, handlelength=1.6,
    )  # fmt: skip


def _rhat(axes: Axes, d: Diagnosis) -> None:
    rung_k = np.arange(len(d.beta_k))
    axes.plot(rung_k, d.ess_k, "o-", color=SAMPLED)
    axes.set(xlabel="rung", yscale="log")
    axes.set_ylabel("effective sample size of z", color=SAMPLED)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    right = axes.twinx()
    right.spines["right"].set_visible(True)
    right.grid(False)
    right.plot(rung_k, d.rhat_k, "s--", color=EXACT)
    right.axhline(MAX_RHAT, color=FAINT, lw=1)
    right.set_ylabel("R-hat over lanes", color=EXACT)
    right.set_ylim(0.99, max(1.1, 1.02 * float(np.nanmax(d.rhat_k, initial=1.0))))


def _traces(axes: Axes, d: Diagnosis, run: RunReader, z_label: str) -> None:
    chosen = np.unique(np.linspace(0, len(d.beta_k) - 1, TRACES).astype(int))
    for k, color in zip(chosen, (EXACT, OTHER, FAINT, SAMPLED), strict=False):
        z_t = lane_series(run, int(k))[0]
        step = max(1, len(z_t) // MOST_POINTS)
        label = f"rung {k}, flat" if np.isnan(d.beta_k[k]) else f"beta = {d.beta_k[k]:.3g}"
        axes.plot(np.arange(len(z_t))[::step], z_t[::step], lw=0.8, color=color, label=label)
    axes.set(xlabel="recorded sample of lane 0", ylabel=z_label)
    _legend_above(axes, 2)


def _paths(axes: Axes, d: Diagnosis, run: RunReader) -> None:
    where_rv = walker_paths(run)
    step = max(1, len(where_rv) // MOST_POINTS)
    n_walkers = where_rv.shape[1]
    for i, walker in enumerate(np.linspace(0, n_walkers - 1, min(PATHS, n_walkers)).astype(int)):
        color = (SAMPLED, EXACT, OTHER, FAINT, "#CC79A7", "#E69F00")[i % 6]
        rounds = np.arange(len(where_rv))[::step]
        axes.plot(rounds, where_rv[::step, walker], lw=0.8, color=color)
    axes.set(xlabel="round", ylabel=f"rung of {min(PATHS, n_walkers)} walkers")
    axes.yaxis.set_major_locator(MaxNLocator(integer=True))


def walker_paths(run: RunReader) -> np.ndarray:
    """Return the rung of each walker after each round, int64 [rounds, W K]."""
    k, w = run.geometry.n_rungs, run.walkers
    where_rv = np.empty((run.rounds, k * w), dtype=np.int64)
    rung_kw = np.repeat(np.arange(k), w).reshape(k, w)
    for round_ in range(run.rounds):
        where_rv[round_, run.round(round_).walker_kw] = rung_kw
    return where_rv
