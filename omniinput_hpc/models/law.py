"""The parts of a law of inputs, as the table ``[law]`` describes it: models, and rows of prompts.

`kernels.parts.law` draws from them. Importing this module does not import torch.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from omniinput_hpc.config import CausalLm, Config, PythonModel, Table
from omniinput_hpc.config.law import (
    CausalLmLaw,
    CausalLmPrompt,
    DataPrompt,
    Prompt,
    PythonLaw,
    PythonPrompt,
)
from omniinput_hpc.errors import UserError
from omniinput_hpc.models import constraint, input_space
from omniinput_hpc.models.language import hf_folder, tokenizer
from omniinput_hpc.models.protocol import offers_of, space_of
from omniinput_hpc.models.table import KINDS, build_kind, preflight_kind
from omniinput_hpc.untrusted import fasta
from omniinput_hpc.untrusted.files import read_bytes, read_text
from omniinput_hpc.untrusted.parsing import parse_json

MAX_PROMPT_BYTES = 1 << 30
MAX_NAMED = 10
"""Rows of a file that a message names."""
_PATHS: Any = {"path": True, "prompt": {"path": True, "file": True}}
"""What does not define a law: where its files lie. Their contents do."""


@dataclass(frozen=True)
class LawParts:
    """What a law consists of.

    Attributes
    ----------
    model : whose conditionals define it
    temperature : of its rows
    prompt : the law of the first sites: a model, rows of values int64 [N, P], or a number of
        uniform sites; None without a prompt
    is_model : whether `model` is the [model] of the run
    """

    model: Any
    temperature: float
    prompt: Any = None
    is_model: bool = False


def preflight(config: Config, about: dict[str, Any]) -> dict[str, Any]:
    """Return `about`, the result of a model's preflight, with "parts" and "bytes" of the law.

    Raises `UserError`, which names files that are missing or do not fit.
    """
    law = config.law
    assert law is not None
    parts = [*about.get("parts", ()), f"law:{law.model_dump_json(exclude=_PATHS)}"]
    n_bytes = about["bytes"]
    tables = [_model_table(law, config, about["n_sites"]), _prompt_table(law.prompt, config)]
    for table in tables:
        if table is None:
            continue
        _require_same_tokens(config, table)
        found = preflight_kind(table, config.allowed, hashed=False)
        parts.append(found["fingerprint"] or found["files"])
        n_bytes = None if n_bytes is None or not found["bytes"] else n_bytes + found["bytes"]
    if isinstance(law.prompt, DataPrompt):
        data = read_bytes(Path(law.prompt.file), "file of prompts", MAX_PROMPT_BYTES)
        parts.append(hashlib.sha256(data).hexdigest())
    return {**about, "parts": parts, "bytes": n_bytes}


def build(config: Config, device: str, model: Any) -> LawParts | None:
    """Return the parts of a run's law; `model` is the run's model. None without a law.

    Raises `UserError` if they cannot be made, or have other sites or values than the model.
    """
    law = config.law
    if law is None:
        return None
    table = _model_table(law, config, model.n_sites)
    base = getattr(model, "base", model)
    own = base if table is None else build_kind(table, device, config)
    _require_shape(own, model.n_values, model.n_sites, "law")
    _require_no_early_end(config, own, base)
    return LawParts(own, law.temperature, _prompt(config, device, model), table is None)


def _prompt(config: Config, device: str, model: Any) -> Any:
    assert config.law is not None
    prompt = config.law.prompt
    if prompt is None:
        return None
    if prompt.sites > model.n_sites:
        raise UserError(
            f"law.prompt.sites = {prompt.sites} is more than the model's {model.n_sites} sites"
        )
    if isinstance(prompt, DataPrompt):
        return _rows(prompt, config, model)
    table = _prompt_table(prompt, config)
    if table is None:
        return prompt.sites
    own = build_kind(table, device, config)
    _require_shape(own, model.n_values, prompt.sites, "law.prompt")
    return own


def _model_table(law: Any, config: Config, n_sites: int | None) -> Table | None:
    """Return the [model] table of a law's own model; None if it is the run's."""
    if isinstance(law, CausalLmLaw):
        more = {"dtype": law.dtype, "prefix": law.prefix}
        return _causal_lm(law.path, config, "law", n_sites or 2, more)
    if isinstance(law, PythonLaw):
        return PythonModel(kind="python", factory=law.factory, options=law.options)
    return None


def _prompt_table(prompt: Prompt | None, config: Config) -> Table | None:
    """Return the [model] table of a prompt's model; None if it has none."""
    if isinstance(prompt, CausalLmPrompt):
        return _causal_lm(prompt.path, config, "law.prompt", prompt.sites, {})
    if isinstance(prompt, PythonPrompt):
        return PythonModel(kind="python", factory=prompt.factory, options=prompt.options)
    return None


def _causal_lm(path: str, config: Config, key: str, length: int, more: dict[str, Any]) -> CausalLm:
    """Return the table of a decoder; a `UserError` names `key` if it has no such inputs."""
    tokens: Any = getattr(config.model, "tokens", "all")
    if length < 2:
        raise UserError(f'{key}: kind = "causal-lm" needs 2 sites or more, not {length}')
    if isinstance(tokens, list):
        raise UserError(
            f'{key}: kind = "causal-lm" takes no list of model.tokens; give a kind = "python"'
        )
    return CausalLm(kind="causal-lm", path=path, length=length, tokens=tokens, **more)


