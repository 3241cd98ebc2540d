"""Paths in the input file: which keys are paths, and how ``~`` and ``$NAME`` are expanded.

Only the user's own text (a file, ``--set``) is expanded, when it is read. A stored input holds the
expanded paths, so that a run can resume even if the variables have changed or are unset.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, MutableMapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any

from pydantic import BaseModel, Field

from omniinput_hpc.config.table import tables_in

_VARIABLE = re.compile(r"\$(?:([A-Za-z_][A-Za-z0-9_]*)|\{([^}]*)\})")
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_HOME = re.compile(r"~[^/]*")


@dataclass(frozen=True)
class IsPath:
    """Marks a key of the input file whose text is a path."""


PathText = Annotated[str, Field(min_length=1), IsPath()]
"""The type of a key that names a file or a folder."""


def expanded(text: str) -> str:
    """Return a path with ``~``, ``~user``, ``$NAME`` and ``${NAME}`` replaced.

    Raises a ValueError if a variable is unset or empty, the user unknown, or the name not
    encodable.
    """
    home = _HOME.match(text)
    if home is not None:
        found = os.path.expanduser(home[0])
        if found != home[0]:
            text = found + text[home.end() :]
        elif len(text) > home.end():  # otherwise ~name/... would name a local folder
            raise ValueError(
                f"{home[0]} has no home folder; to name a local folder, write ./{home[0]}"
            )
    return check_encoding(_VARIABLE.sub(_value_of, text))


def _value_of(found: re.Match[str]) -> str:
    name = found[1] or found[2]
    if not _NAME.fullmatch(name):
        raise ValueError(f"{found[0]} does not name an environment variable; expected ${{NAME}}")
    value = os.environ.get(name, "")
    if not value:
        state = "is empty" if name in os.environ else "is not set"
        raise ValueError(f"the environment variable {name} {state}")
    return value


def check_encoding(text: str) -> str:
    """Return a path that can be stored as UTF-8 and opened; raise a ValueError if it cannot."""
    if not text.isascii():
        try:
            text = os.fsencode(text).decode("utf-8")  # from a command line in another locale
        except UnicodeDecodeError:
            raise ValueError("the name is not UTF-8; rename the file or its folder") from None
        except UnicodeEncodeError:
            pass  # reported below
        try:
            os.fsencode(text)
        except UnicodeEncodeError:
            raise ValueError(
                "this process can only open files with ASCII names; set PYTHONUTF8=1, or a locale "
                "such as LC_ALL=C.UTF-8"
            ) from None
    return text


def places(
    tree: Any, tables: Sequence[type[BaseModel]], at: tuple[str, ...] = ()
) -> Iterator[tuple[tuple[str, ...], MutableMapping[str, Any]]]:
    """Yield the key of every path in a tree of tables, and the dictionary that holds it."""
    if isinstance(tree, list):
        for entry in tree:
            yield from places(entry, tables, at)
    if not isinstance(tree, dict):
        return
    for key, value in tree.items():
        fields = [table.model_fields[key] for table in tables if key in table.model_fields]
        if any(isinstance(mark, IsPath) for field in fields for mark in field.metadata):
            if isinstance(value, str):
                yield (*at, key), tree
            continue
        inner = [table for field in fields for table in tables_in(field.annotation)]
        if inner:
            yield from places(value, inner, (*at, key))
