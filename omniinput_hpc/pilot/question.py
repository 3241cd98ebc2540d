"""Questions that `init` knows: the tables of each, and the betas that answer it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from omniinput_hpc import models
from omniinput_hpc.config import Config
from omniinput_hpc.errors import UserError
from omniinput_hpc.pilot import model_table

QUESTIONS = {
    "next": ("targets", "after"),
    "text": ("text",),
    "difference": ("other",),
    "pattern": ("pattern",),
}
"""The options of each question, the required one first."""
BEYOND = 2.0
"""The highest beta of the outputs `next` and `text`, as a multiple of the one of a sampled text."""


def tables(question: str | None, options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the tables [law], [output] or [space] of a question; `options` are None if not given.

    Raises a UserError if an option is missing, or if it is another question's.
    """
    given = {name: value for name, value in options.items() if value is not None}
    own = QUESTIONS[question] if question else ()
    for other, names in QUESTIONS.items():
        for name in names:
            if name in given and name not in own:
                raise UserError(f"--{name} is for --question {other}")
    if question is None:
        return {}
    if own[0] not in given:
        raise UserError(f"--question {question} needs --{own[0]}")
    if question == "pattern":
        return {"space": given}
    if question == "difference":
        given["other"] = _other(given["other"])
    return {"law": {"kind": "model"}, "output": {"name": question, **given}}


def _other(name: str) -> dict[str, Any]:
    """Return the table of the other model of a difference, whose inputs are those of [model]."""
    table = model_table.of(name, None, None, "--other")
    return {key: value for key, value in table.items() if key != "length"}


@dataclass(frozen=True)
class Reach:
    """How far a ladder goes, if what it is for tells.

    Attributes
    ----------
    lowest, highest : betas beyond which it does not go
    why : what its ends are, as a sentence
    """

    lowest: float = -np.inf
    highest: float = np.inf
    why: str = ""


def reach_of(config: Config, model: Any, end: str | None) -> Reach:
    """Return how far the ladder of an input goes; `model` is built from it.

    `end` is the end of z that the user wants, None for both. Raises a `UserError` if the ladder
    does not go there.
    """
    reach = _of_question(config, model)
    low, high = (0.0 if end == "low" else reach.lowest, 0.0 if end == "high" else reach.highest)
    if low == high == 0.0:
        raise UserError(f"--end {end}: this question is about the other end of z")
    return replace(reach, lowest=low, highest=high)


def _of_question(config: Config, model: Any) -> Reach:
    output, law = config.output, config.law
    offers = models.offers_of(getattr(model, "base", model))
    m = model.n_sites - offers.predicted_from
    fixed = config.space is None or config.space.end is None  # m z is then -ln of a probability
    if config.constrained and output is None and offers.conditional_logits is not None:
        why = f"At beta = {m:g} a text comes as often as the model writes it."
        if not fixed:
            why = (
                "No beta gives texts as often as the model writes them, since with space.end z is "
                f"a mean over each text's own tokens: at beta = {m:g} only texts of {m:g} "
                "predicted tokens have the model's proportions, and shorter ones are rarer."
            )
        return Reach(0.0, m, why if law is None else "")
    if output is None or law is None or getattr(output, "against", None):
        return Reach()
    if output.name in ("next", "text"):
        n = model.n_read
        what = "a target" if output.name == "next" else "the text"
        return Reach(
            0.0, BEYOND * n, f"At beta = {n:g} are the inputs after which the model goes on with "
            f"{what}; at beta = {BEYOND * n:g} those after which it is likelier still.",
        )  # fmt: skip
    kinds = {config.model.kind, getattr(getattr(output, "other", None), "kind", None)}
    if output.name == "difference" and law.kind == "model" and kinds == {"causal-lm"}:
        begins = [getattr(one, "prefix", None) is None for one in (config.model, output.other)]
        plain = fixed and law.temperature == 1.0 and law.prompt is None and begins[0] == begins[1]
        why = f"At beta = {-m:g} inputs follow the law of the other model." if plain else ""
        return Reach(-m, m, why)
    return Reach()
