"""Apply another model's outputs to a run's independent draws: changes of output, and its density.

An ancestral run's draws x have known probabilities q_k(x), whatever output is then assigned to x.
Let v(x) = 1 / sum_k n_k q_k(x). The sum of v over the draws whose output z' by another model lies
in a bin is an unbiased estimate of how many inputs that model puts there. This gives its density
without a run of its own. Both densities use the same draws and lanes, so most of the errors cancel
in their difference; the jackknife leaves the same group out of both. The more the two models
differ, the larger the errors of the other model's density.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any

import numpy as np
from numpy.typing import NDArray

from omniinput_hpc.estimators import EstimateError, FloatArray, IntArray
from omniinput_hpc.estimators.comparison.difference import spread
from omniinput_hpc.estimators.density.density import Density
from omniinput_hpc.estimators.density.other_bins import count_samples
from omniinput_hpc.estimators.density.wide_bins import in_bins
from omniinput_hpc.estimators.errors.jackknife import Interval, jackknife_error, t_quantile
from omniinput_hpc.estimators.observables import observe
from omniinput_hpc.estimators.populations import is_annealed
from omniinput_hpc.estimators.precision_recall.curves import (
    Curve,
    Range,
    Side,
    area,
    asked_range,
    common_range,
    curve_range,
)
from omniinput_hpc.estimators.precision_recall.from_rule import (
    Rule,
    areas_without_each,
    rule_curve,
    sum_scores,
)
from omniinput_hpc.estimators.precision_recall.rule_worth import ScoreSums
from omniinput_hpc.estimators.run_data import RunData, Settings, Source


@dataclass(frozen=True)
class _OtherOutputs:
    """The samples of a run's first R rounds, with other outputs, float32 [R, K, S]."""

    source: Source
    z_rks: NDArray[np.float32]

    def samples(
        self, rounds: Iterable[int] | None = None
    ) -> Iterator[tuple[NDArray[Any], NDArray[np.float32]]]:
        some = [int(r) for r in (range(len(self.z_rks)) if rounds is None else rounds)]
        for (x_ksd, _), z_ks in zip(self.source.samples(some), self.z_rks[some], strict=True):
            yield x_ksd, z_ks

    def samples_z(
        self, rounds: slice = slice(None), rungs: slice = slice(None)
    ) -> NDArray[np.float32]:
        return self.z_rks[rounds, rungs]

    def samples_walker(self, round_: int) -> NDArray[np.int32]:
        return self.source.samples_walker(round_)

    def samples_log_q(self) -> Iterator[FloatArray] | None:
        log_q = self.source.samples_log_q()
        return None if log_q is None else islice(log_q, len(self.z_rks))


def with_outputs(
    run: RunData, z_rks: NDArray[np.float32], config: Settings, fingerprint: str
) -> RunData:
    """Return the first rounds of an ancestral run with other outputs of its draws.

    Parameters
    ----------
    z_rks : float32 [R, K, S], the outputs of its recorded draws in the first R rounds
    config, fingerprint : of the model that gave these outputs; the run's ladder and bins are kept

    Raises
    ------
    EstimateError
        The run holds chains or populations, or not every draw was recorded.
    """
    if not run.ancestral or is_annealed(run):
        held = "populations" if is_annealed(run) else "chains"
        raise EstimateError(
            f"{run.path} holds {held}, whose samples have no known probabilities: only the "
            'draws of an ancestral run (sampler.method = "ancestral") can be given another '
            "model's outputs; to compare two runs, use omniinput compare or normalize"
        )
    if (run.moves_k != run.rounds * run.samples_per_round).any():
        raise EstimateError(f"{run.path}: not every draw was recorded as a sample")
    drawn = replace(
        run,
        config=config,
        fingerprint=fingerprint,
        rounds=len(z_rks),
        source=_OtherOutputs(run.source, z_rks),
    )
    return count_samples(drawn, run.edges)


@dataclass(frozen=True)
class Changes:
    """z' - z of a run's draws, where z' is another model's output.

    Attributes
    ----------
    edges : float64 [B + 1], of z
    draws_b : int64 [B]
    effective_b : float64 [B], effective number of draws
    mean_b, error_b : float64 [B], mean over all inputs of a bin and its standard error; NaN in
        bins without draws
    sd_b : float64 [B], standard deviation over all inputs of a bin
    z_k, mean_k, error_k, sd_k : float64 [K], mean z, and the same over each rung's distribution
    """

    edges: FloatArray
    draws_b: IntArray
    effective_b: FloatArray
    mean_b: FloatArray
    error_b: FloatArray
    sd_b: FloatArray
    z_k: FloatArray
    mean_k: FloatArray
    error_k: FloatArray
    sd_k: FloatArray


