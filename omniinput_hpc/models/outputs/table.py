"""The table of outputs: the module that builds each, its label, and its side. No torch here."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from omniinput_hpc.config import Side

MAX_SHOWN = 3
"""Largest number of tokens that a label lists."""
OF_KINDS = {
    "causal-lm": ("NLL", " (nats per token)"),
    "masked-lm": ("pseudo-loss", " (nats per token)"),
    "potts": ("energy", ""),
}
"""What a difference of models of a kind is of, and its unit."""


@dataclass(frozen=True)
class OutputKind:
    """One row of the table.

    Attributes
    ----------
    builder : module, relative to `models.outputs`, with ``build(config, base, device)``, which
        returns a model whose output is z
    z_label : maps the ``[output]`` table, perhaps of another version, to the label of z
    side : maps that table to the end of z where the model is confident; None if there is none
    on_lattice : see `models.table.ModelKind`
    """

    builder: str
    z_label: Callable[[Any], str]
    side: Callable[[Any], Side | None] = lambda output: None
    on_lattice: bool = False


def _next_label(output: Any) -> str:
    most = "max " if output.aggregate == "max" else ""
    targets = f"ln {most}P({_listed(output.targets)})"
    if output.against is None:
        return f"output z, \N{MINUS SIGN}{targets} of the next token (nats)"
    against = "others" if output.against == "others" else _listed(output.against)
    against = f"ln {most}P({against})"
    return f"output z, {against} \N{MINUS SIGN} {targets} of the next token (nats)"


def _listed(tokens: list[str | int]) -> str:
    shown = [repr(token) for token in tokens[:MAX_SHOWN]]
    return ", ".join([*shown, *(["..."] if len(tokens) > MAX_SHOWN else [])])


def _text_label(output: Any) -> str:
    text = repr(output.text)
    shown = text if len(text) <= 40 else f"{text[:37]}..."
    return f"output z, mean NLL of {shown} (nats per token)"


def _difference_label(output: Any) -> str:
    other = Path(getattr(output.other, "path", "") or getattr(output.other, "factory", "")).name
    word, unit = OF_KINDS.get(output.other.kind, ("output", ""))
    return f"output z, {word} \N{MINUS SIGN} {word} of {other}{unit}"


OUTPUTS = {
    "next": OutputKind(
        "continuation",
        _next_label,
        lambda output: "low" if output.against in (None, "others") else None,
    ),
    "text": OutputKind("continuation", _text_label, lambda output: "low"),
    "difference": OutputKind("difference", _difference_label),
    "classifier": OutputKind(
        "classifier",
        lambda output: f"output z, the judge's logit of class {getattr(output, 'class', 0)} (nats)",
    ),
    "python": OutputKind(
        "function", lambda output: f"output z, {output.function}", on_lattice=True
    ),
}