def _require_same_tokens(config: Config, table: Table) -> None:
    path, other = getattr(config.model, "path", None), getattr(table, "path", None)
    if not path or not other or not KINDS[config.model.kind].has_tokenizer:
        return
    tokens = getattr(config.model, "tokens", "all")
    own, found = (input_space.vocabulary_of(one, tokens) for one in (path, other))
    if own and found and own != found:
        raise UserError(
            f"law: the values of {other} stand for other tokens than those of model.path = {path}; "
            "a law needs the model's vocabulary"
        )


def _require_shape(own: Any, n_values: int, n_sites: int, key: str) -> None:
    if (own.n_values, own.n_sites) != (n_values, n_sites):
        raise UserError(
            f"{key}: its model has {own.n_sites} sites of {own.n_values:,} values, but "
            f"{n_sites} sites of {n_values:,} values are needed"
        )


def _require_no_early_end(config: Config, own: Any, base: Any) -> None:
    """Raise a `UserError` if the law's texts may end before the first site of the model's z."""
    first, of_law = offers_of(base).predicted_from, offers_of(own).predicted_from
    if of_law < first and config.space is not None and config.space.end is not None:
        raise UserError(
            f"law: with space.end its texts may end at site {of_law}, but the model predicts only "
            f"from site {first} on; give both a prefix, or none"
        )


def _rows(prompt: DataPrompt, config: Config, model: Any) -> NDArray[np.int64]:
    """Return the prompts of a file as values, int64 [N, P]."""
    path, where = Path(prompt.file), f"law.prompt.file = {prompt.file}"
    given, space = _read(path), space_of(model)
    if not given:
        raise UserError(f"{where} holds no prompts")
    if not all(isinstance(row, str) for row in given):
        constraint.require_token_ids(config, where, "give texts")
    if any(isinstance(row, str) for row in given):
        kind = KINDS[config.model.kind]
        if not kind.has_tokenizer:
            raise UserError(
                f'{where}: texts need a model with a tokenizer, not model.kind = "'
                f'{config.model.kind}"; give a JSON list of lists of values'
            )
        folder = hf_folder.resolve(getattr(config.model, "path", ""))
        tokenizer.require(tokenizer.read(folder), folder, "law.prompt.file with texts")
        encode: Any = hf_folder.encoder(config.model, config.allowed)  # type: ignore[arg-type]
        given = [encode(row) if isinstance(row, str) else _values(row, space) for row in given]
    else:
        given = [_values(row, space) for row in given]
    wrong = [number for number, row in enumerate(given, 1) if len(row) != prompt.sites]
    if wrong:
        raise UserError(
            f"{where}: {_named(wrong)} of other lengths than law.prompt.sites = {prompt.sites} "
            f"({', '.join(str(len(given[i - 1])) for i in wrong[:MAX_NAMED])} tokens)"
        )
    values = np.array(given, dtype=np.int64)
    bad = (values < 0) | (values >= model.n_values)
    if bad.any():
        numbers = (np.flatnonzero(bad.any(axis=1)) + 1).tolist()
        raise UserError(f"{where}: {_named(numbers)} with values that the model does not have")
    ends = np.flatnonzero((space.to_ids(values) == constraint.end_id(config)).any(axis=1)) + 1
    if ends.size:
        raise UserError(f"{where}: {_named(ends.tolist())} with the token of space.end")
    return values


def _values(row: Sequence[int], space: Any) -> list[int]:
    """Return the values of a row of the model's own numbers; -1 for one that it lacks."""
    numbers = [number if abs(number) < 1 << 62 else -1 for number in row]
    return list(space.to_values(np.array(numbers, dtype=np.int64)).tolist())


def _read(path: Path) -> list[Any]:
    """Return the texts, or lists of values, of a file."""
    what = "file of prompts"
    if path.suffix.lower() in fasta.ENDINGS:
        return fasta.read(path, what, MAX_PROMPT_BYTES)[1]
    if path.suffix != ".json":
        # splitlines() also splits texts at characters such as U+2028
        lines = read_text(path, what, MAX_PROMPT_BYTES).split("\n")
        return [line for line in lines if line]
    try:
        found = parse_json(read_bytes(path, what, MAX_PROMPT_BYTES))
    except ValueError as error:
        raise UserError(f"law.prompt.file = {path}: not valid JSON: {error}") from None
    if isinstance(found, list) and all(isinstance(row, str) or _is_values(row) for row in found):
        return found
    raise UserError(f"law.prompt.file = {path}: expected a list of texts, or of lists of values")


def _is_values(row: Any) -> bool:
    return isinstance(row, list) and all(type(value) is int for value in row)


def _named(numbers: Sequence[int]) -> str:
    """Return "row 3", or "rows 3, 5 and 7 more"."""
    shown = ", ".join(map(str, numbers[:MAX_NAMED]))
    more = f" and {len(numbers) - MAX_NAMED} more" if len(numbers) > MAX_NAMED else ""
    return f"{'row' if len(numbers) == 1 else 'rows'} {shown}{more}"
