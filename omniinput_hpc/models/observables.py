"""Observables: numbers y(x) of an input besides its output z, built in or of the user's own."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from omniinput_hpc.config import Config
from omniinput_hpc.config.input_file import did_you_mean
from omniinput_hpc.errors import UserError
from omniinput_hpc.models import constraint, table
from omniinput_hpc.models.display import Display, Values, cut
from omniinput_hpc.models.images.references import distance_from, read_references
from omniinput_hpc.models.protocol import space_of
from omniinput_hpc.plugins import load_function, own_surroundings, reads_texts

Observe = Callable[[Values], NDArray[np.float64]]
"""Maps inputs, int64 [n, D], to y, float64 [n]."""
SAME_Y = 1e-3  # how far y of one input may differ by rounding; also relative
_OVERLAP = 4  # characters of the runs that `overlap` looks for


def longest_run(values: Sequence[Any]) -> int:
    """Return the length of the longest run of one value."""
    longest = run = 1 if len(values) else 0
    for one, two in pairwise(values):
        run = run + 1 if one == two else 1
        longest = max(longest, run)
    return longest


def readability(text: str) -> float:
    """Return the automated readability index, about the school grade (Smith and Senter 1967)."""
    words = re.findall(r"\w+", text)
    sentences = max(1, len(re.findall(r"[.!?]+(?:\s|$)", text)))
    if not words:
        return 0.0
    return 4.71 * sum(map(len, words)) / len(words) + 0.5 * len(words) / sentences - 21.43


def edges(picture: NDArray[Any]) -> float:
    """Return the mean difference of neighbouring pixels, averaged over axes; 0 for one pixel."""
    axes = [axis for axis in (0, 1) if picture.shape[axis] > 1]
    along = [float(np.abs(np.diff(picture, axis=axis)).mean()) for axis in axes]
    return sum(along) / max(1, len(along))


def overlap(text: str, other: str, n: int = _OVERLAP) -> float:
    """Return the share of a text's runs of n characters that another text has, too."""
    if not text:
        return 0.0
    parts = [text[i : i + n] for i in range(max(1, len(text) - n + 1))]
    return sum(part in other for part in parts) / len(parts)


OF_TEXTS: dict[str, Callable[[str], float]] = {
    "length": len,
    "letters": lambda text: sum(map(str.isalpha, text)) / max(1, len(text)),
    "readability": readability,
}
OF_TEXTS_AND: dict[str, Callable[[str, str], float]] = {
    "contains": lambda text, part: part in text,
    "matches": lambda text, pattern: re.search(pattern, text) is not None,
    "overlap": overlap,
}
OF_VALUES: dict[str, Callable[[NDArray[Any]], float]] = {
    "distinct": lambda x_d: len(set(x_d.tolist())),
    "longest-run": lambda x_d: longest_run(x_d.tolist()),
}
OF_PICTURES: dict[str, Callable[[NDArray[Any]], float]] = {
    "brightness": lambda picture: picture.mean(),
    "edges": edges,
}
LABEL, DISTANCE, SHARES = "class", "distance", ("contains", "matches", "canonical")
NAMES = (
    *OF_TEXTS, "contains:TEXT", "matches:REGEX", "overlap:TEXT", "canonical", *OF_PICTURES,
    f"{DISTANCE}:PICTURES", *OF_VALUES, LABEL, "MODULE:FUNCTION",
)  # fmt: skip
"""What may be asked for."""


def build(what: str, config: Config, key: str, render: bool = True) -> Observe:
    """Return an observable of a run's inputs.

    Parameters
    ----------
    what : one of `NAMES`
    config : the run's input
    key : the option or key that asks for it, for messages
    render : whether a `python` model is built to show its inputs; if not, their values are text

    Raises
    ------
    UserError
        There is no such observable, or it is not for these inputs.
    """
    word, _, argument = what.partition(":")
    if what in OF_VALUES:
        end = constraint.end_id(config)
        return _each(OF_VALUES[what], lambda x: list(x) if end is None else cut(x, end))
    if what == LABEL:
        return _class_of(config, f"{key} {what}")
    shown = what in OF_TEXTS or word in OF_TEXTS_AND or what in OF_PICTURES
    if shown or what == "canonical" or word == DISTANCE:
        return _of_shown(what, f"{key} {what}", _display(config, render, f"{key} {what}"))
    if not argument:
        known = f"{', '.join(NAMES)}{did_you_mean(what, NAMES)}"
        raise UserError(f"{key} {what}: expected one of {known}")
    function, asked = load_function(what, key), f"{key} {what}"
    if not reads_texts(function):
        return lambda x: _checked(function, x.copy(), len(x), asked)  # it may write into them
    how = _display(config, render, asked)
    if how.kind != "text":
        raise UserError(f"{asked} reads texts; this run's inputs are {how.kind}s")
    return lambda x: _checked(function, how.show(x), len(x), asked)


