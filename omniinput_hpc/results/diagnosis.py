"""Diagnose how well a run mixes, from moves, swaps, round trips and ESS; give advice.

Effective sample sizes come from arviz-stats. Needs neither MPI nor torch.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from omniinput_hpc.config import Config
from omniinput_hpc.estimators import BoolArray, EstimateError, FloatArray, IntArray
from omniinput_hpc.estimators.density.density import Density, density_of_run
from omniinput_hpc.estimators.density.facts import MIN_TRIP_TIMES
from omniinput_hpc.estimators.errors.chains import chain_diagnostics, lanes_disagree
from omniinput_hpc.estimators.errors.convergence import Check
from omniinput_hpc.estimators.errors.diagnosis import Diagnosis
from omniinput_hpc.estimators.run_data import require_rounds
from omniinput_hpc.results.density import check_lines, populations_lines
from omniinput_hpc.results.record import Record
from omniinput_hpc.results.result import Written
from omniinput_hpc.results.tables import Columns
from omniinput_hpc.runfile.reader import RunReader
from omniinput_hpc.text import shown

if TYPE_CHECKING:
    from matplotlib.figure import Figure

NOTHING = "nothing stands out"
UNCHECKED = "the checks of the run's density were not made; density() makes them"
FEW_SWAPS, MANY_SWAPS = 0.2, 0.9
FEW_MOVES = 0.01
MAX_DIAGNOSED_SAMPLES = 20_000
"""Most samples of a rung that its diagnostics use; longer series are thinned."""


@dataclass(frozen=True, repr=False)
class DiagnosisResult(Written):
    """How well a run mixes: a row for each rung.

    Attributes
    ----------
    found : the numbers
    checks : of the run's density, or why it has none
    constants : lines on the normalization constants of annealed populations
    traces, paths_rv : of the figure: the recorded z of one lane by rung, float64 [T], and the rung
        of some walkers after each round, int64 [rounds, n]
    """

    NAME: ClassVar = "diagnose"
    TITLE: ClassVar = "Mixing of"

    found: Diagnosis
    checks: Sequence[Check] = ()
    constants: Sequence[str] = ()
    traces: Mapping[int, FloatArray] = field(default_factory=dict)
    paths_rv: IntArray = field(default_factory=lambda: np.empty((0, 0), dtype=np.int64))

    @property
    def converged(self) -> bool:
        """Whether the checks of the run's density were made, and all have passed."""
        return bool(self.checks) and all(check.passed for check in self.checks)

    @property
    def reasons(self) -> tuple[str, ...]:
        """Why the run has not converged, or why that is not known, one sentence each."""
        failed = tuple(check.reason for check in self.checks if not check.passed)
        return failed if self.checks else (UNCHECKED,)

    @property
    def advice(self) -> list[str]:
        """Changes to make, one sentence each; empty if nothing stands out."""
        return advice(self.found)

    def columns(self) -> Columns:
        """Return the columns of RUN.diagnose.csv, a row per rung; the last has no swap_up."""
        d = self.found
        return {
            "rung": np.arange(len(d.beta_k), dtype=np.float64),
            "beta": d.beta_k,
            "z_mean": d.z_mean_k,
            "z_std": d.z_std_k,
            "ess": d.ess_k,
            "rhat": d.rhat_k,
            "swap_up": np.append(d.swapped_k, np.nan),
            **{f"accepted {name}": d.accepted_kn[:, n] for n, name in enumerate(d.part_names)},
        }

    def lines(self) -> list[str]:
        """Return what ``omniinput diagnose`` prints: the table, the checks, what to change."""
        constants = list(self.constants)
        if constants:
            constants.append("mean z, sd z, ESS and R-hat are of walkers, not of what they weigh")
        checks = check_lines(self.checks) if len(self.checks) > 1 else []
        failed = [f"not converged: {check.reason}" for check in self.checks if not check.passed]
        hints = [*failed, *self.advice] or [NOTHING]
        return [self.source, *table(self.found), *constants, *checks, *hints]

    def summary(self) -> list[str]:
        """Return what to change."""
        return self.advice or [NOTHING]

    def about(self) -> list[str]:
        """Return the source and what to change."""
        return [self.source, *self.advice]

    def record(self, into: Record) -> None:
        """Add the density's verdict, Lambda, round trips, and the worst rungs."""
        super().record(into)
        d = self.found
        into.add_value("Lambda", d.barrier)
        into.add_value("rungs needed", d.rungs_needed if np.isfinite(d.barrier) else np.nan)
        into.add_value("round trips", int(d.trips_v.sum()))
        into.add_value("smallest effective sample size", float(np.min(d.ess_k)))
        into.add_value("largest R-hat", float(np.max(d.rhat_k)))

    def drawn(self) -> Sequence[Density]:
        """Return none: the picture shows no density."""
        return ()

    def figure(self) -> Figure:
        """Return accepted moves, R-hat, traces and walkers' paths."""
        from omniinput_hpc.plots.diagnosis import diagnosis_figure

        return diagnosis_figure(self.found, self.traces, self.paths_rv, self.label)


