"""Write docs/input-file.md from the descriptions of the keys.

Run ``python tests/helpers/written_pages.py``; a test compares the two.
"""

from __future__ import annotations

from collections.abc import Iterator
from types import UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

import tomli_w
from pydantic import BaseModel
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

from omniinput_hpc.config import Config
from omniinput_hpc.config.table import tables_in, tag_of

HEAD = """\
# The input file

This page lists every table and key. `python tests/helpers/written_pages.py`
writes it from the program's own checks. A complete file is [inputs/toy.toml](../inputs/toy.toml);
the [glossary](glossary.md) explains the terms.

An input file is [TOML](https://toml.io): tables in brackets, with lines `key = value`. All of it is
checked before anything starts. All mistakes, including unknown keys, are listed at once, each with
its key, what was expected, and the nearest known name.

- `--set table.key=value` on the command line overrides a key, any number of times. The value is
  written as in TOML; anything else is taken as text.
- Keys without a default are required.
- In paths (`run.output`, `model.path`, `analysis.test_data`) `~`, `~user`, `$NAME` and `${NAME}`
  are expanded; an unset or empty variable is a mistake. The run file stores the expanded path.
- The resolved input is stored in the run file, which can be given instead of the input file.
- A resumed run may have larger `run.rounds`, and other `run.output`, `histogram_blocks`, `threads`,
  `device`, `writer`, `[analysis]`, and (with the same files) `path` of `[model]`, `[law]` and
  `[output]`, and `path` and `file` of `law.prompt` and `output.other`. Nothing else may change.
"""
WORDS: dict[Any, str] = {int: "whole number", float: "number", str: "text", bool: "true or false"}
LARGEST_SHOWN = 2**31 - 1
"""Larger bounds are left out: no user reaches them, and the check's message states them."""
LONG = 50
"""A longer description that another kind of the same table has too is not repeated."""
LISTED = ("observables",)
"""Tables of which there may be several."""
BOUNDS = {"ge": ">=", "gt": ">", "le": "<=", "lt": "<"}


def page() -> str:
    """Return the page as Markdown."""
    parts, shown = [HEAD], set[type[BaseModel]]()
    for name, field in Config.model_fields.items():
        tables = tables_in(field.annotation)
        title = f"[[{name}]]" if name in LISTED else f"[{name}]"
        parts.append(f"## {title}\n\n{field.description}\n")
        told: dict[str, str] = {}
        for table in tables:
            parts.append(_heading(name, table, len(tables) > 1) + _rows(table, told))
            parts.extend(_inner(name, table, shown))
        shown.update(tables)
    return "\n".join(parts)


def _inner(name: str, table: type[BaseModel], shown: set[type[BaseModel]]) -> Iterator[str]:
    """Yield the parts of a table that are tables and were not shown before."""
    for key, field in table.model_fields.items():
        several = tables_in(field.annotation)
        for inner in several if get_origin(field.annotation) is not list else []:
            if inner not in shown:
                shown.add(inner)
                tag, kind = tag_of(inner)
                of_kind = f' {tag} = "{kind}"' if tag and len(several) > 1 else ""
                yield f"#### [{name}.{key}]{of_kind}\n\n{_rows(inner, {})}"


def _heading(name: str, table: type[BaseModel], several: bool) -> str:
    """Return heading and description of one kind of a table; empty if there is only one kind."""
    if not several:
        return ""
    key, tag = tag_of(table)
    description = table.model_fields[key].description
    return f'### [{name}] {key} = "{tag}"\n\n{description}\n\n'


def _rows(table: type[BaseModel], told: dict[str, str]) -> str:
    """Return the keys as a Markdown table, without the key that the heading states.

    told : long descriptions that earlier tables of the same name gave, each with that table's kind
    """
    keys = {k: v for k, v in table.model_fields.items() if k != tag_of(table)[0]}
    if not keys:
        return "No further keys.\n"
    rows = ["| key | value | default | meaning |", "| --- | --- | --- | --- |"]
    for key, field in keys.items():
        meaning = field.description or ""
        kind = told.setdefault(meaning, tag_of(table)[1]) if len(meaning) > LONG else ""
        if kind and kind != tag_of(table)[1]:
            meaning = f'As for "{kind}".'
        cells = (f"`{key}`", _value(field), _default(field), meaning)
        rows.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")
    return "\n".join(rows) + "\n"


def _value(field: FieldInfo) -> str:
    """Return the type and the bounds of a key in words."""
    return _words(field.annotation) + _bounds(field.metadata)


def _words(annotation: Any) -> str:
    origin, parts = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        return _words(parts[0]) + _bounds(parts[1:])
    if origin is Literal:
        return ", ".join(f'`"{p}"`' if isinstance(p, str) else f"`{p}`" for p in parts)
    if origin in (Union, UnionType):
        words = (_words(part) for part in parts if part is not type(None))
        return " or ".join(dict.fromkeys(words))
    if origin is list:
        return "list of tables" if tables_in(parts[0]) else f"list ({_words(parts[0])})"
    if origin is dict or tables_in(annotation):
        return "table"
    return WORDS[annotation]


def _bounds(metadata: Any) -> str:
    # A Field inside Annotated holds its own list of bounds.
    items = [bound for item in metadata for bound in getattr(item, "metadata", [item])]
    return ",".join(
        f" {sign} {_number(getattr(item, name))}"
        for item in items
        for name, sign in BOUNDS.items()
        if hasattr(item, name) and getattr(item, name) < LARGEST_SHOWN
    )


def _number(bound: Any) -> str:
    return f"{bound:,}".removesuffix(".0")


def _default(field: FieldInfo) -> str:
    if field.is_required():
        return "required"
    value = field.get_default(call_default_factory=True)
    if value is None or value is PydanticUndefined:
        return ""
    if isinstance(value, BaseModel):
        value = value.model_dump()
    if isinstance(value, dict):
        keys = ", ".join(f"{k} = {v}" for k, v in value.items())
        return f"`{{ {keys} }}`" if value else "`{}`"
    return f"`{tomli_w.dumps({'v': value})[4:].strip()}`"
