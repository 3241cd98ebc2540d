"""The head of a run's section: the model, the question, and its answer in two sentences."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from scipy.special import logsumexp

from omniinput_hpc.estimators.density.density import Density
from omniinput_hpc.report.content import Content
from omniinput_hpc.results.aupr import aupr_digits, interval_words, share_words
from omniinput_hpc.results.caption import model_words
from omniinput_hpc.results.curve import CurveResult
from omniinput_hpc.runfile.reader import RunReader
from omniinput_hpc.text import MeasureWords, sentence, tens

QUARTERS = (0.25, 0.75)
UNTIL = {"low": "up to", "high": "down to"}
"""The direction of the outputs, seen from the confident end."""


def title_of(run: RunReader) -> str:
    """Return the title of a report on one run."""
    return f"All inputs of {Path(run.config.model_name).name or run.config.model.kind}"


def model_line(run: RunReader, content: Content) -> str:
    """Return the model, its inputs and its output."""
    return f"Model: {model_words(run)}. {sentence(content.density.label)} Run: {run.path.name}."


def question(content: Content) -> str:
    """Return the question that the report answers."""
    if content.found is None:
        many = content.density.measure == "count"
        return "How many inputs have which output?" if many else "How probable is which output?"
    return "Of the inputs that the model is most confident about, how many are right?"


def answer(content: Content) -> list[str]:
    """Return the answer in two sentences: on right inputs if they are scored, else on outputs."""
    density = content.density.estimate
    if content.found is None:
        return _outputs(density, density.words)
    return [_right(content.found, density.words), _aupr(content.found)]


def _aupr(found: CurveResult) -> str:
    """Return the AUPR and what chance gives, or that it is not defined."""
    curve = found.curve
    if np.isnan(curve.aupr):
        return "Too few right inputs were found for a mean precision (AUPR)."
    return (
        f"The mean precision over all cut-offs (AUPR) is {curve.aupr:.{aupr_digits(curve)}f} "
        f"({interval_words(curve)}); a random order would give {share_words(curve)}."
    )


def _outputs(density: Density, words: MeasureWords) -> list[str]:
    """Return which outputs the run found, and the range that holds half of all inputs."""
    seen = np.flatnonzero(density.count_b)
    if not seen.size:
        return ["No output inside the bins was visited."]
    low, high = density.edges[seen[0]], density.edges[seen[-1] + 1]
    met = f"Outputs from {low:.6g} to {high:.6g} were visited"
    if not density.absolute:
        return [f"{met}; the {words.amount} at each is known only up to a common factor."]
    share_b = np.exp(density.log_g_b - logsumexp(density.log_g_b))
    first, last = np.searchsorted(np.cumsum(share_b), QUARTERS)
    lower, upper = density.edges[first], density.edges[last + 1]
    inside, which = density.share_inside, words.whole
    if not inside > 0.999:
        which = f"the {words.things} inside the bins ({inside:.2g} of all)"
    return [f"Half of {which} {words.have} from {lower:.4g} to {upper:.4g}.", f"{met}."]


def _right(found: CurveResult, words: MeasureWords) -> str:
    """Return the output up to which at least half of the accepted inputs are right, in words."""
    curve, side = found.curve, found.side
    half = np.flatnonzero(curve.precision_t >= 0.5)
    begin = f"If inputs are accepted from the {side} end, "
    if not half.size:
        return f"{begin}fewer than half of them are right, at any threshold."
    t = half[-1]
    number = f", which finds {tens(curve.log_recall_t[t])}{words.within} right ones"
    return (
        f"{begin}at least half of them are right {UNTIL[side]} z = "
        f"{curve.threshold_t[t]:.6g}{number if found.density.absolute else ''}."
    )
