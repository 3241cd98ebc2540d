"""Reading the input file: all mistakes at once, each with its key and what was expected."""

from __future__ import annotations

import difflib
import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ValidationError

from omniinput_hpc.config import Config
from omniinput_hpc.config.table import tables_in, tag_of
from omniinput_hpc.errors import UserError
from omniinput_hpc.untrusted.files import read_text
from omniinput_hpc.untrusted.parsing import MAX_TOML_BYTES, check_tree, parse_toml

MAX_LINES = 40
"""Mistakes listed at most."""


def load(path: Path, assignments: Sequence[str] = ()) -> Config:
    """Read and check an input file; `assignments` are ``table.key=value``, applied in order.

    Raises a UserError where the file is missing or is no TOML, or keys are unknown or wrong (the
    first `MAX_LINES` are listed).
    """
    if os.path.isdir(path):
        raise UserError(f"{path} is a directory; give an input file (.toml)")
    try:
        os.stat(path)
    except (FileNotFoundError, NotADirectoryError):
        raise UserError(f"{path}: no such input file{_nearby(path)}") from None
    except (OSError, ValueError):
        pass  # reading it says why it cannot be read
    return parse(read_text(path, "input file (.toml)", MAX_TOML_BYTES), str(path), assignments)


def parse(text: str, source: str, assignments: Sequence[str] = ()) -> Config:
    """Check the text of an input file; `source` names it in messages (see `load`)."""
    try:
        tree = parse_toml(text)
    except ValueError as error:
        raise UserError(f"{source}: not valid TOML: {error}") from None
    for assignment in assignments:
        _assign(tree, assignment)
    try:
        check_tree(tree)
    except ValueError as error:
        raise UserError(f"--set: {error}") from None
    try:
        return Config.model_validate(tree)
    except ValidationError as error:
        details = error.errors(include_url=False)
    n = len(details)
    count = "1 mistake" if n == 1 else f"{n} mistakes"
    lines = [f"  {_line(detail)}" for detail in details[:MAX_LINES]]
    lines += [f"  and {n - MAX_LINES} more"] if n > MAX_LINES else []
    raise UserError("\n".join([f"{source}: {count} to correct", *lines]))


def _nearby(path: Path) -> str:
    folder = path.parent if os.path.isdir(path.parent) else Path("inputs")
    names = [p.name for p in folder.glob("*.toml")] if os.path.isdir(folder) else []
    return _did_you_mean(path.name, names)


def _did_you_mean(word: str, known: Iterable[str]) -> str:
    close = difflib.get_close_matches(word, list(known), n=1, cutoff=0.6)
    return f' (did you mean "{close[0]}"?)' if close else ""


def _assign(tree: dict[str, Any], assignment: str) -> None:
    """Apply one ``--set table.key=value``; the value is TOML, or else a plain string."""
    target, equals, text = assignment.partition("=")
    keys = [key.strip() for key in target.split(".")]
    if not equals or len(keys) < 2 or not all(keys):
        raise UserError(f"--set {assignment}: expected table.key=value, as in --set run.rounds=20")
    try:
        value = parse_toml(f"value = {text}")["value"]
    except ValueError:
        value = text.strip()
    table = tree
    for key in keys[:-1]:
        table = table.setdefault(key, {})
        if not isinstance(table, dict):
            raise UserError(f"--set {assignment}: {key} is not a table")
    table[keys[-1]] = value


_EXPECTED = {
    "int_type": "expected a whole number",
    "int_from_float": "expected a whole number",
    "int_parsing_size": "expected a smaller whole number",
    "float_type": "expected a number",
    "finite_number": "expected a finite number",
    "string_type": "expected a string",
    "bool_type": "expected true or false",
    "list_type": "expected a list",
    "dict_type": "expected a table",
    "model_type": "expected a table",
    "model_attributes_type": "expected a table",
    "string_too_short": "expected a string that is not empty",
    "too_short": "expected a list that is not empty",
}


def _line(detail: Any) -> str:
    """Turn one pydantic error into ``key: expected, found``."""
    kind, context, found = detail["type"], detail.get("ctx", {}), detail["input"]
    keys, table = _resolve(detail["loc"])
    where = ".".join(keys)
    if kind == "extra_forbidden":
        known = table.model_fields if table is not None else {}
        hint = _did_you_mean(keys[-1], known)
        allowed = "" if hint or not known else f"; known here: {', '.join(known)}"
        return f"{where}: unknown key{hint}{allowed}"
    if kind == "missing":
        return f"{where}: missing"
    if kind == "value_error":
        text = str(context["error"])
        return f"{where}: {text}" if where else text
    if kind == "union_tag_not_found":
        return f"{where}.{context['discriminator'].strip(chr(39))}: missing"
    if kind == "union_tag_invalid":
        name = f"{where}.{context['discriminator'].strip(chr(39))}"
        tags = [tag.strip(" '") for tag in context["expected_tags"].split(",")]
        hint = _did_you_mean(str(context["tag"]), tags)
        return f"{name}: expected one of {', '.join(tags)}, found {context['tag']!r}{hint}"
    if kind == "literal_error":
        words = [w.strip(" '") for w in context["expected"].replace(" or ", ", ").split(",")]
        hint = _did_you_mean(str(found), words)
        return f"{where}: expected {' or '.join(words)}, found {_shown(found)}{hint}"
    if kind == "too_long":
        return f"{where}: expected at most {context['max_length']:,} entries"
    bounds = {
        "greater_than": "above {gt:g}",
        "greater_than_equal": "of at least {ge:g}",
        "less_than_equal": "of at most {le}",
    }
    if kind in bounds:
        return f"{where}: expected a number {bounds[kind].format(**context)}, found {_shown(found)}"
    return f"{where}: {_EXPECTED.get(kind, detail['msg'])}, found {_shown(found)}"


def _shown(value: Any) -> str:
    text = repr(value).lower() if isinstance(value, bool) else repr(value)
    return text if len(text) <= 60 else text[:57] + "..."


def _resolve(location: tuple[Any, ...]) -> tuple[list[str], type[BaseModel] | None]:
    """Return the key's path as the user wrote it, and the table that its last key belongs to."""
    keys: list[str] = []
    tables: list[type[BaseModel]] = [Config]
    owner: type[BaseModel] | None = Config
    for item in location:
        tagged = [t for t in tables if len(tables) > 1 and tag_of(t)[1] == item]
        if tagged:  # pydantic puts the tag of a tagged union ("causal-lm") between two keys
            tables = tagged
            continue
        owner = tables[0] if len(tables) == 1 else None
        if isinstance(item, int):
            keys[-1] += f"[{item}]"
            continue
        keys.append(str(item))
        field = owner.model_fields.get(str(item)) if owner is not None else None
        tables = tables_in(field.annotation) if field is not None else []
    return keys, owner
