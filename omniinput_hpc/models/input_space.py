"""Whether two models' inputs are the same: as many sites and values, and the same tokens.

Output distributions can be compared over one and the same space of inputs only. No torch here:
vocabularies are read from the tokenizers' JSON files.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from omniinput_hpc.errors import UserError

RESTRICTIONS = {"tokens": "all", "prefix": None}
"""Keys of ``[model]`` that say which inputs there are, beyond their shape; what holds without."""


@dataclass(frozen=True)
class Space:
    """A model's space of inputs.

    Attributes
    ----------
    name : of its run or input file, for messages
    n_sites, n_values : int
    vocabulary : hash of which token each value is; None where that is not known
    restriction : what the input file says of the inputs beyond their shape
    """

    name: str
    n_sites: int
    n_values: int
    vocabulary: str | None
    restriction: Mapping[str, Any]


def space_of(name: str, config: Mapping[str, Any], n_sites: int, n_values: int) -> Space:
    """Return the space of a model, from its parsed input file and its shape."""
    model = config.get("model", {})
    folder = model.get("path") if model.get("kind") == "causal-lm" else None
    restriction = {key: model.get(key, default) for key, default in RESTRICTIONS.items()}
    return Space(
        name, n_sites, n_values, vocabulary_of(Path(folder)) if folder else None, restriction
    )


def vocabulary_of(folder: Path) -> str | None:
    """Return a hash of a model folder's tokens by number; None where it has no readable list."""
    tokens: dict[str, int] = {}
    try:
        if (folder / "tokenizer.json").is_file():
            content = json.loads((folder / "tokenizer.json").read_text(encoding="utf-8"))
            listed = content["model"]["vocab"]
            if isinstance(listed, list):  # unigram: [token, score] in the order of numbers
                listed = {token: number for number, (token, _) in enumerate(listed)}
            tokens.update(listed)
            tokens.update({t["content"]: t["id"] for t in content.get("added_tokens", [])})
        elif (folder / "vocab.json").is_file():
            tokens.update(json.loads((folder / "vocab.json").read_text(encoding="utf-8")))
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise UserError(f"the tokenizer's files in {folder} cannot be read: {error!r}") from None
    if not tokens:
        return None
    text = json.dumps(sorted(tokens.items(), key=lambda item: (item[1], item[0])))
    return hashlib.sha256(text.encode()).hexdigest()


def require_same(a: Space, b: Space) -> None:
    """Check that two models have one space of inputs.

    Raises
    ------
    UserError
        They have not; the message says in what they differ.
    """
    reason = None
    if a.n_values != b.n_values:
        reason = f"{a.name} has {a.n_values:,} values a site, {b.name} {b.n_values:,}"
    elif a.n_sites != b.n_sites:
        reason = f"{a.name} has {a.n_sites} sites, {b.name} {b.n_sites}"
    elif a.vocabulary and b.vocabulary and a.vocabulary != b.vocabulary:
        reason = f"the values of {a.name} and of {b.name} stand for other tokens (vocabularies)"
    else:
        for key in sorted({*a.restriction, *b.restriction}):
            one, two = a.restriction.get(key), b.restriction.get(key)
            if one != two:
                reason = f"model.{key} is {one!r} in {a.name} and {two!r} in {b.name}"
    if reason is not None:
        raise UserError(
            f"different input spaces: {reason}; models can be compared over one and the same "
            "space only"
        )
