"""Lines of JSON: reading with the line's number in every complaint, writing whole or not at all."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from omniinput_hpc.errors import UserError
from omniinput_hpc.text import write_atomically


def read_objects(path: Path, what: str) -> list[dict[str, Any]]:
    """Return the objects of a file of JSON lines.

    Raises
    ------
    UserError
        No such file, not UTF-8, or a line that is no whole object; ``what`` names the file's kind.
    """
    text = read_bytes(path, what)
    objects = [parse_object(line, path, n) for n, line in enumerate(text.split(b"\n"), 1) if line]
    if not objects:
        raise UserError(f"{path} is empty: it is no {what}")
    return objects


def read_bytes(path: Path, what: str) -> bytes:
    """Return a file's bytes, or raise a plain UserError."""
    try:
        return path.read_bytes()
    except FileNotFoundError:
        raise UserError(f"{path}: no such file (expected a {what})") from None
    except OSError as error:
        raise UserError(f"{path} cannot be read: {error.strerror}") from None


def parse_object(line: bytes, path: Path, number: int) -> dict[str, Any]:
    """Return one line's object, or raise a UserError that names the line."""
    try:
        value = json.loads(line)
    except (ValueError, RecursionError):
        raise UserError(f"{path}, line {number}: cut short or damaged (no whole JSON)") from None
    if not isinstance(value, dict):
        raise UserError(f"{path}, line {number}: expected an object {{...}}")
    return value


def line_of(value: dict[str, Any]) -> bytes:
    """Return an object as one ASCII line, newline included."""
    return json.dumps(value, allow_nan=False).encode("ascii") + b"\n"


def write_objects(path: Path, objects: Iterable[dict[str, Any]]) -> None:
    """Write a file of JSON lines, whole or not at all."""
    write_whole(path, b"".join(line_of(value) for value in objects))


def write_whole(path: Path, data: bytes) -> None:
    """Write a file, whole or not at all (see `omniinput_hpc.text.write_atomically`).

    Raises
    ------
    UserError
        It cannot be written: a full disk, for instance. What was there before stays.
    """
    try:
        write_atomically(path, data)
    except OSError as error:
        raise UserError(f"{path} cannot be written: {error.strerror or error}") from None


class Fields:
    """One line's object; every accessor raises a UserError that names line and field.

    Attributes
    ----------
    value : the object
    where : it stands, in words
    """

    def __init__(self, value: dict[str, Any], path: Path, number: int, where: str = "") -> None:
        self.value, self.where = value, where or f"{path}, line {number}"

    def wrong(self, name: str, expected: str) -> UserError:
        """Return the complaint about a field."""
        got = json.dumps(self.value[name])[:60] if name in self.value else "nothing"
        return UserError(f'{self.where}: "{name}" must be {expected}, got {got}')

    def text(self, name: str) -> str:
        """Return a text that is not empty."""
        value = self.value.get(name)
        if not isinstance(value, str) or not value:
            raise self.wrong(name, "a text")
        return value

    def text_or_none(self, name: str) -> str | None:
        """Return a text, None where there is none."""
        return None if self.value.get(name) is None else self.text(name)

    def number(self, name: str) -> float:
        """Return a finite number."""
        value = self.value.get(name)
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise self.wrong(name, "a number")
        if not math.isfinite(value):
            raise self.wrong(name, "a finite number")
        return float(value)

    def number_or_none(self, name: str) -> float | None:
        """Return a finite number, None where there is none."""
        return None if self.value.get(name) is None else self.number(name)

    def whole(self, name: str, lowest: int = 0) -> int:
        """Return a whole number, at least the lowest."""
        value = self.value.get(name)
        if isinstance(value, bool) or not isinstance(value, int) or value < lowest:
            raise self.wrong(name, f"a whole number >= {lowest}")
        return value

    def score_or_none(self, name: str) -> float | None:
        """Return a score in [0, 1], None where it is null."""
        value = self.number_or_none(name)
        if value is not None and not 0.0 <= value <= 1.0:
            raise self.wrong(name, "a score from 0 to 1")
        return value
