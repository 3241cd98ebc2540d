"""Check a density against facts that it cannot break and gaps that it cannot bridge.

A bin cannot hold fewer inputs than the different ones that were recorded in it, and neither one bin
nor all bins together can hold more than the space, ln of which is D ln V. An absolute density that
breaks one of these facts by more than its interval is wrong, whatever its errors say.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.special import logsumexp

from omniinput_hpc.estimators import BoolArray, FloatArray, IntArray
from omniinput_hpc.estimators.errors.convergence import Check
from omniinput_hpc.estimators.errors.jackknife import jackknife_error, t_quantile
from omniinput_hpc.estimators.run_data import RunData
from omniinput_hpc.histogram import bin_of

FALSE_ALARMS = 0.01
"""Probability that a correct density breaks a fact by chance, over all its bins."""
MAX_SAMPLES = 1_000_000
"""Recorded samples to search for different inputs."""
MAX_KEPT = 100_000
"""Largest number of different inputs to count in a bin."""
MIN_TRIP_TIMES = 3
"""Length in ideal round trips below which zero trips mean nothing: walkers have to get going."""
MIN_EXPECTED_TRIPS = 50
"""Ideal round trips below which zero trips mean nothing: real ladders may make a tenth of these."""
TOO_SHORT = "raise run.rounds and run.burn_in"
MIN_ATTEMPTS = 100
"""Attempted swaps below which zero acceptances mean nothing: 1 in 170 at a rate of 5 %."""


@dataclass(frozen=True)
class LogDensity:
    """A density to check.

    Attributes
    ----------
    edges : float64 [B + 1]
    log_g_b, error_b : float64 [B]
    upper_b : float64 [B], 95% upper bounds in bins with too few counts for errors, else NaN
    log_g_jb : float64 [G, B], jackknife replicates
    lanes_g : int64 [G]
    count_b : int64 [B]
    log_inputs : D ln V
    """

    edges: FloatArray
    log_g_b: FloatArray
    error_b: FloatArray
    upper_b: FloatArray
    log_g_jb: FloatArray
    lanes_g: IntArray
    count_b: IntArray
    log_inputs: float

    @property
    def highest_b(self) -> FloatArray:
        """Upper ends of the intervals of `half_width_b`, float64 [B]; inf in empty bins."""
        inhabited = np.isfinite(self.log_g_b)
        highest_b = np.full(len(self.log_g_b), np.inf)
        half_b = self.half_width_b(int(inhabited.sum()))
        highest_b[inhabited] = self.log_g_b[inhabited] + half_b[inhabited]
        return highest_b

    def half_width_b(self, n_tests: int) -> FloatArray:
        """Return half-widths [B] of 99% intervals that hold in `n_tests` bins together."""
        factor = t_quantile(len(self.lanes_g), 1.0 - FALSE_ALARMS / max(n_tests, 1))
        with np.errstate(invalid="ignore"):  # 0 times infinity
            half_b = np.nan_to_num(factor * self.error_b, nan=np.inf, posinf=np.inf)
            few_b = np.isfinite(self.upper_b)
            half_b[few_b] = np.maximum(half_b, self.upper_b - self.log_g_b)[few_b]
        return half_b


def broken_facts(density: LogDensity, runs: Sequence[RunData]) -> list[Check]:
    """Check an absolute density against known numbers of inputs."""
    inhabited = np.isfinite(density.log_g_b)
    half_b = density.half_width_b(int(inhabited.sum()))
    lowest_b = np.where(inhabited, np.where(inhabited, density.log_g_b, 0.0) - half_b, -np.inf)
    total = float(logsumexp(density.log_g_b))
    error = jackknife_error(total, logsumexp(density.log_g_jb, axis=1), density.lanes_g)
    least = total - t_quantile(len(density.lanes_g), 1.0 - FALSE_ALARMS) * error
    sentences = []
    if np.isfinite(error) and least > density.log_inputs + 1e-9:
        sentences.append(
            f"impossible: the bins hold exp({total:.6g}) inputs, but the whole space has only "
            f"exp({density.log_inputs:.6g})"
        )
    too_many_b = lowest_b > density.log_inputs + 1e-9
    if too_many_b.any():
        sentences.append(
            f"impossible: more inputs than the whole space has in {_bins(too_many_b, density)}"
        )
    name, most = "ln of all inputs", float(lowest_b.max(initial=-np.inf))
    if np.isfinite(error):
        most = max(most, float(least))
    checks = [Check(name, most, density.log_inputs, said, TOO_SHORT) for said in sentences]
    return [*(checks or [Check(name, most, density.log_inputs)]), _fewest_inputs(density, runs)]


def _fewest_inputs(density: LogDensity, runs: Sequence[RunData]) -> Check:
    """Check that each bin holds at least as many inputs as were recorded in it."""
    inhabited, highest_b = np.isfinite(density.log_g_b), density.highest_b
    # A bin has at least as many counts as different inputs, so few bins need a search.
    asked_b = inhabited & (highest_b < np.log(np.maximum(density.count_b, 1)))
    asked_b |= inhabited & (highest_b < 0.0)
    number, sentence = 0, ""
    if asked_b.any():
        different_b = _different_inputs(runs, density.edges, asked_b, highest_b)
        too_few_b = asked_b & (highest_b < np.log(np.maximum(different_b, 1)) - 1e-9)
        number = int(too_few_b.sum())
        if number:
            worst = int(np.argmax(np.where(too_few_b, -highest_b, -np.inf)))
            sentence = (
                "impossible: fewer inputs than were recorded in "
                f"{_bins(too_few_b, density)}: ln g = {density.log_g_b[worst]:.4g} at "
                f"z = {density.edges[worst]:g}, where {different_b[worst]:,} different inputs "
                "were seen"
            )
    return Check("bins of too few inputs", number, 0, sentence, TOO_SHORT if sentence else "")


def gaps(counts_kb: IntArray, edges: FloatArray) -> list[Check]:
    """Find gaps in z with no rung that has counts on both sides.

    counts_kb : int64 [K, B]. Known normalizers may still join the rungs on the two sides of such a
        gap, but the number of inputs inside it is unknown.
    """
    seen_kb = counts_kb > 0
    active_kb = seen_kb[seen_kb.any(axis=1)]
    first_k = active_kb.argmax(axis=1)
    last_k = counts_kb.shape[1] - 1 - active_kb[:, ::-1].argmax(axis=1)
    order = np.argsort(first_k, kind="stable")
    reached = np.maximum.accumulate(last_k[order])
    sentences = [
        f"no rung visited both sides of z = {edges[end + 1]:g} to {edges[begin]:g}, "
        "and no walker visited outputs between them: the number of inputs there is not known"
        for end, begin in zip(reached[:-1], first_k[order][1:], strict=True)
        if begin > end + 1
    ]
    name, n = "gaps between rungs", len(sentences)
    if not n:
        return [Check(name, 0, 0)]
    return [Check(name, n, 0, said, "add rungs in between") for said in sentences]


def swaps_that_never_happened(swaps_k2: IntArray, label_k: Sequence[str]) -> Check:
    """Check that all neighbouring rungs swapped.

    swaps_k2 : int64 [K - 1, 2], attempted and accepted
    """
    never = np.flatnonzero((swaps_k2[:, 0] >= MIN_ATTEMPTS) & (swaps_k2[:, 1] == 0))
    name = "pairs that never swapped"
    if not never.size:
        return Check(name, 0, 0)
    pairs = [f"{label_k[k]} and {label_k[k + 1]}" for k in never[:4]]
    more = f", and {len(never) - 4} more pairs" if len(never) > 4 else ""
    sentence = (
        f"no swap was ever accepted between {'; between '.join(pairs)}{more}, in "
        f"{swaps_k2[never, 0].min():,} attempts or more: neither can pass inputs to the other"
    )
    return Check(name, len(never), 0, sentence, "add rungs in between")


def length_in_trips(run: RunData, label_k: Sequence[str], ends_renew: bool) -> Check:
    """Check that the run was long enough for round trips of the ladder, and that some were made.

    An ideal ladder with rejections r makes 1 / (2 + 2 sum r / (1 - r)) round trips per exchange
    (Syed et al., J. R. Stat. Soc. B 84, 321 (2022)). One of its K walkers needs K times the inverse
    of that for a trip. In less time, no walker can have carried inputs from one end to the other.
    Half a trip is enough if walkers forget their past at both ends (`ends_renew`). Zero trips in a
    longer run mean something only if many were possible.
    """
    attempted_k, accepted_k = run.swaps_k2().T
    name, trips = "length in ideal round trips", run.round_trips_v()
    a_round = run.config.exchanges
    known = attempted_k.size and attempted_k.all() and accepted_k.all()
    if not known or a_round is None:
        return Check(name)
    ideal_rate = 0.5 / (1.0 + float((attempted_k / accepted_k - 1.0).sum()))
    exchanges = run.rounds * a_round
    trip_times = exchanges * ideal_rate / len(label_k)
    least, way = (0.5, "one passage") if ends_renew else (1.0, "one round trip")
    if trip_times < least:
        return Check(
            name, trip_times, least,
            f"the run is shorter than {way} of its ladder: {exchanges:,} exchanges, but a "
            f"walker needs about {least * len(label_k) / ideal_rate:,.0f} at best",
            f"raise run.rounds to {int(np.ceil(least * run.rounds / trip_times))} or more",
        )  # fmt: skip
    expected = run.walkers * exchanges * ideal_rate
    if trips.any() or trip_times < MIN_TRIP_TIMES or expected < MIN_EXPECTED_TRIPS:
        return Check(name, trip_times, least)
    return Check(
        name, trip_times, least,
        f"no walker went from {label_k[0]} to {label_k[-1]} and back in {exchanges:,} exchanges, "
        f"although {expected:.0f} round trips were possible: inputs from one end of the ladder did "
        "not reach the other", "raise sampler.steps, or add rungs where swaps are rare",
    )  # fmt: skip


def _different_inputs(
    runs: Sequence[RunData], edges: FloatArray, asked_b: BoolArray, highest_b: FloatArray
) -> IntArray:
    """Return lower limits of the number of different recorded inputs per bin, int64 [B].

    Counting in a bin stops above exp(highest_b), or at `MAX_KEPT`.
    """
    enough_b = np.minimum(np.exp(np.minimum(highest_b, 30.0)) + 1.0, MAX_KEPT)
    found: dict[int, set[bytes]] = {int(b): set() for b in np.flatnonzero(asked_b)}
    n_read = 0
    for run in runs:
        for x_ksd, z_ks in run.samples():
            bin_i = bin_of(z_ks.ravel().astype(np.float64), edges)
            inside = (bin_i >= 0) & (bin_i < len(asked_b))
            inside[inside] = asked_b[bin_i[inside]]
            x_id = np.ascontiguousarray(x_ksd.reshape(-1, x_ksd.shape[-1])[inside])
            for b, x in zip(bin_i[inside], x_id, strict=True):
                if len(found[int(b)]) < enough_b[b]:
                    found[int(b)].add(x.tobytes())
            n_read += z_ks.size
            if n_read > MAX_SAMPLES:
                break
    different_b = np.zeros(len(asked_b), dtype=np.int64)
    for b, inputs in found.items():
        different_b[b] = len(inputs)
    return different_b


def _bins(which_b: BoolArray, density: LogDensity) -> str:
    """Return a short text that names the first of some bins."""
    lower = density.edges[:-1][which_b]
    first = ", ".join(f"{z:g}" for z in lower[:4])
    more = ", ..." if len(lower) > 4 else ""
    return f"{len(lower)} bin(s) (from z = {first}{more})"
