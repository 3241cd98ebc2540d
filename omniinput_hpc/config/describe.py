"""The page about the input file, from the descriptions of its keys.

``python -m omniinput_hpc.config.describe docs/input-file.md`` writes it; a test compares the two.
"""

from __future__ import annotations

import sys
from pathlib import Path
from types import UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

import annotated_types
import tomli_w
from pydantic import BaseModel
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

from omniinput_hpc.config import Config

HEAD = """\
# The input file

Every table and key that an input file may have. The page is written by
`python -m omniinput_hpc.config.describe docs/input-file.md` from the program's own checks.

An input file is [TOML](https://toml.io): tables in brackets, and in each of them lines
`key = value`. All of it is checked before anything starts; all mistakes are listed at once, each
with its key, what was expected, and the nearest known name. An unknown key is a mistake.

- `--set table.key=value` on the command line overrides a key; it may be given several times. The
  value is written as in TOML; what is no TOML value is taken as a text.
- Keys without a default are required.
- The resolved input is stored in the run file, which can be given in place of the input file.
- To go on with a run, `run.rounds` may be raised, and `run.output`, `threads`, `device`, `writer`,
  `model.path` (the files must be the same) and all of `[analysis]` may change. Nothing else may.

New words are explained in the [glossary](glossary.md); a complete file is
[inputs/toy.toml](../inputs/toy.toml).
"""
WORDS: dict[Any, str] = {int: "whole number", float: "number", str: "text", bool: "true or false"}


def page() -> str:
    """Return the page, Markdown."""
    parts = [HEAD]
    for name, field in Config.model_fields.items():
        tables = _tables(field.annotation)
        parts.append(f"## [{name}]\n\n{field.description}\n")
        for table in tables:
            parts.append(_heading(name, table, len(tables) > 1) + _rows(table))
            parts.extend(
                f"#### [{name}.{key}]\n\n{_rows(inner)}"
                for key, value in table.model_fields.items()
                for inner in _tables(value.annotation)
                if get_origin(value.annotation) is not list
            )
    return "\n".join(parts)


def _heading(name: str, table: type[BaseModel], several: bool) -> str:
    """Return the heading of one of a table's kinds, and what it is; nothing of the only one."""
    if not several:
        return ""
    key, tag = _tag(table)
    description = table.model_fields[key].description
    return f'### [{name}] {key} = "{tag}"\n\n{description}\n\n'


def _rows(table: type[BaseModel]) -> str:
    """Return the Markdown table of a table's keys; its kind's own key stands in the heading."""
    keys = {k: v for k, v in table.model_fields.items() if k != _tag(table)[0]}
    if not keys:
        return "It has no further keys.\n"
    rows = ["| key | value | default | meaning |", "| --- | --- | --- | --- |"]
    for key, field in keys.items():
        cells = (f"`{key}`", _value(field), _default(field), field.description or "")
        rows.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")
    return "\n".join(rows) + "\n"


def _tag(table: type[BaseModel]) -> tuple[str, str]:
    """Return the key that tells a table from its like and its value there, or two empty texts."""
    for key in ("kind", "name"):
        if key in table.model_fields:
            return key, str(get_args(table.model_fields[key].annotation)[0])
    return "", ""


def _tables(annotation: Any) -> list[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return [annotation]
    return [table for part in get_args(annotation) for table in _tables(part)]


def _value(field: FieldInfo) -> str:
    """Return what a key takes, in words: its type and bounds."""
    return _words(field.annotation) + _bounds(field.metadata)


def _words(annotation: Any) -> str:
    origin, parts = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        return _words(parts[0]) + _bounds(parts[1:])
    if origin is Literal:
        return ", ".join(f'`"{p}"`' if isinstance(p, str) else f"`{p}`" for p in parts)
    if origin in (Union, UnionType):
        return " or ".join(_words(part) for part in parts if part is not type(None))
    if origin is list:
        return "list of tables" if _tables(parts[0]) else f"list ({_words(parts[0])})"
    if origin is dict or _tables(annotation):
        return "table"
    return WORDS[annotation]


def _bounds(metadata: Any) -> str:
    found = []
    for item in metadata:
        kinds = getattr(item, "metadata", [item])  # a Field inside Annotated has its own list
        for bound in kinds:
            if isinstance(bound, annotated_types.Ge):
                found.append(f" >= {_number(bound.ge)}")
            elif isinstance(bound, annotated_types.Gt):
                found.append(f" > {_number(bound.gt)}")
            elif isinstance(bound, annotated_types.Le):
                found.append(f" <= {_number(bound.le)}")
            elif isinstance(bound, annotated_types.Lt):
                found.append(f" < {_number(bound.lt)}")
    return ",".join(found)


def _number(bound: Any) -> str:
    return f"{bound:,}".removesuffix(".0")


def _default(field: FieldInfo) -> str:
    if field.is_required():
        return "required"
    value = field.get_default(call_default_factory=True)
    if value is None or value is PydanticUndefined:
        return "none"
    if isinstance(value, BaseModel):
        value = value.model_dump()
    if isinstance(value, dict):
        return (
            "`{ " + ", ".join(f"{k} = {v}" for k, v in value.items()) + " }`" if value else "`{}`"
        )
    return f"`{tomli_w.dumps({'v': value})[4:].strip()}`"


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(page(), encoding="utf-8") if sys.argv[1:] else print(page())
