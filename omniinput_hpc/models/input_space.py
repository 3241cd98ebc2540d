"""Check that two models have the same inputs: equal sites and values, and the same tokens.

Output distributions can be compared only over the same space of inputs. This module does not import
torch: vocabularies are read from the tokenizers' JSON files.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from omniinput_hpc.config import CausalLm, Config, ImageClassifier, Potts
from omniinput_hpc.errors import UserError
from omniinput_hpc.models import constraint, potts_file
from omniinput_hpc.models.images import files
from omniinput_hpc.models.language import hf_folder, tokenizer
from omniinput_hpc.models.table import KINDS

RESTRICTIONS = {"tokens": "all", "prefix": None}
"""Keys of ``[model]`` that restrict the inputs beyond their shape, with their defaults."""
LAW_KEYS = ("kind", "path", "factory", "options", "dtype", "prefix")
OF_ANY_LAW = ("temperature", "prompt")
"""Keys that define a law: those of ``[model]`` if its ``kind`` is "model", and of ``[law]``."""

LAW_ERROR = 2e-2
"""Difference of ln q between machines, by rows in bfloat16; also relative."""


@dataclass(frozen=True)
class Space:
    """A model's space of inputs.

    Attributes
    ----------
    name : of its run or input file, for messages
    n_sites, n_values : int
    vocabulary : hash of the token of each value; None if unknown
    restriction : keys of the input file that restrict the inputs beyond their shape
    law : keys and values of [law], with those of [model] if that is the law; empty without a law
    alphabet : the letters of a Potts model's values; None if unknown
    end : the value that ends a language model's texts; None if unknown
    picture : height, width and channels of an image; None if unknown
    """

    name: str
    n_sites: int
    n_values: int
    vocabulary: str | None
    restriction: Mapping[str, Any]
    law: Mapping[str, Any]
    alphabet: str | None = None
    end: int | None = None
    picture: tuple[int, int, int] | None = None


def space_of(name: str, config: Config, n_sites: int, n_values: int) -> Space:
    """Return the space of a model, from its input file and its shape."""
    model = config.model
    row = KINDS.get(model.kind)
    path = getattr(model, "path", None) if row is not None and row.has_tokenizer else None
    restriction = {f"model.{key}": getattr(model, key, old) for key, old in RESTRICTIONS.items()}
    for key in ("allowed", "pattern", "end", "canonical"):
        restriction[f"space.{key}"] = getattr(config.space, key, None)
    vocabulary = vocabulary_of(path, getattr(model, "tokens", "all")) if path else None
    alphabet = end = picture = None
    if isinstance(model, Potts):
        alphabet = model.alphabet or _if_there(lambda: potts_file.alphabet_of(model))
    if isinstance(model, CausalLm):
        end = _if_there(lambda: constraint.end_id(config))
    if isinstance(model, ImageClassifier):
        found = _if_there(lambda: files.shape_of(model))
        picture = found and (found.height, found.width, found.channels)
    shape, law = (n_sites, n_values), _law_of(config)
    return Space(name, *shape, vocabulary, restriction, law, alphabet, end, picture)


def _if_there(read: Callable[[], Any]) -> Any:
    """Return what `read` returns; None if it fails: the files of an old run may be gone."""
    try:
        return read()
    except UserError:
        return None


def _law_of(config: Config) -> dict[str, Any]:
    if config.law is None:
        return {}
    own = config.model if config.law.kind == "model" else config.law
    law = {key: getattr(own, key, None) for key in LAW_KEYS}
    return law | {key: getattr(config.law, key, None) for key in OF_ANY_LAW}


def vocabulary_of(path: str, tokens: Any = "all") -> str | None:
    """Return a hash of the tokens of the model at ``model.path``; None if there is no list of them.

    With ``model.tokens`` = "no-special" it covers which are special. No file stores it. Raises
    `UserError` if the tokenizer's files are broken.
    """
    try:
        folder = hf_folder.resolve(path)
    except UserError:  # the files of an old run may be gone
        return None
    found = tokenizer.read(folder)
    if found is None or not found.ids:
        return None
    text = json.dumps(sorted(found.ids.items(), key=lambda item: (item[1], item[0])))
    if tokens == "no-special":
        text += json.dumps(sorted(found.special))
    return hashlib.sha256(text.encode()).hexdigest()


def require_same(a: Space, b: Space) -> None:
    """Raise a `UserError` that names the difference if input spaces, or laws over them, differ."""
    reason = None
    if a.n_values != b.n_values:
        reason = f"{a.name} has {a.n_values:,} values per site, {b.name} {b.n_values:,}"
    elif a.n_sites != b.n_sites:
        reason = f"{a.name} has {a.n_sites} sites, {b.name} {b.n_sites}"
    elif a.vocabulary and b.vocabulary and a.vocabulary != b.vocabulary:
        reason = f"the values of {a.name} and {b.name} stand for different tokens (vocabularies)"
    elif a.alphabet and b.alphabet and a.alphabet != b.alphabet:
        reason = f"the letters of {a.name} are {a.alphabet}, those of {b.name} {b.alphabet}"
    elif a.picture and b.picture and a.picture != b.picture:
        shapes = [" x ".join(map(str, one)) for one in (a.picture, b.picture)]
        reason = f"the pictures of {a.name} are {shapes[0]} (x channels), of {b.name} {shapes[1]}"
    else:
        for key in sorted({*a.restriction, *b.restriction}):
            one, two = a.restriction.get(key), b.restriction.get(key)
            if one != two:
                reason = f"{key} is {one!r} in {a.name} and {two!r} in {b.name}"
        if reason is None and None not in (a.end, b.end) and a.end != b.end:
            reason = f"space.end is the value {a.end} in {a.name} and {b.end} in {b.name}"
    if reason is not None:
        raise UserError(
            f"different input spaces: {reason}; models can be compared only over the same space"
        )
    for key in (*LAW_KEYS, *OF_ANY_LAW):
        one, two = a.law.get(key), b.law.get(key)
        if one != two:
            raise UserError(
                f"different laws of inputs: [law] {key} is {one!r} in {a.name} and {two!r} in "
                f"{b.name}; runs can be compared only under one [law]"
            )


def same_mark(one: Any, two: Any) -> bool:
    """Return whether a mark of two runs' laws is the same: ln q of fixed inputs, or a hash.

    A run with small batches has ln q of fewer inputs, so the first ones are compared.
    """
    if isinstance(one, str):
        return bool(one == two)
    n = min(len(one), len(two))
    return np.allclose(one[:n], two[:n], LAW_ERROR, LAW_ERROR)
