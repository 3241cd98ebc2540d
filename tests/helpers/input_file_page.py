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

Every table and key, written from the program's own checks by
`python tests/helpers/written_pages.py`. A complete file is [inputs/toy.toml](../inputs/toy.toml);
the [glossary](glossary.md) explains the terms.

An input file is [TOML](https://toml.io): tables in brackets, with lines `key = value`. All of it is
checked before anything starts. Unknown keys are mistakes.

- `--set table.key=value` on the command line overrides a key, any number of times. The value is
  written as in TOML; anything else is taken as text.
- A `"module:function"` may be in the current directory.
- In paths (`run.output`, `model.path`, `analysis.test_data`) `~`, `~user`, `$NAME` and `${NAME}`
  are expanded. An unset or empty variable is a mistake.
- The run file stores the resolved input, with expanded paths, and can be given instead of the input
  file.
- A resumed run may have larger `run.rounds`, and other `run.output`, `histogram_blocks`, `threads`,
  `device`, `writer`, `[analysis]`, and (with the same files) `path` of `[model]`, `[law]` and
  `[output]`, and `path` and `file` of `law.prompt` and `output.other`. Nothing else may change.
"""
WORDS: dict[Any, str] = {int: "integer", float: "number", str: "text", bool: "true or false"}
LARGEST_SHOWN = 2**31 - 1
"""Larger bounds are left out: no user reaches them, and the check's message states them."""
LISTED = ("observables",)
"""Tables of which there may be several."""
BOUNDS = {"ge": ">=", "gt": ">", "le": "<=", "lt": "<"}


def page() -> str:
    """Return the page as Markdown."""
    parts, shown = [HEAD], list[type[BaseModel]]()
    for name, field in Config.model_fields.items():
        tables = tables_in(field.annotation)
        title = f"[[{name}]]" if name in LISTED else f"[{name}]"
        parts.append(f"## {title}\n\n{field.description}\n")
        parts.extend(_kinds(name, "###", tables, shown))
        shown += tables
    return "\n".join(parts)


def _kinds(
    name: str, level: str, tables: list[type[BaseModel]], shown: list[type[BaseModel]]
) -> Iterator[str]:
    """Yield the kinds of a table, each with the tables inside it that were not shown before."""
    told: dict[str, str] = {}
    for table in tables:
        yield _heading(name, level, table, len(tables) > 1) + _keys(table, told)
        for key, field in table.model_fields.items():
            listed = get_origin(field.annotation) is list
            inner = [] if listed else [t for t in tables_in(field.annotation) if _is_new(t, shown)]
            shown += inner
            if inner:
                if len(inner) == 1:
                    yield f"{level}# [{name}.{key}]\n"
                yield from _kinds(f"{name}.{key}", f"{level}#", inner, shown)


def _is_new(table: type[BaseModel], shown: list[type[BaseModel]]) -> bool:
    """Whether no table that was shown has all keys of this one."""
    return not any(issubclass(one, table) for one in shown)


def _heading(name: str, level: str, table: type[BaseModel], several: bool) -> str:
    """Return heading and description of one kind of a table; empty if there is only one kind."""
    if not several:
        return ""
    key, tag = tag_of(table)
    description = table.model_fields[key].description
    return f'{level} [{name}] {key} = "{tag}"\n\n{description}\n\n'


def _keys(table: type[BaseModel], told: dict[str, str]) -> str:
    """Return the keys as a Markdown list, without the key that the heading states.

    told : what was listed of earlier tables of the same name, each with that table's kind
    """
    tag, kind = tag_of(table)
    lines, alike = list[str](), dict[str, list[str]]()
    for key, field in table.model_fields.items():
        if key != tag:
            line = f"- `{key}` ({_value(field)}): {field.description}"
            first = told.setdefault(line, kind)
            if first == kind:
                lines.append(line)
            else:
                alike.setdefault(first, []).append(f"`{key}`")
    lines += [f'- As for "{first}": {", ".join(keys)}.' for first, keys in alike.items()]
    return "\n".join(lines or ["No further keys."]) + "\n"


def _value(field: FieldInfo) -> str:
    """Return the type, the bounds and the default of a key in words."""
    words, default = _words(field.annotation) + _bounds(field.metadata), _default(field)
    if field.is_required():
        return f"{words}; required"
    if get_origin(field.annotation) is Literal and default in words:
        return words.replace(default, f"{default} (default)")
    return f"{words}; default {default}" if default else words


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
    value = field.get_default(call_default_factory=True)
    if value is None or value is PydanticUndefined:
        return ""
    if isinstance(value, BaseModel):
        value = value.model_dump()
    if isinstance(value, dict):
        keys = ", ".join(f"{k} = {v}" for k, v in value.items())
        return f"`{{ {keys} }}`" if value else "`{}`"
    return f"`{tomli_w.dumps({'v': value})[4:].strip()}`"