def of_run(config: Config, x_nd: NDArray[Any]) -> dict[str, Observe]:
    """Return the observables that an input file asks for, by name, after trying them on inputs.

    Raises
    ------
    UserError
        As for `build`; or one of them fails on the inputs x_nd, ids [n, D].
    """
    found = {
        one: build(what, config, f"observables.{one} =") for one, what in config.observed.items()
    }
    for y in found.values():
        y(x_nd.astype(np.int64))
    return found


def _class_of(config: Config, asked: str) -> Observe:
    """Return a classifier's likeliest class, counted from 0; this loads the model."""
    if config.model.kind not in ("image-classifier", "sequence-classifier"):
        raise UserError(f"{asked} is for classifiers; this run's model is a {config.model.kind}")
    model: Any = table.build_kind(config.model, "cpu", config)
    if config.model.kind == "sequence-classifier" and model.lm.config.num_labels == 1:
        raise UserError(f"{asked}: this run's model has one output, a score, and no classes")
    to_values = space_of(model).to_values
    return lambda x: np.asarray(model.classes(to_values(x)), np.float64)


def _display(config: Config, render: bool, asked: str) -> Display:
    if config.model.kind == "python" and not render:
        raise UserError(f"{asked} reads inputs as the model's own render shows them: add --render")
    return table.display(config)


def _each(function: Callable[[Any], float], show: Callable[[Values], Sequence[Any]]) -> Observe:
    return lambda x: np.array([function(one) for one in show(x)], np.float64)


def _of_shown(what: str, asked: str, how: Display) -> Observe:
    """Return an observable of what people see of an input."""
    if what == "canonical":
        is_canonical = how.canonical
        if is_canonical is None:
            raise UserError(f"{asked} needs the model's tokenizer, which is not here")
        return lambda x: is_canonical(x).astype(np.float64)
    word, _, argument = what.partition(":")
    kind = "image" if what in OF_PICTURES or word == DISTANCE else "text"
    if how.kind != kind:
        raise UserError(f"{asked} is for {kind}s; this run's inputs are {how.kind}s")
    if what in OF_PICTURES:
        return _each(lambda picture: OF_PICTURES[what](picture.astype(np.float64)), how.show)
    if what in OF_TEXTS:
        return _each(OF_TEXTS[what], how.show)
    if not argument:
        raise UserError(f"{asked}: expected {next(n for n in NAMES if n.startswith(f'{word}:'))}")
    if word == DISTANCE:
        distance = distance_from(read_references(argument, asked), asked)
        return lambda x: distance(how.show(x))
    if word == "overlap" and len(argument) < _OVERLAP:
        raise UserError(f"{asked}: give a TEXT of at least {_OVERLAP} characters")
    if word == "matches":
        try:
            re.compile(argument)
        except re.error as error:
            raise UserError(f"{asked}: not a regular expression: {error}") from None
    return _each(lambda text: OF_TEXTS_AND[word](text, argument), how.show)


def _checked(
    function: Callable[[Any], object], given: Any, n: int, asked: str
) -> NDArray[np.float64]:
    """Return what a user's function says of n inputs: finite numbers, one for each."""
    try:
        with own_surroundings():
            y_n = np.asarray(function(given), dtype=np.float64)
    except UserError:
        raise
    except Exception as error:  # a user's own function may raise anything
        raise UserError(f"{asked} failed: {type(error).__name__}: {error}") from error
    if y_n.shape != (n,):
        raise UserError(f"{asked}: expected {n} numbers, found shape {y_n.shape}")
    if not np.isfinite(y_n).all():
        raise UserError(f"{asked} gives {y_n[~np.isfinite(y_n)][0]:g}: expected finite numbers")
    return y_n
