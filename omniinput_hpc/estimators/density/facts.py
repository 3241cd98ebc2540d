"""Check a density against facts that it cannot break and gaps that it cannot bridge.

A bin cannot hold fewer inputs than the different ones that were recorded in it, and neither one bin
nor all bins together can hold more than the space, ln of which is D ln V. An absolute density that
breaks one of these facts by more than its interval is wrong, whatever its errors say.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import scipy
from numpy.typing import NDArray

from omniinput_hpc.estimators import BoolArray, FloatArray, IntArray
from omniinput_hpc.estimators.density.known_ratio import rounding
from omniinput_hpc.estimators.density.result import Density
from omniinput_hpc.estimators.errors.convergence import Check
from omniinput_hpc.estimators.errors.jackknife import jackknife_error, t_quantile
from omniinput_hpc.estimators.run_data import RunData
from omniinput_hpc.text import LN10, WORDS_OF, tens

FALSE_ALARMS = 0.01
"""Probability that a correct density breaks a fact by chance, over all its bins."""
MAX_KEPT = 100_000
"""Largest number of different inputs to count in a bin."""
MIN_TRIP_TIMES = 3
"""Length in ideal round trips below which zero trips mean nothing: walkers have to get going."""
MIN_EXPECTED_TRIPS = 50
"""Ideal round trips below which zero trips mean nothing: real ladders may make a tenth of these."""
TOO_SHORT = "raise run.rounds and run.burn_in"
MIN_ATTEMPTS = 100
"""Attempted swaps below which zero acceptances mean nothing: 1 in 170 at a rate of 5 %."""


def half_widths(density: Density, n_tests: int) -> FloatArray:
    """Return half-widths [B] of 99% intervals that hold in `n_tests` bins together.

    In bins with too few counts for errors they reach at least to the upper bounds.
    """
    factor = t_quantile(len(density.lanes_g), 1.0 - FALSE_ALARMS / max(n_tests, 1))
    with np.errstate(invalid="ignore"):  # 0 times infinity
        half_b = np.nan_to_num(factor * density.log_g_error_b, nan=np.inf, posinf=np.inf)
        few_b = np.isfinite(density.log_g_upper_b)
        half_b[few_b] = np.maximum(half_b, density.log_g_upper_b - density.log_g_b)[few_b]
    return half_b


def highest(density: Density) -> FloatArray:
    """Return the upper ends of the intervals of `half_widths`, float64 [B]; inf in empty bins."""
    inhabited = np.isfinite(density.log_g_b)
    highest_b = np.full(len(density.log_g_b), np.inf)
    half_b = half_widths(density, int(inhabited.sum()))
    highest_b[inhabited] = density.log_g_b[inhabited] + half_b[inhabited]
    return highest_b


def bins_to_search(density: Density) -> BoolArray:
    """Return the bins whose recorded inputs may be more than the bin can hold, bool [B].

    A bin has at least as many counts as different inputs, so few bins need a search. Under a law a
    bin's probability says nothing of its number of inputs, and none does.
    """
    if density.measure != "count":
        return np.zeros(len(density.log_g_b), dtype=np.bool_)
    highest_b = highest(density)
    fewer_b = highest_b < np.log(np.maximum(density.count_b, 1))
    return np.asarray(np.isfinite(density.log_g_b) & fewer_b)


def broken_facts(
    density: Density, seen: Sequence[Mapping[int, tuple[NDArray[Any], IntArray]]]
) -> list[Check]:
    """Check an absolute density against known numbers of inputs.

    seen : `inputs_of_bins` of each run, for `bins_to_search`
    """
    inhabited = np.isfinite(density.log_g_b)
    half_b = half_widths(density, int(inhabited.sum()))
    lowest_b = np.where(inhabited, np.where(inhabited, density.log_g_b, 0.0) - half_b, -np.inf)
    total = float(scipy.special.logsumexp(density.log_g_b))
    error = jackknife_error(
        total, scipy.special.logsumexp(density.log_g_jb, axis=1), density.lanes_g
    )
    least = total - t_quantile(len(density.lanes_g), 1.0 - FALSE_ALARMS) * error
    sentences = []
    counts = density.measure == "count"
    beta_k = density.beta_k[np.isfinite(density.beta_k)]
    most_allowed = density.log_measure + rounding(np.abs(beta_k).max(initial=0.0), density.z_b)
    if np.isfinite(error) and least > most_allowed:
        both = density.log_measure, total
        sentences.append(
            f"impossible: the bins hold {tens(total, both)} inputs, but the whole space has only "
            f"{tens(density.log_measure, both)}"
            if counts
            else f"impossible: the probabilities of the bins sum to 10^{total / LN10:.6g}, above 1"
        )
    too_many_b = lowest_b > most_allowed
    if too_many_b.any():
        more = "more inputs than the whole space has" if counts else "a probability above 1"
        sentences.append(f"impossible: {more} in {_bins(too_many_b, density)}")
    most = float(lowest_b.max(initial=-np.inf))
    if np.isfinite(error):
        most = max(most, float(least))
    name = "ln of all inputs" if counts else "ln of all probability"
    check = Check(name, most, density.log_measure)
    checks = [check.failed(said, TOO_SHORT) for said in sentences] or [check]
    return [*checks, _fewest_inputs(density, seen)] if counts else checks


def _fewest_inputs(
    density: Density, seen: Sequence[Mapping[int, tuple[NDArray[Any], IntArray]]]
) -> Check:
    """Check that each bin holds at least as many inputs as were recorded in it."""
    highest_b, different_b = highest(density), np.zeros(len(density.log_g_b), dtype=np.int64)
    enough_b = np.ceil(np.minimum(np.exp(np.minimum(highest_b, 30.0)) + 1.0, MAX_KEPT))
    for b in {b for inputs in seen for b in inputs}:
        x_id = np.concatenate([inputs[b][0] for inputs in seen if b in inputs])
        different_b[b] = min(len(np.unique(x_id, axis=0)), enough_b[b])
    too_few_b = highest_b < np.log(np.maximum(different_b, 1)) - 1e-9
    too_few_b &= bins_to_search(density)
    check = Check("bins of too few inputs", int(too_few_b.sum()), 0)
    if not too_few_b.any():
        return check
    worst = int(np.argmax(np.where(too_few_b, -highest_b, -np.inf)))
    return check.failed(
        f"impossible: fewer inputs than were recorded in {_bins(too_few_b, density)}: the "
        f"density has {tens(density.log_g_b[worst])} at z = {density.edges[worst]:g}, where "
        f"at least {different_b[worst]:,} different inputs were seen",
        TOO_SHORT,
    )


def gaps(counts_kb: IntArray, edges: FloatArray, measure: str = "count") -> list[Check]:
    """Find gaps in z with no rung that has counts on both sides.

    counts_kb : int64 [K, B]. Known normalizers may still join the rungs on the two sides of such a
        gap, but the number of inputs inside it is unknown.
    measure : of the density, for the sentence
    """
    seen_kb = counts_kb > 0
    active_kb = seen_kb[seen_kb.any(axis=1)]
    first_k = active_kb.argmax(axis=1)
    last_k = counts_kb.shape[1] - 1 - active_kb[:, ::-1].argmax(axis=1)
    order = np.argsort(first_k, kind="stable")
    reached = np.maximum.accumulate(last_k[order])
    sentences = [
        f"no rung visited both sides of z = {edges[end + 1]:g} to {edges[begin]:g}, "
        f"and no walker visited outputs between them: the {WORDS_OF[measure].amount} there is "
        "not known"
        for end, begin in zip(reached[:-1], first_k[order][1:], strict=True)
        if begin > end + 1
    ]
    check = Check("gaps between rungs", len(sentences), 0)
    return [check.failed(said, "add rungs in between") for said in sentences] or [check]


def swaps_that_never_happened(run: RunData) -> Check:
    """Check that all neighbouring rungs swapped."""
    swaps_k2, label_k = run.swaps_k2, run.weights.label_k
    never = np.flatnonzero((swaps_k2[:, 0] >= MIN_ATTEMPTS) & (swaps_k2[:, 1] == 0))
    check = Check("pairs that never swapped", len(never), 0)
    if not never.size:
        return check
    pairs = [f"{label_k[k]} and {label_k[k + 1]}" for k in never[:4]]
    more = f", and {len(never) - 4} more pairs" if len(never) > 4 else ""
    return check.failed(
        f"no swap was ever accepted between {'; between '.join(pairs)}{more}, in "
        f"{swaps_k2[never, 0].min():,} attempts or more: neither can pass inputs to the other",
        "add rungs in between",
    )


def length_in_trips(run: RunData, ends_renew: bool) -> Check:
    """Check that the run was long enough for round trips of the ladder, and that some were made.

    An ideal ladder with rejections r makes 1 / (2 + 2 sum r / (1 - r)) round trips per exchange
    (Syed et al., J. R. Stat. Soc. B 84, 321 (2022)). One of its K walkers needs K times the inverse
    of that for a trip. In less time, no walker can have carried inputs from one end to the other.
    Half a trip is enough if walkers forget their past at both ends (`ends_renew`). Zero trips in a
    longer run mean something only if many were possible.
    """
    attempted_k, accepted_k = run.swaps_k2.T
    name, a_round, label_k = (
        "length in ideal round trips",
        run.config.exchanges,
        run.weights.label_k,
    )
    known = attempted_k.size and attempted_k.all() and accepted_k.all()
    if not known or a_round is None:
        return Check(name)
    ideal_rate = 0.5 / (1.0 + float((attempted_k / accepted_k - 1.0).sum()))
    exchanges = run.rounds * a_round
    trip_times = exchanges * ideal_rate / len(label_k)
    least, way = (0.5, "one passage") if ends_renew else (1.0, "one round trip")
    check = Check(name, trip_times, least, at_least=True)
    if trip_times < least:
        return check.failed(
            f"the run is shorter than {way} of its ladder: {exchanges:,} exchanges, but a "
            f"walker needs about {least * len(label_k) / ideal_rate:,.0f} at best",
            f"raise run.rounds to {int(np.ceil(least * run.rounds / trip_times))} or more",
        )
    expected = run.walkers * exchanges * ideal_rate
    too_short = trip_times < MIN_TRIP_TIMES or expected < MIN_EXPECTED_TRIPS
    if run.round_trips_v.any() or too_short or run.is_part:
        return check
    return check.failed(
        f"no walker went from {label_k[0]} to {label_k[-1]} and back in {exchanges:,} exchanges, "
        f"although {expected:.0f} round trips were possible: inputs from one end of the ladder did "
        "not reach the other",
        "raise sampler.steps, or add rungs where swaps are rare",
    )


def _bins(which_b: BoolArray, density: Density) -> str:
    """Return a short text that names the first of some bins."""
    lower = density.edges[:-1][which_b]
    first = ", ".join(f"{z:g}" for z in lower[:4])
    more = ", ..." if len(lower) > 4 else ""
    return f"{len(lower)} bin(s) (from z = {first}{more})"
