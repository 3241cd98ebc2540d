"""Inputs outside the bins: their share, on which side, and bounds that would include them.

A rung at beta = 0 samples all inputs uniformly, or by their law, so the share of its moves outside
the bins estimates that of all inputs. Inputs outside the bins appear in no curve and no recall.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from omniinput_hpc.estimators import FloatArray
from omniinput_hpc.estimators.errors.convergence import Check
from omniinput_hpc.estimators.run_data import RunData, evenly_spaced_rounds
from omniinput_hpc.text import WORDS_OF

MAX_SHARE_OUTSIDE = 1e-3
"""Largest share of all inputs outside the bins of a converged run."""
SMALL_SIDE = 1e-4
"""A side with a smaller share is not reported."""
ROUNDING = 1e-4
"""In bin widths: outputs this close to an end of the bins are outside only by rounding of z."""
MAX_SAMPLES = 1_000_000
"""Recorded samples to search for outputs outside the bins."""


@dataclass(frozen=True)
class Outside:
    """Inputs outside the bins, according to the rungs that sample all inputs uniformly.

    Attributes
    ----------
    below, above : share of all inputs; NaN if no rung has beta = 0
    lowest, highest : the outermost outputs that these rungs recorded outside; NaN if there is none
    measure : what the shares are of: "count", or "probability" under a law
    """

    below: float = np.nan
    above: float = np.nan
    lowest: float = np.nan
    highest: float = np.nan
    measure: str = "count"

    def shares(self) -> list[str]:
        """Return a clause for each side with the share outside; none if few inputs are outside."""
        if not self.below + self.above > MAX_SHARE_OUTSIDE:  # also if it is NaN
            return []
        sides = (("below", self.below), ("above", self.above))
        many = [(side, share) for side, share in sides if share > SMALL_SIDE]
        words = WORDS_OF[self.measure]
        lie = f"of {words.whole} {words.lie}"
        return [f"{_percent(share)} {lie} {side} the bins" for side, share in many]

    def checks(self, edges: FloatArray) -> list[Check]:
        """Check that the bins hold nearly all inputs, with the bound to set on each side.

        edges : float64 [B + 1], of the run's bins
        """
        check = Check("share outside the bins", self.below + self.above, MAX_SHARE_OUTSIDE)
        return [check.failed(*self._said(s, edges)) for s in self.shares()] or [check]

    def _said(self, said: str, edges: FloatArray) -> tuple[str, str]:
        """Return the sentence and the remedy for one side."""
        width = float(edges[1] - edges[0])
        below = "below" in said
        end, seen = (edges[0], self.lowest) if below else (edges[-1], self.highest)
        key, way = ("bins.lower", "down") if below else ("bins.upper", "up")
        if np.isfinite(seen) and abs(end - seen) < ROUNDING * width:
            sentence = (
                f"{said}, but only by rounding: z was seen {way} to {seen:.9g}, and the bins "
                f"{'begin' if below else 'end'} at {end:.9g}"
            )
            bound = end + (-0.5 if below else 0.5) * width
            return sentence, f"in a new run, put bin edges between outputs: {key} = {bound:.6g}"
        sentence = f"{said}, so no curve and no recall counts them"
        if not np.isfinite(seen):
            return sentence, f"in a new run, set {key} further {way}"
        n_bins = np.floor(abs(end - seen) / width) + 1.0  # whole bins, with some room
        bound = end + (-1.0 if below else 1.0) * n_bins * width
        return sentence, (
            f"in a new run, set {key} to about {bound:.6g} (z was seen {way} to {seen:.4g})"
        )


NOT_KNOWN = Outside()


def _percent(share: float) -> str:
    """Return a share in percent, never rounded up to 100 %."""
    digits = 2 if share < 0.99 else 6
    percent = 100.0 * share if share == 1.0 else min(100.0 * share, 99.9999)
    return f"{percent:.{digits}g} %"


def outside_bins(runs: Sequence[RunData]) -> Outside:
    """Return the inputs outside the bins for runs of one model with the same bins."""
    moves, outside_2 = 0, np.zeros(2, dtype=np.int64)
    end_n: list[FloatArray] = []
    for run in runs:
        for k in np.flatnonzero(run.weights.uniform_k):
            moves += int(run.moves_k[k])
            outside_2 += run.outside_k2[k]
            if run.outside_k2[k].any():
                rounds = evenly_spaced_rounds(run, MAX_SAMPLES)
                end_n += [_ends(run, int(r), int(k)) for r in rounds]
    if not moves:
        return NOT_KNOWN
    lowest, highest = np.array([*end_n, [np.inf, -np.inf]]).T
    edges = runs[0].edges
    low, high = float(lowest.min()), float(highest.max())
    return Outside(
        float(outside_2[0] / moves),
        float(outside_2[1] / moves),
        low if low < edges[0] else np.nan,
        high if high > edges[-1] else np.nan,
        runs[0].config.measure,
    )


def _ends(run: RunData, round_: int, rung: int) -> FloatArray:
    """Return the lowest and highest output that a rung recorded in a round, float64 [2]."""
    z = run.z(slice(round_, round_ + 1), slice(rung, rung + 1))
    ends = (z.min(), z.max()) if z.size else (np.inf, -np.inf)
    return np.array(ends, dtype=np.float64)
