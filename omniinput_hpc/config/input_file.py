"""Read the input file, and report all mistakes at once, each with its key and what was expected."""

from __future__ import annotations

import difflib
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ValidationError

from omniinput_hpc.config import Config, paths
from omniinput_hpc.config.table import tables_in, tag_of
from omniinput_hpc.errors import UserError
from omniinput_hpc.untrusted.files import read_text
from omniinput_hpc.untrusted.parsing import MAX_TOML_BYTES, check_tree, parse_toml

MAX_LINES = 30
"""Largest number of mistakes that are listed."""
RUN_OUTPUT = ("run", "output")


def load(path: Path, assignments: Sequence[str] = ()) -> Config:
    """Read and check an input file; `assignments` are ``table.key=value``, applied in order.

    Raises a UserError if the file is missing or is not TOML, or if keys are unknown or wrong (the
    first `MAX_LINES` are listed).
    """
    if os.path.isdir(path):
        raise UserError(f"{path} is a directory; give an input file (.toml)")
    try:
        os.stat(path)
    except (FileNotFoundError, NotADirectoryError):
        raise UserError(f"{path}: no such input file{_nearby(path)}") from None
    except (OSError, ValueError):
        pass  # `read_text` reports why it cannot be read
    text = read_text(path, "input file (.toml)", MAX_TOML_BYTES)
    return checked(_read(text, str(path)), str(path), assignments, stored=False)


def parse(
    text: str, source: str, assignments: Sequence[str] = (), here: Path | None = None
) -> Config:
    """Check the text of an input that this program wrote: see `checked`."""
    return checked(_read(text, source), source, assignments, here=here)


def _read(text: str, source: str) -> dict[str, Any]:
    try:
        return parse_toml(text)
    except ValueError as error:
        raise UserError(f"{source}: not valid TOML: {error}") from None


def checked(
    tree: dict[str, Any],
    source: str,
    assignments: Sequence[str] = (),
    stored: bool = True,
    here: Path | None = None,
) -> Config:
    """Return the checked input with these tables, which `assignments` change in place.

    With `stored`, this program wrote the tables, for instance to a run file: their paths are not
    expanded; those in `assignments` are. `source` names the tables in messages. `here` is the
    current path of the run file that holds them, and replaces ``run.output``. See also `load`.
    """
    given = list(map(_assignment, assignments))
    wrong: dict[tuple[str, ...], str] = {}  # the problem of a path, by its key
    if here is not None:
        tree.setdefault("run", {})["output"] = str(here)
        wrong |= _changed_paths(tree, paths.check_encoding, lambda keys: keys != RUN_OUTPUT)
    if not stored:
        replaced = [keys for keys, _ in given]
        wrong |= _changed_paths(
            tree, paths.expanded, lambda keys: any(keys[: len(r)] == r for r in replaced)
        )
    for keys, value in given:
        part = _nested(keys, value)
        found = _changed_paths(part, paths.expanded)
        wrong = {k: words for k, words in wrong.items() if k[: len(keys)] != keys} | found
        _put(tree, keys, part)
    try:
        check_tree(tree)
    except ValueError as error:
        raise UserError(f"--set: {error}") from None
    lines = [f"{'.'.join(keys)}: {words}" for keys, words in wrong.items()]
    try:
        config = Config.model_validate(tree)
        if not lines:
            return config
    except ValidationError as error:
        known = tuple(f"{'.'.join(keys)}: " for keys in wrong)
        others = map(_line, error.errors(include_url=False))
        lines += [line for line in others if not line.startswith(known)]
    n = len(lines)
    count = "1 mistake" if n == 1 else f"{n} mistakes"
    shown = [f"  {line}" for line in lines[:MAX_LINES]]
    shown += [f"  and {n - MAX_LINES} more"] if n > MAX_LINES else []
    raise UserError("\n".join([f"{source}: {count} to correct", *shown]))


def _changed_paths(
    tree: dict[str, Any],
    change: Callable[[str], str],
    but: Callable[[tuple[str, ...]], bool] = lambda keys: False,
) -> dict[tuple[str, ...], str]:
    """Change the paths of a tree in place, unless `but` is true; return the problems by key."""
    wrong = {}
    for keys, table in paths.places(tree, [Config]):
        if but(keys):
            continue
        try:
            table[keys[-1]] = change(table[keys[-1]])
        except ValueError as error:
            wrong[keys] = f"{error} (in {_shown(table[keys[-1]])})"
    return wrong


def _nearby(path: Path) -> str:
    folder = path.parent if os.path.isdir(path.parent) else Path("inputs")
    names = [p.name for p in folder.glob("*.toml")] if os.path.isdir(folder) else []
    return did_you_mean(path.name, names)


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """Return a hint at the known word that is nearest to another one; "" if none is near."""
    close = difflib.get_close_matches(word, list(known), n=1, cutoff=0.6)
    return f' (did you mean "{close[0]}"?)' if close else ""


def _assignment(text: str) -> tuple[tuple[str, ...], Any]:
    """Parse ``table.key=value``; a value that is not TOML is a plain string."""
    target, equals, value = text.partition("=")
    keys = tuple(key.strip() for key in target.split("."))
    if not equals or len(keys) < 2 or not all(keys):
        raise UserError(f"--set {text}: expected table.key=value, as in --set run.rounds=20")
    try:
        return keys, parse_toml(f"value = {value}")["value"]
    except ValueError:
        if value != value.strip():
            raise UserError(
                f"--set {text}: quote a text that begins or ends with blanks: --set "
                f"'{target.strip()}=\"{value}\"'"
            ) from None
        return keys, value


def _nested(keys: Sequence[str], value: Any) -> dict[str, Any]:
    """Return nested tables that hold one value."""
    for key in reversed(keys):
        value = {key: value}
    return dict(value)


def _put(tree: dict[str, Any], keys: Sequence[str], part: Mapping[str, Any]) -> None:
    """Copy the value at `keys` from the nested tables `part` to the same place of a tree."""
    for key in keys[:-1]:
        tree, part = tree.setdefault(key, {}), part[key]
        if not isinstance(tree, dict):
            raise UserError(f"--set {'.'.join(keys)}: {key} is not a table")
    tree[keys[-1]] = part[keys[-1]]


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
        hint = did_you_mean(keys[-1], known)
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
        hint = did_you_mean(str(context["tag"]), tags)
        return f"{name}: expected one of {', '.join(tags)}, found {context['tag']!r}{hint}"
    if kind == "literal_error":
        words = [w.strip(" '") for w in context["expected"].replace(" or ", ", ").split(",")]
        hint = did_you_mean(str(found), words)
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
