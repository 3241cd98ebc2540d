"""Which share of a run's token sequences is canonical: made of its own text by the tokenizer.

A text has many token sequences and one canonical one, so this share times the density counts texts.
It is the mean of a rule with values 0 and 1, estimated as precision by any rule is.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from omniinput_hpc.errors import UserError
from omniinput_hpc.estimators import EstimateError
from omniinput_hpc.estimators.density.density import Density
from omniinput_hpc.estimators.density.wide_bins import in_width
from omniinput_hpc.estimators.precision_recall.curves import FEWEST_INPUTS, Curve, Side
from omniinput_hpc.estimators.precision_recall.from_rule import rule_curve, sum_scores_of_runs
from omniinput_hpc.estimators.run_data import RunData
from omniinput_hpc.models.display import Display
from omniinput_hpc.results.record import Record
from omniinput_hpc.text import interval, tens, tens_interval

MAX_SAMPLES, MAX_BINS = 20_000, 20
"""Recorded samples of a run that are tried, evenly spaced, and bins: a second or two in all."""


@dataclass(frozen=True)
class CanonicalShare:
    """The canonical share of all inputs and of each bin of z.

    Attributes
    ----------
    density : in these bins, which are wider than the run's
    curve : of the rule that an input is canonical: r of each bin, precision over all bins
    """

    density: Density
    curve: Curve

    def line(self) -> str:
        """Return the share near the confident end and of all inputs, and the canonical number."""
        curve, edges, words = self.curve, self.density.edges, self.density.words
        firm = [b for b in curve.bin_t if not curve.thin_b[b]]
        b = firm[0] if firm else curve.bin_t[0]
        low, high = curve.bands.low, curve.bands.high
        here = _percent(curve.r_b[b], curve.r_low_b[b], curve.r_high_b[b])
        line = (
            f"canonical (the tokenizer makes the sequence of its own text): {here} at z = "
            f"{edges[b]:.6g} to {edges[b + 1]:.6g}, {self.of_all()} of {self.density.whole}"
        )
        if not self.density.absolute or not np.isfinite(curve.log_recall_t[-1]):
            return line
        ends, what = (low.log_recall_t[-1], high.log_recall_t[-1]), words.number
        number = tens(curve.log_recall_t[-1], ends)
        return f"{line}; their {what} is {number} ({tens_interval(*ends)})"

    def of_all(self) -> str:
        """Return the share of all inputs that the density holds, with its 95 % interval."""
        curve, bands = self.curve, self.curve.bands
        ends = bands.low.precision_t[-1], bands.high.precision_t[-1]
        return _percent(curve.precision_t[-1], *ends)

    def record(self, into: Record, of: str) -> None:
        """Add the shares, with errors and 95 % intervals, to the record of a density."""
        curve, edges = self.curve, self.density.edges
        low, high = curve.bands.low, curve.bands.high
        name = f"{of}: canonical share"
        ends = (low.precision_t[-1], high.precision_t[-1])
        into.add_value(name, curve.precision_t[-1], np.nan, *ends)
        for b in sorted(set(curve.bin_t) - set(np.flatnonzero(curve.interpolated_b))):
            numbers = (curve.r_b[b], curve.r_error_b[b], curve.r_low_b[b], curve.r_high_b[b])
            into.add_value(f"{name} at z = {edges[b]:.6g} to {edges[b + 1]:.6g}", *numbers)


def _percent(value: float, low: float, high: float) -> str:
    return f"{100 * value:.3g} % ({interval(100 * low, 100 * high, '.3g')} %)"


def share_lines(share: CanonicalShare | str | None) -> list[str]:
    """Return what is printed of a share, or of the reason why it is unknown."""
    if share is None:
        return []
    return [share if isinstance(share, str) else share.line()]


def canonical_share(
    runs: Sequence[RunData], density: Density, side: Side, how: Display
) -> CanonicalShare | str | None:
    """Return the canonical share of the inputs of runs and their joint density.

    None if their model has no tokenizer that is here and can encode, or no bin is believed; a
    sentence if the samples cannot be used.
    """
    is_canonical = how.canonical
    if is_canonical is None or not density.believed_b.any():
        return None
    wide = _wide(density)
    try:
        sums = sum_scores_of_runs(
            runs, wide, lambda x: is_canonical(x).astype(np.float64), FEWEST_INPUTS, MAX_SAMPLES
        )
        return CanonicalShare(wide, rule_curve(wide, sums, side, whole=True))
    except (EstimateError, UserError) as error:
        return f"canonical share not known: {error}"


def _wide(density: Density) -> Density:
    """Return a density in at most `MAX_BINS` bins of a round width: 1, 2 or 5 times 10^n."""
    counted, unit = np.flatnonzero(density.count_b), float(np.diff(density.edges).min())
    least = (counted[-1] + 1 - counted[0]) * unit / MAX_BINS
    tens = 10.0 ** np.floor(np.log10(least))
    n = round(next(k * tens for k in (1, 2, 5, 10) if k * tens >= least * (1 - 1e-9)) / unit)
    return density if n <= 1 or n >= len(density.count_b) else in_width(density, n * unit)
