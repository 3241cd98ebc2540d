"""An AUPR in words: its interval, what chance gives, and the inputs that it is about."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from omniinput_hpc.annotation.display import DescribedRun
from omniinput_hpc.annotation.drawing import draw_independently
from omniinput_hpc.errors import UserError
from omniinput_hpc.estimators.density.density import Density
from omniinput_hpc.estimators.density.result import LOG_WHOLE
from omniinput_hpc.estimators.precision_recall.curves import Curve
from omniinput_hpc.estimators.precision_recall.thresholds import ends_of
from omniinput_hpc.results.representatives import how_to_show
from omniinput_hpc.text import decimals, printable, range_words, tens, tens_interval

MOST_SAMPLES = 200_000
"""Recorded samples that the examples of a curve's ends are chosen from."""
LETTERS = 70
"""Length at which an example is cut."""
UNKNOWN = 1e-3
"""If a share's lower end is below this fraction of the upper end, only the latter is stated."""


def aupr_line(curve: Curve, density: Density, digits: int | None = None) -> str:
    """Return a line with the AUPR and its interval, by default with as few digits as tell it."""
    interval = f"95% interval {interval_words(curve, digits)}"
    if np.isneginf(curve.log_recall_t[-1]):
        return f"AUPR: not defined: 0 of {curve.n_scored:,} inputs were right; {interval}"
    if np.isnan(curve.aupr):
        return f"AUPR: not defined (right inputs in fewer than two bins); {interval}"
    origin = "set by --recall-range" if curve.range_given else "the curve's own ends"
    return (
        f"AUPR: {curve.aupr:.{digits or aupr_digits(curve)}f}, {interval}, over recall "
        f"{range_words(curve.aupr_range)}{recall_unit(density)} ({origin})"
    )


def recall_unit(*densities: Density) -> str:
    """Return what follows a recall: what it is a number of, or that it is relative."""
    if not all(density.absolute for density in densities):
        return ", relative"
    return densities[0].words.of or " inputs"


def aupr_digits(curve: Curve) -> int:
    """Return the decimals with which a curve's AUPR is printed."""
    return decimals(curve.aupr_low, curve.aupr_high)


def interval_words(curve: Curve, digits: int | None = None) -> str:
    """Return the 95% interval of a curve's AUPR as text, and whether it is one-sided."""
    digits = digits or aupr_digits(curve)
    low, high = (f"{end:.{digits}f}" for end in (curve.aupr_low, curve.aupr_high))
    return f"{low} to {high}" + one_sided_words(curve.aupr_one_sided, low, high)


def one_sided_words(one_sided: int, low: str, high: str) -> str:
    """Return a note for an interval if only one of its ends is a bound, else ""."""
    if one_sided == 0:
        return ""
    return f" (one-sided: at least {low})" if one_sided < 0 else f" (one-sided: at most {high})"


def scale_lines(density: Density, curve: Curve) -> list[str]:
    """Return what chance gives if there is an AUPR, and the numbers of right and wrong inputs.

    A random order of the counted inputs has the same precision at every recall: their share of
    right ones, which is then its AUPR. `density` is in the curve's bins.
    """
    if np.isnan(curve.aupr):
        return [last_threshold(density, curve)]
    line = (
        f"chance: AUPR {share_words(curve)} for a random order of these inputs, 1 for a perfect one"
    )
    if density.absolute:
        log_all = density.log_measure
        log_right, log_wrong = curve.log_recall_t[-1], curve.trace.log_wrong_t[-1]
        some = "" if np.logaddexp(log_right, log_wrong) > log_all + LOG_WHOLE else "at least "
        if np.isfinite(log_right - log_all):
            of_all = f"{some}{_share(log_right - log_all)} of {density.words.whole}"
            line += f"; the right ones are {of_all}"
    return [line, last_threshold(density, curve)]


def share_words(curve: Curve) -> str:
    """Return the AUPR of a random order: the share of right inputs among all counted."""
    trace, bands = curve.trace, curve.bands
    log_right, log_wrong = trace.log_recall_t[-1], trace.log_wrong_t[-1]
    said = _share(log_right - np.logaddexp(log_right, log_wrong))
    with np.errstate(divide="ignore"):
        low, high = (_share(np.log(end.precision_t[-1])) for end in (bands.low, bands.high))
    if low == said == high or not trace.precision_t[-1] > 0:  # less than the smallest number
        return said
    if bands.low.precision_t[-1] < UNKNOWN * bands.high.precision_t[-1]:
        return f"at most {high}"
    return f"{said} ({low} to {high})"


def _share(log_share: float) -> str:
    """Return a share with two digits, as a power of ten if it is small."""
    few = -np.inf < log_share <= np.log(1e-3)
    return tens(log_share) if few else f"{np.exp(log_share):.2g}"


def last_threshold(density: Density, curve: Curve) -> str:
    """Return how many right and wrong inputs the curve counts in total, in words."""
    low, high, words = curve.bands.low, curve.bands.high, density.words
    found = []
    for what, values, least, most in (
        ("right", curve.trace.log_recall_t, low.log_recall_t, high.log_recall_t),
        ("wrong", curve.trace.log_wrong_t, low.log_wrong_t, high.log_wrong_t),
    ):
        value, ends = values[-1], (least[-1], most[-1])
        if np.isneginf(value):
            at_most = f" (at most {tens(ends[1])}{words.of})" if np.isfinite(ends[1]) else ""
            found.append(f"no {what} input{at_most}")
        else:
            number, spread = tens(value, ends), tens_interval(*ends)
            found.append(f"{number}{words.within} {what} inputs ({spread})")
    (first, last), share = ends_of(curve, density.edges), 1.0 - curve.precision_t[-1]
    counted = f"from z = {first:g} {'to' if curve.side == 'low' else 'down to'} {last:g}"
    if not density.absolute:
        return f"Of the inputs {counted}, {share:.2%} are wrong."
    return (
        f"If all inputs {counted} are accepted, {found[0]} and {found[1]} are among them: "
        f"{share:.2%} are wrong."
    )


def example_lines(runs: Sequence[DescribedRun], density: Density, curve: Curve) -> list[str]:
    """Return a text of each end of a curve's range of z; none if inputs are not texts.

    The ends are tenths of the range, in the first run.
    """
    how = how_to_show(runs[0].config, render=False)
    if how.tokens is None:
        return []
    first, last = ends_of(curve, density.edges)
    tenth = 0.1 * (last - first)
    edges = np.sort([first, first + tenth, last - tenth, last])
    try:
        drawn = draw_independently(runs[0].data, density, edges, 8, most=MOST_SAMPLES, number=0)
    except UserError:  # no sample was looked at
        return []
    sign = 1.0 if curve.side == "low" else -1.0
    near, *_, far = sorted(drawn, key=lambda one: sign * one.z) * (2 if len(drawn) == 1 else 1)
    said = [
        f'texts like "{_cut(how.show(one.values[None])[0])}" (z = {one.z:.4g})'
        for one in (near, far)
    ]
    return [f"accepted first are {said[0]}, last are {said[1]}"]


def _cut(text: str) -> str:
    """Return the beginning of a text, on one line."""
    line = printable(" ".join(text.split()))
    return line if len(line) <= LETTERS else line[:LETTERS].rstrip() + " ..."
