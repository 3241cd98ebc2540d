"""Diagnose how well a run mixes, from moves, swaps, round trips and ESS; give advice.

Effective sample sizes come from arviz-stats. Needs neither MPI nor torch.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from omniinput_hpc.config import Config, input_file
from omniinput_hpc.estimators import BoolArray, FloatArray, IntArray
from omniinput_hpc.estimators.density.facts import MIN_TRIP_TIMES
from omniinput_hpc.estimators.errors.chains import chain_diagnostics, lanes_disagree
from omniinput_hpc.estimators.run_data import require_rounds
from omniinput_hpc.runfile.reader import RunReader
from omniinput_hpc.text import shown

FEW_SWAPS, MANY_SWAPS = 0.2, 0.9
FEW_MOVES = 0.01
MAX_DIAGNOSED_SAMPLES = 20_000
"""Most samples of a rung that its diagnostics use; longer series are thinned."""


@dataclass(frozen=True)
class Diagnosis:
    """Mixing diagnostics of a run's committed rounds.

    Attributes
    ----------
    beta_k : float64 [K], NaN for flat-histogram rungs
    z_mean_k, z_std_k : float64 [K], of the recorded samples
    ess_k, rhat_k : float64 [K], of z over lanes; NaN if there are too few samples
    accepted_kn : float64 [K, n], share of accepted moves by kind of move; NaN if none was tried
    part_names : names of the kinds of move
    swapped_k : float64 [K - 1], share of accepted swaps; NaN if none was tried
    barrier : float, Lambda, the sum of the rejection rates; NaN without swaps
    trips_v : int64 [W K], completed round trips per walker
    drawn_k : bool [K], rungs with fresh draws, which count as moves of the first kind
    trip_rate, ideal_rate : float, round trips per lane and exchange, and 1 / (2 + 2 Lambda)
    exchanges : int, number of counted exchanges
    """

    beta_k: FloatArray
    z_mean_k: FloatArray
    z_std_k: FloatArray
    ess_k: FloatArray
    rhat_k: FloatArray
    accepted_kn: FloatArray
    part_names: tuple[str, ...]
    swapped_k: FloatArray
    barrier: float
    trips_v: IntArray
    trip_rate: float
    ideal_rate: float
    drawn_k: BoolArray
    exchanges: int

    @property
    def rungs_needed(self) -> int:
        """Approximate number of rungs that the ladder needs, 1 + 2 Lambda; requires swaps."""
        return max(2, round(1 + 2 * self.barrier))

    @property
    def ladder_line(self) -> str:
        """Lambda, the number of rungs needed, and the number of rungs."""
        return (
            f"Lambda = {self.barrier:.2f}: about {self.rungs_needed} rungs are needed "
            f"(1 + 2 Lambda); the ladder has {len(self.beta_k)}"
        )

    @property
    def trip_time(self) -> float:
        """Exchanges per round trip of one of a lane's K walkers, at best with these swap rates.

        That is K (2 + 2 sum r / (1 - r)) for rejections r, as in the verdict; `ideal_rate` is the
        limit of very many rungs.
        """
        if not (self.swapped_k > 0).all():  # NaN: no swap was tried
            return len(self.beta_k) / self.ideal_rate
        return len(self.beta_k) * (2.0 + 2.0 * float((1.0 / self.swapped_k - 1.0).sum()))


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
    config = input_file.parse(run.config_toml, f"{run.path} (stored input)")
    attempted_kn, accepted_kn = run.acceptance_kn()
    swaps_k2 = run.swaps_k2()
    with np.errstate(invalid="ignore"):
        moved_kn = accepted_kn / attempted_kn
        swapped_k = swaps_k2[:, 1] / swaps_k2[:, 0]
    barrier = float(np.sum(1.0 - swapped_k)) if len(swapped_k) else np.nan
    trips_v = run.round_trips_v()
    exchanges = run.rounds * config.sampler.exchanges
    if rhat_k is None:
        rhat_k, *_ = chain_diagnostics(run.data)
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
    anchored = config.ladder is not None and config.ladder.with_anchors
    canonical = run.kappa_k() == 0.0
    ends = (run.beta_k == 0.0) | (run.beta_k == run.model_beta)
    return np.asarray(anchored & canonical & ends)


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
            ess_k[k] = array_stats.ess(thinned, chain_axis=0, draw_axis=1)
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
            f"round trips occur at {d.trip_rate / d.ideal_rate:.0%} of the ideal rate: moves "
            "between exchanges decorrelate too little; raise sampler.steps, or use a better kernel"
        )
    return lines


def table(d: Diagnosis) -> list[str]:
    """Return the diagnosis as lines of text."""
    moves = "  ".join(f"{name[:12]:>12}" for name in d.part_names)
    lines = [f"rung        beta   mean z     sd z      ESS  R-hat  swap up  moves: {moves}"]
    for k, beta in enumerate(d.beta_k):
        swap = f"{_share(d.swapped_k[k]) if k < len(d.swapped_k) else '':>8}"
        shares = "  ".join(f"{_share(a):>12}" for a in d.accepted_kn[k])
        label = "flat" if np.isnan(beta) else f"{beta:.5g}{'*' if d.drawn_k[k] else ''}"
        lines.append(
            f"{k:4d}  {label:>10}  {d.z_mean_k[k]:7.4g}  {d.z_std_k[k]:7.3g}  "
            f"{shown(d.ess_k[k], '.0f', '-'):>7}  {shown(d.rhat_k[k], '.3f', '-'):>5} {swap}"
            f"         {shares}"
        )
    if d.drawn_k.any():
        lines.append(f"* fresh draws are counted among the moves of kind {d.part_names[0]}")
    if np.isfinite(d.barrier):
        lines.append(d.ladder_line)
        trips = f"{d.trips_v.sum()} by {np.count_nonzero(d.trips_v)} of {len(d.trips_v)} walkers"
        rate = f"{d.trip_rate:.4f} per lane and exchange, ideal {d.ideal_rate:.4f}"
        if _few_exchanges(d):
            rate = (
                f"{d.exchanges} exchanges are too few to judge round trips: at best a walker "
                f"makes one in about {d.trip_time:.0f}"
            )
        lines.append(f"round trips: {trips}; {rate}")
    return lines


def _few_exchanges(d: Diagnosis) -> bool:
    return bool(len(d.swapped_k)) and d.exchanges < MIN_TRIP_TIMES * d.trip_time


def columns(d: Diagnosis) -> dict[str, FloatArray]:
    """Return the columns of the CSV file, a row per rung; the last rung has no swap_up."""
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


def _share(value: float) -> str:
    return "-" if np.isnan(value) else f"{value:.1%}"