def changes(
    density: Density, run: RunData, other_rks: NDArray[np.float32], edges: FloatArray
) -> Changes:
    """Return how another model's outputs of an ancestral run's draws differ from its own.

    Means over a bin's inputs weight each draw by v = 1 / sum_k n_k q_k(x); their errors come from
    the jackknife over lane groups. Means over a rung's distribution weight its draws equally.

    Parameters
    ----------
    other_rks : float32 [R, K, S], z' of all its draws
    edges : float64 [B + 1], of bins of z, which are unions of the run's
    """
    d_rks = other_rks.astype(np.float64) - run.z()
    seen = observe(
        run,
        in_bins(density, edges),
        lambda part: d_rks[part.round_, part.rung, part.index_i],
        d_rks.size,
    )
    found, sd_b, _ = spread(seen)
    v_b, v2_b = (seen.sums(value_i).sum(axis=0) for value_i in (seen.w_i, seen.w_i**2))
    d_kn = np.swapaxes(d_rks, 0, 1).reshape(d_rks.shape[1], -1)
    sd_k = d_kn.std(axis=1, ddof=1) if d_kn.shape[1] > 1 else np.full(len(d_kn), np.nan)
    return Changes(
        edges=edges,
        draws_b=found.count_b,
        effective_b=np.divide(v_b**2, v2_b, out=np.zeros(len(v_b)), where=v2_b > 0),
        mean_b=found.mean_b,
        error_b=found.error_b,
        sd_b=sd_b,
        z_k=run.z().astype(np.float64).mean(axis=(0, 2)),
        mean_k=d_kn.mean(axis=1),
        error_k=sd_k / np.sqrt(d_kn.shape[1]),
        sd_k=sd_k,
    )


def log_g_change(own: Density, other: Density) -> tuple[FloatArray, FloatArray]:
    """Return log g' - log g of each bin and its standard error, float64 [B]; NaN if one is 0.

    Both densities are of the same draws: the jackknife leaves the same lanes out of both.
    """
    both_b = (own.count_b > 0) & (other.count_b > 0)
    with np.errstate(invalid="ignore"):
        change_b = np.where(both_b, other.log_g_b - own.log_g_b, np.nan)
        change_jb = other.log_g_jb - own.log_g_jb
    return change_b, jackknife_error(change_b, change_jb, own.lanes_g)


@dataclass(frozen=True)
class AuprChange:
    """Two models' AUPRs over the log recall that both reach, by one rule and from the same draws.

    Attributes
    ----------
    lower, upper : float, range of ln recall
    change : Interval, other minus own
    """

    lower: float
    upper: float
    own: float
    other: float
    change: Interval


def aupr_change(
    runs: tuple[RunData, RunData],
    densities: tuple[Density, Density],
    rule: Rule,
    side: Side,
    asked: Range | None = None,
) -> AuprChange:
    """Return how the AUPR by a rule changes; runs and densities are of the same draws.

    `asked` is the range of log recall; the default is the range that both curves reach in bins with
    enough inputs. All bins with counts are used: otherwise the curves would begin at different
    bins, depending on which model has enough inputs there, and would differ for that reason only.

    Raises
    ------
    EstimateError
        The two curves share no range of log recall, or do not cover all of `asked`.
    """
    found: list[tuple[Density, ScoreSums, Curve]] = []
    ranges: list[Range] = []
    for run, density in zip(runs, densities, strict=True):
        sums = sum_scores(run, density, rule)
        well_known = rule_curve(density, sums, side)
        ranges.append(curve_range(well_known.precision_t, well_known.log_recall_t))
        curve = rule_curve(density, sums, side, whole=True)
        if asked is not None:
            ranges[-1] = asked_range(curve.precision_t, curve.log_recall_t, asked)
        found.append((density, sums, curve))
    ends = common_range(*ranges)
    if not ends[1] > ends[0]:
        raise EstimateError(
            "the two curves share no range of ln recall: the change of the AUPR is not defined"
        )
    own, other = (area(c.precision_t, c.log_recall_t, *ends) for _, _, c in found)
    own_j, other_j = (areas_without_each(*parts, ends) for parts in found)
    lanes_g = densities[0].lanes_g
    error = jackknife_error(other - own, other_j - own_j, lanes_g)
    half = t_quantile(len(lanes_g)) * error
    value = np.asarray(other - own)
    return AuprChange(*ends, own, other, Interval(value, value - half, value + half, error))
