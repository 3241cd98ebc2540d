"""The head of a run's section: the model, the question, and its answer in two sentences."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import scipy

from omniinput_hpc.config import Config
from omniinput_hpc.estimators import EstimateError
from omniinput_hpc.estimators.density.density import Density, log_total
from omniinput_hpc.estimators.precision_recall.thresholds import at_thresholds, ends_of
from omniinput_hpc.report.content import Content
from omniinput_hpc.results.aupr import aupr_digits, interval_words, share_words
from omniinput_hpc.results.canonical import CanonicalShare
from omniinput_hpc.results.caption import model_words
from omniinput_hpc.results.curve import CurveResult
from omniinput_hpc.results.density import LOG_LARGE_SHARE, in_words, total_line
from omniinput_hpc.results.extremes import own_rung
from omniinput_hpc.results.rules import rule_words
from omniinput_hpc.runfile.reader import RunReader
from omniinput_hpc.text import MeasureWords, interval, sentence, tens, tens_interval

QUARTERS = (0.25, 0.75)
SURE = (0.5, 0.9, 0.99)
"""Probabilities of a class that count as sure."""
SURE_OF_ANY = "The probability of the likeliest class"
LN_P = " It is ln p: z = -0.69 is p = 0.5, z = -0.11 is p = 0.9, and z = -0.01 is p = 0.99."
UNTIL = {"low": "up to", "high": "down to"}
"""The direction of the outputs, seen from the confident end."""


def title_of(run: RunReader) -> str:
    """Return the title of a report on one run."""
    return f"All inputs of {Path(run.config.model_name).name or run.config.model.kind}"


def model_line(run: RunReader, content: Content) -> str:
    """Return the model, its inputs and its output."""
    scale = LN_P if _is_log_probability(run.config) else ""
    if own_rung(run) is not None:
        scale = " The lower z is, the likelier the model finds the input."
    label = sentence(content.density.label)
    return f"Model: {model_words(run)}. {label}{scale} Run: {run.path.name}."


def question(content: Content) -> str:
    """Return the question that the report answers."""
    if content.found is None:
        many = content.density.measure == "count"
        return "How many inputs have which output?" if many else "How probable is which output?"
    return "Of the inputs that the model is most confident about, how many are right?"


def answer(run: RunReader, content: Content) -> list[str]:
    """Return the answer in a few sentences: on right inputs if they are scored, and on outputs."""
    density = content.density.estimate
    asked = _range(density, content.options.z_range)
    if content.found is None:
        as_p = _is_log_probability(run.config)
        said = [*_confident(run, content), *_outputs(density, density.words, as_p)]
        return [*asked, *said, *_canonical(content)]
    said = _confident(run, content)
    return [*said, _right(content.found, density.words), _aupr(content.found), *asked]


def _range(density: Density, z_range: tuple[float, float] | None) -> list[str]:
    """Return how many inputs lie in the range of outputs that was asked for."""
    if z_range is None:
        return []
    total, *ends = log_total(density, *z_range)
    return [f"{total_line(density, total, ends, None)}."]


def _confident(run: RunReader, content: Content) -> list[str]:
    """Return how many inputs the model is sure of, if z says what sure means."""
    density = content.density.estimate
    if not density.absolute:
        return []
    if _is_log_probability(run.config):
        model = run.config.model
        label = getattr(model, "label", getattr(model, "target", "any"))
        what = f"The probability of class {label}"
        noise = density.measure == "count" and not run.config.constrained
        return _probabilities(density, SURE_OF_ANY if label == "any" else what, noise)
    d, own = content.diagnosis.found, own_rung(run)
    if own is None or density.measure != "count":
        return []
    mean, sd = d.z_mean_k[own], d.z_std_k[own]
    texts = f"The model's own texts have z = {mean:.3g} +- {sd:.2g} (mean and standard deviation)."
    try:
        total, _, high = log_total(density, density.edges[0], mean)
    except EstimateError:
        return [texts]
    ends, log_all = (float(total.low), float(total.high)), density.log_measure
    share_ends = ends[0] - log_all, ends[1] - log_all
    whole = f"all {tens(log_all, digits=1)} inputs"
    return [
        f"{texts} Of {whole}, one in {tens(log_all - float(total.value), share_ends)} has z up to "
        f"{high:.4g}: {tens(float(total.value), ends)} inputs "
        f"({in_words(ends)}), which the model finds likelier than a typical text of its own.",
        *_right_of_these(content.found, high),
    ]


def _right_of_these(found: CurveResult | None, z: float) -> list[str]:
    """Return the share of right inputs up to z; [] if no curve reaches it."""
    if found is None:
        return []
    try:
        (at,) = at_thresholds(found.curve, found.density.edges, [z])
    except EstimateError:
        return []
    by = found.by if found.joined else rule_words(found.by)
    low, high = 100 * float(at.precision.low), 100 * float(at.precision.high)
    return [
        f"Of those with z up to {at.threshold:.4g}, {100 * at.precision.value:.3g} % "
        f"({interval(low, high, '.3g')} %) are right, by {by}."
    ]


def _canonical(content: Content) -> list[str]:
    """Return which share of all token sequences the tokenizer would make; [] if unknown."""
    share = content.density.share
    if not isinstance(share, CanonicalShare):
        return []
    return [
        f"{share.of_all()} of {share.density.whole} are canonical: the tokenizer would split "
        "their text into just these tokens."
    ]


def _is_log_probability(config: Config) -> bool:
    """Return whether z is ln of the probability of a class."""
    kinds = getattr(config.model, "target", None), getattr(config.model, "output", None)
    return config.output is None and "log-softmax" in kinds and getattr(config.model, "sign", 1) > 0


def _probabilities(density: Density, what: str, noise: bool) -> list[str]:
    """Return which share of all inputs gets a large probability; `what` begins the sentence.

    `noise` says whether nearly all inputs are noise: the space is not constrained.
    """
    parts = []
    for p in SURE:
        try:
            total, low, _ = log_total(density, float(np.log(p)), density.edges[-1])
        except EstimateError:
            continue
        ends = float(total.low) - density.log_measure, float(total.high) - density.log_measure
        share = _share(float(total.value) - density.log_measure, ends)
        parts.append(f"at least {np.exp(low):.3g} for {share}")
    if not parts:
        return []
    whole = density.words.whole
    said = f"{what} is {'; '.join(parts)} of {whole} (95 % intervals in brackets)."
    of_noise = " Nearly all inputs are noise, so this is how sure the model is of noise."
    most = float(np.exp(density.edges[1:][density.count_b > 0].max()))
    unseen = f" None above {most:.3g} was seen." if len(parts) < len(SURE) and most < 0.999 else ""
    return [said + unseen + (of_noise if noise else "")]


def _share(log_share: float, ends: tuple[float, float]) -> str:
    """Format a share and its interval: in percent, or as a power of ten if it is small."""
    if not ends[0] > LOG_LARGE_SHARE:
        return f"{tens(log_share, ends)} ({tens_interval(*ends)})"
    percent, low, high = (min(100.0, 100.0 * np.exp(log)) for log in (log_share, *ends))
    return f"{percent:.3g} % ({low:.3g} to {high:.3g} %)"


def _aupr(found: CurveResult) -> str:
    """Return the AUPR and what chance gives, or that it is not defined."""
    curve = found.curve
    if np.isnan(curve.aupr):
        return "Too few right inputs were found for a mean precision (AUPR)."
    lacks = ""
    if found.left_out_lines():
        less = "below" if found.side == "low" else "above"
        lacks = f", without the inputs {less} z = {ends_of(curve, found.density.edges)[0]:.6g}"
    return (
        f"The mean precision over ln recall (AUPR) is {curve.aupr:.{aupr_digits(curve)}f} "
        f"({interval_words(curve)}){lacks}; a random order would give {share_words(curve)}."
    )


def _outputs(density: Density, words: MeasureWords, as_p: bool) -> list[str]:
    """Return which outputs the run found, and the range that holds half of all inputs.

    If `as_p`, z is ln of a probability, and the range is given as probabilities, too.
    """
    seen = np.flatnonzero(density.count_b)
    if not seen.size:
        return ["No output inside the bins was visited."]
    low, high = density.edges[seen[0]], density.edges[seen[-1] + 1]
    met = f"Outputs from {low:.6g} to {high:.6g} were visited"
    if not density.absolute:
        return [f"{met}; the {words.amount} at each is known only up to a common factor."]
    share_b = np.exp(density.log_g_b - scipy.special.logsumexp(density.log_g_b))
    first, last = np.searchsorted(np.cumsum(share_b), QUARTERS)
    lower, upper = density.edges[first], density.edges[last + 1]
    inside, which = density.share_inside, density.whole
    if which != words.whole and np.isfinite(inside):
        which = f"{which} ({inside:.2g} of all)"
    p = f" (p from {np.exp(lower):.3g} to {np.exp(upper):.3g})" if as_p else ""
    return [f"Half of {which} {words.have} from {lower:.4g} to {upper:.4g}{p}.", f"{met}."]


def _right(found: CurveResult, words: MeasureWords) -> str:
    """Return the output up to which at least half of the accepted inputs are right, in words."""
    curve, side = found.curve, found.side
    half = np.flatnonzero(curve.precision_t >= 0.5)
    begin = f"If inputs are accepted from the {side} end, "
    if np.isneginf(curve.log_recall_t[-1]):
        low, high = sorted(ends_of(curve, found.density.edges))
        return (
            f"0 of {curve.n_scored:,} scored inputs were right, in bins that hold enough of them: "
            f"z from {low:.4g} to {high:.4g}."
        )
    if not half.size:
        return f"{begin}fewer than half of them are right, at any threshold."
    t = half[-1]
    number = f", which finds {tens(curve.log_recall_t[t])}{words.within} right ones"
    return (
        f"{begin}at least half of them are right {UNTIL[side]} z = "
        f"{curve.threshold_t[t]:.6g}{number if found.density.absolute else ''}."
    )