def diagnosis_of(run: RunReader, checked: bool = True) -> DiagnosisResult:
    """Diagnose a run, if `checked` with the checks of its density; raises as `diagnose` does."""
    densities, checks, rhat_k = [], [], None
    if checked:
        try:
            densities = [density_of_run(run.data)]
        except EstimateError as error:
            checks = [Check("density", sentence=f"there is no density: {error}")]
        else:
            checks, rhat_k = [*densities[0].verdict.checks], densities[0].verdict.rhat_k
    found, series = diagnose(run, rhat_k), (lane_traces(run), walker_paths(run))
    return DiagnosisResult([run], densities, found, checks, populations_lines(run.data), *series)


def diagnose(run: RunReader, rhat_k: FloatArray | None = None) -> Diagnosis:
    """Diagnose a run from its committed rounds.

    `rhat_k`, float64 [K], is R-hat if it is already known (from a density's verdict, say), which
    saves a pass over the recorded outputs.

    Raises
    ------
    EstimateError
        No round is committed yet.
    """
    require_rounds(run, "diagnose")
    config = run.config
    attempted_kn, accepted_kn = run.acceptance_kn()
    swaps_k2 = run.swaps_k2()
    with np.errstate(invalid="ignore"):
        moved_kn = accepted_kn / attempted_kn
        swapped_k = swaps_k2[:, 1] / swaps_k2[:, 0]
    barrier = float(np.sum(1.0 - swapped_k)) if len(swapped_k) else np.nan
    trips_v = run.round_trips_v()
    exchanges = run.rounds * config.sampler.exchanges
    if rhat_k is None or run.data.is_part:  # the density's verdict is on a part of the rungs
        rhat_k, *_ = chain_diagnostics(run.all_rungs())
    ess_k, mean_k, std_k = _chains(run)
    return Diagnosis(
        beta_k=run.beta_k,
        z_mean_k=mean_k,
        z_std_k=std_k,
        ess_k=ess_k,
        rhat_k=rhat_k,
        accepted_kn=moved_kn,
        part_names=config.kernel.part_names,
        swapped_k=swapped_k,
        barrier=barrier,
        trips_v=trips_v,
        trip_rate=float(trips_v.sum() / (run.walkers * exchanges)),
        ideal_rate=1.0 / (2.0 + 2.0 * barrier),
        drawn_k=_drawn(run, config),
        exchanges=exchanges,
    )


def _drawn(run: RunReader, config: Config) -> BoolArray:
    """Return the rungs that have exact anchors or consist only of draws, bool [K]."""
    if config.sampler.method == "ancestral":
        return np.ones(len(run.beta_k), dtype=bool)
    if config.sampler.method == "annealed":
        return np.asarray(np.arange(len(run.beta_k)) == 0)
    ladder = config.ladder
    if ladder is None or not ladder.with_anchors:
        return np.zeros(len(run.beta_k), dtype=bool)
    plain_k = run.kappa_k() == 0.0
    if ladder.lambdas is not None:  # such a ladder has no flat rungs
        plain_k &= ladder.lambda_k == 0.0
    return np.asarray(plain_k & ((run.beta_k == 0.0) | (run.beta_k == run.model_beta)))


