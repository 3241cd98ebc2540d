"""A run's findings in a few plain sentences, for the head of its section."""

from __future__ import annotations

import numpy as np
from scipy.special import logsumexp

from omniinput_hpc.estimators.density.density import Density
from omniinput_hpc.plots.style import LN10
from omniinput_hpc.report.content import Content
from omniinput_hpc.results.caption import title_of
from omniinput_hpc.results.curve import CurveResult
from omniinput_hpc.runfile.reader import RunReader
from omniinput_hpc.text import WORDS_OF, MeasureWords

QUARTERS = (0.25, 0.75)
UNTIL = {"low": "up to", "high": "down to"}
"""The direction of the outputs, seen from the confident end."""


def summary(run: RunReader, content: Content) -> list[str]:
    """Return plain sentences on the inputs, their outputs, and how many are right."""
    density = content.density.estimate
    said = [f"{title_of(run)}, {len(run.beta_k)} temperatures."]
    words = WORDS_OF[run.config.measure]
    said.append(_outputs(density, words))
    if content.found is not None:
        said.append(_right(content.found, words))
    if not density.verdict.converged:
        said.append("This run has not converged: do not rely on these numbers yet.")
    return said


def _outputs(density: Density, words: MeasureWords) -> str:
    """Return which outputs the run found, and the range that holds half of all inputs."""
    seen = np.flatnonzero(density.count_b)
    if not seen.size:
        return "No output inside the bins was visited."
    low, high = density.edges[seen[0]], density.edges[seen[-1] + 1]
    met = f"Outputs from {low:.6g} to {high:.6g} were visited"
    if not density.absolute:
        return f"{met}; the {words.amount} at each is known only up to a common factor."
    share_b = np.exp(density.log_g_b - logsumexp(density.log_g_b))
    first, last = np.searchsorted(np.cumsum(share_b), QUARTERS)
    lower, upper = density.edges[first], density.edges[last + 1]
    inside, which = density.share_inside, words.whole
    if not inside > 0.999:
        which = f"the {words.things} inside the bins ({inside:.2g} of all)"
    return f"{met}. Half of {which} {words.have} from {lower:.6g} to {upper:.6g}."


def _right(found: CurveResult, words: MeasureWords) -> str:
    """Return the output up to which at least half of the accepted inputs are right, in words."""
    curve, side = found.curve, found.side
    half = np.flatnonzero(curve.precision_t >= 0.5)
    begin = f"If inputs are accepted from the {side} end, "
    if not half.size:
        return f"{begin}fewer than half of them are right, at any threshold."
    t = half[-1]
    number = f", which finds 10^{curve.log_recall_t[t] / LN10:.1f}{words.within} right ones"
    return (
        f"{begin}at least half of them are right {UNTIL[side]} z = "
        f"{curve.threshold_t[t]:.6g}{number if found.density.absolute else ''}."
    )