def _chains(run: RunReader) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Return effective sample size, mean and standard deviation of z, float64 [K] each."""
    from arviz_stats.base import array_stats  # slow if ArviZ is installed: imports all of it

    n_rungs = len(run.beta_k)
    ess_k, mean_k, std_k = np.full((3, n_rungs), np.nan)
    for k in range(n_rungs):
        z_wt = lane_series(run, k)
        mean_k[k], std_k[k] = z_wt.mean(), z_wt.std()
        if z_wt.shape[1] >= 4 and z_wt.std() > 0:
            thinned = z_wt[:, :: max(1, z_wt.size // MAX_DIAGNOSED_SAMPLES)]
            if thinned.shape[1] < 4:
                thinned = z_wt
            ess = array_stats.ess(thinned, chain_axis=0, draw_axis=1)
            ess_k[k] = min(float(ess), z_wt.size)  # noise would give independent draws more
    return ess_k, mean_k, std_k


def lane_series(run: RunReader, k: int) -> FloatArray:
    """Return the recorded z of a rung by lane, float64 [W, T]."""
    z_rs = run.samples_z(rungs=slice(k, k + 1))[:, 0]
    return z_rs.astype(np.float64).reshape(-1, run.walkers).T


def lane_traces(run: RunReader, n_rungs: int = 4) -> dict[int, FloatArray]:
    """Return the recorded z of lane 0, float64 [T], for rungs spread evenly over the ladder."""
    rungs = np.unique(np.linspace(0, len(run.beta_k) - 1, n_rungs).astype(int))
    traces = {}
    for k in map(int, rungs):
        z_rs = run.samples_z(rungs=slice(k, k + 1))[:, 0, :: run.walkers]
        traces[k] = z_rs.astype(np.float64).ravel()
    return traces


def walker_paths(run: RunReader, n_walkers: int = 6) -> IntArray:
    """Return the rung of evenly spaced walkers after each round, int64 [rounds, n_walkers]."""
    k, w = run.geometry.n_rungs, run.walkers
    chosen = np.linspace(0, k * w - 1, min(n_walkers, k * w)).astype(int)
    path_rv = np.empty((run.rounds, len(chosen)), dtype=np.int64)
    rung_kw, rung_v = np.repeat(np.arange(k), w).reshape(k, w), np.empty(k * w, dtype=np.int64)
    for round_ in range(run.rounds):
        rung_v[run.round(round_).walker_kw] = rung_kw
        path_rv[round_] = rung_v[chosen]
    return path_rv


def advice(d: Diagnosis) -> list[str]:
    """Return recommendations, one sentence each; empty if nothing stands out."""
    lines = []
    for k, share in enumerate(d.swapped_k):
        if share < FEW_SWAPS:
            low, high = d.beta_k[k : k + 2]
            remedy = (
                f"add a rung between beta = {low:.4g} and {high:.4g}, or set ladder.tune = true"
            )
            if np.isnan(low) or np.isnan(high):
                remedy = "let their ranges of z overlap more (wang_landau.overlap, or more windows)"
            lines.append(f"rungs {k} and {k + 1} accept {share:.0%} of their swaps: {remedy}")
    if len(d.swapped_k) > 1 and (d.swapped_k > MANY_SWAPS).all():
        lines.append(
            f"all neighbours accept over {MANY_SWAPS:.0%} of their swaps: about {d.rungs_needed} "
            f"rungs are needed (1 + 2 Lambda); the ladder has {len(d.beta_k)}"
        )
    for n, name in enumerate(d.part_names):
        tried = np.isfinite(d.accepted_kn[:, n])
        rare = np.flatnonzero(tried & (d.accepted_kn[:, n] < FEW_MOVES))
        if rare.size:
            lines.append(
                f"under {FEW_MOVES:.0%} of the moves of kind {name} are accepted on rungs "
                f"{', '.join(map(str, rare[:8]))}{' ...' if rare.size > 8 else ''}: try other "
                "moves there"
            )
    apart = np.flatnonzero(lanes_disagree(d.rhat_k, len(d.trips_v) // len(d.beta_k)))
    if apart.size:
        lines.append(
            f"lanes disagree on rungs {', '.join(map(str, apart[:8]))}"
            f"{' ...' if apart.size > 8 else ''} (R-hat up to "
            f"{shown(np.nanmax(d.rhat_k), '.2f', 'infinite')}): raise "
            "run.rounds and run.burn_in, or help walkers travel the ladder"
        )
    if _few_exchanges(d):
        pass  # the table reports it, next to their number
    elif len(d.swapped_k) and np.isfinite(d.barrier) and d.trips_v.sum() == 0:
        lines.append(
            "no walker has gone up and down the ladder: the coldest rungs may still depend on "
            "their start; raise run.rounds, or add a rung between the pair that swaps least"
        )
    elif d.trip_rate < 0.5 * d.ideal_rate:
        lines.append(
            "for smaller errors in the same time: round trips occur at "
            f"{d.trip_rate / d.ideal_rate:.0%} of the ideal rate, since moves between exchanges "
            "decorrelate too little; raise sampler.steps, or use a better kernel"
        )
    return lines


def table(d: Diagnosis) -> list[str]:
    """Return the diagnosis as lines of text; runs of draws have neither swaps nor moves."""
    draws = bool(d.drawn_k.all())
    moves = "  ".join(f"{name[:12]:>12}" for name in d.part_names)
    more = "" if draws else f"  swap up  moves: {moves}"
    lines = [f"rung        beta   mean z     sd z      ESS  R-hat{more}"]
    for k, beta in enumerate(d.beta_k):
        swap = f"{_share(d.swapped_k[k]) if k < len(d.swapped_k) else '':>8}"
        shares = "  ".join(f"{_share(a):>12}" for a in d.accepted_kn[k])
        star = "*" if d.drawn_k[k] and not draws else ""
        label = "flat" if np.isnan(beta) else f"{beta:.5g}{star}"
        lines.append(
            f"{k:4d}  {label:>10}  {d.z_mean_k[k]:7.4g}  {d.z_std_k[k]:7.3g}  "
            f"{shown(d.ess_k[k], '.0f', '-'):>7}  {shown(d.rhat_k[k], '.3f', '-'):>5}"
            f"{'' if draws else f' {swap}         {shares}'}"
        )
    if d.drawn_k.any() and not draws:
        lines.append(f"* fresh draws are counted among the moves of kind {d.part_names[0]}")
    if np.isfinite(d.barrier):
        lines.append(ladder_line(d))
        trips = f"{d.trips_v.sum()} by {np.count_nonzero(d.trips_v)} of {len(d.trips_v)} walkers"
        rate = f"{d.trip_rate:.4f} per lane and exchange, ideal {d.ideal_rate:.4f}"
        if _few_exchanges(d):
            rate = (
                f"{d.exchanges} exchanges are too few to judge round trips: at best a walker "
                f"makes one in about {d.trip_time:.0f}"
            )
        lines.append(f"round trips: {trips}; {rate}")
    return lines


def ladder_line(d: Diagnosis) -> str:
    """Return Lambda, the number of rungs needed, and the number of rungs."""
    return (
        f"Lambda = {d.barrier:.2f}: about {d.rungs_needed} rungs are needed "
        f"(1 + 2 Lambda); the ladder has {len(d.beta_k)}"
    )


def _few_exchanges(d: Diagnosis) -> bool:
    return bool(len(d.swapped_k)) and d.exchanges < MIN_TRIP_TIMES * d.trip_time


def _share(value: float) -> str:
    return "-" if np.isnan(value) else f"{value:.1%}"
