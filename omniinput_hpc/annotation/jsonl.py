"""JSON lines: read within limits, checked by pydantic, written atomically.

A record is a frozen dataclass whose fields have the types below; `checked` makes one from a parsed
object. Every problem is a UserError of one sentence that names the file, the line and the key.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import Annotated, Any, TypeVar

from pydantic import AfterValidator, Field, TypeAdapter, ValidationError, WrapValidator
from pydantic_core import PydanticCustomError

from omniinput_hpc.errors import UserError
from omniinput_hpc.text import write_atomically
from omniinput_hpc.untrusted import files
from omniinput_hpc.untrusted.parsing import parse_json

MAX_FILE_BYTES = 2**28
MAX_FILE_LINES = 2**20

Record = TypeVar("Record")


def expected(words: str) -> WrapValidator:
    """Return the annotation that makes a field's message ``"key" must be WORDS``."""

    def validate(value: Any, handler: Any) -> Any:
        try:
            return handler(value)
        except ValidationError:
            raise PydanticCustomError("expected", words) from None

    return WrapValidator(validate)


def _ordered(ends: tuple[float, float]) -> tuple[float, float]:
    if not ends[0] < ends[1]:
        raise ValueError
    return ends


Text = Annotated[str, Field(strict=True, min_length=1), expected("a text that is not empty")]
AnyText = Annotated[str, Field(strict=True), expected("a text")]
Flag = Annotated[bool, Field(strict=True), expected("true or false")]
Whole = Annotated[int, Field(strict=True, ge=0, lt=2**63), expected("a whole number >= 0")]
Wholes = Annotated[
    list[Annotated[int, Field(strict=True, ge=0, lt=2**63)]],
    Field(strict=True),
    expected("a list of whole numbers >= 0"),
]
Finite = Annotated[float, Field(strict=True, allow_inf_nan=False), expected("a finite number")]
Positive = Annotated[
    float, Field(strict=True, allow_inf_nan=False, gt=0), expected("a finite number > 0")
]
NonNegative = Annotated[
    float, Field(strict=True, allow_inf_nan=False, ge=0), expected("a finite number >= 0")
]
UnitScore = Annotated[
    float, Field(strict=True, allow_inf_nan=False, ge=0, le=1), expected("a score from 0 to 1")
]
Range = Annotated[
    tuple[Finite, Finite], AfterValidator(_ordered), expected("[lowest, highest], two numbers")
]


_SHAPES = {"dataclass_type": "an object {...}", "list_type": "a list"}


@cache
def _adapter(kind: Any) -> TypeAdapter[Any]:
    return TypeAdapter(kind)


def checked(kind: type[Record], value: Any, where: str) -> Record:
    """Return a record of the dataclass `kind`, made from a parsed JSON object.

    Unknown keys are ignored. A missing key or an invalid value raises a UserError that begins with
    `where`, the object's place: ``FILE, line 3``.
    """
    try:
        record: Record = _adapter(kind).validate_python(value)  # type: ignore[arg-type]
        return record
    except ValidationError as error:
        problem = error.errors(include_url=False, include_context=False)[0]
    name = ".".join(map(str, problem["loc"]))
    if not name:
        raise UserError(f"{where}: expected an object {{...}} with plain texts as keys")
    if problem["type"] == "missing":
        raise UserError(f'{where}: "{name}" is missing')
    words = problem["msg"] if problem["type"] == "expected" else _SHAPES[problem["type"]]
    raise UserError(f'{where}: "{name}" must be {words}, got {json.dumps(problem["input"])[:60]}')


def read_objects(path: Path, what: str) -> list[tuple[str, dict[str, Any]]]:
    """Return the objects of a file of JSON lines, each with its place: ``FILE, line 3``.

    Raises a UserError if the file is missing, empty or too large, or if a line is not a whole JSON
    object; ``what`` names the kind of file.
    """
    text = files.read_text(path, what, MAX_FILE_BYTES)
    if text.count("\n") > MAX_FILE_LINES:
        raise UserError(f"{path} has more than {MAX_FILE_LINES:,} lines, too many for a {what}")
    lines = enumerate(text.split("\n"), 1)
    places = [(f"{path}, line {n}", line) for n, line in lines if line.strip()]
    if not places:
        raise UserError(f"{path} is empty; expected a {what}")
    where, first = places[0]
    if not first.lstrip().startswith("{"):
        raise UserError(f"{where}: expected a {what}: an object {{...}} on each line")
    return [(where, parse_object(line.encode(), where)) for where, line in places]


def read_bytes(path: Path, what: str) -> bytes:
    """Return a regular file's bytes; a UserError for anything else or above `MAX_FILE_BYTES`."""
    data = files.read_bytes(path, what, MAX_FILE_BYTES)
    if data.startswith(b"\x89HDF"):
        raise UserError(f"{path} is a run file; expected a {what}")
    return data


def parse_object(line: bytes, where: str) -> dict[str, Any]:
    """Return one line's object, or raise a UserError that names the line."""
    try:
        value = parse_json(line)
    except ValueError as error:
        known = isinstance(error, json.JSONDecodeError | UnicodeDecodeError)
        reason = "not complete JSON" if known else error
        raise UserError(f"{where}: cut short or damaged ({reason})") from None
    if not isinstance(value, dict):
        raise UserError(f"{where}: expected an object {{...}}")
    return value


def line_of(value: dict[str, Any]) -> bytes:
    """Return an object as one ASCII line, newline included."""
    return json.dumps(value, allow_nan=False).encode("ascii") + b"\n"


def write_objects(path: Path, objects: Iterable[dict[str, Any]], mode: int = 0o666) -> None:
    """Write a file of JSON lines atomically (see `write_whole`)."""
    write_whole(path, b"".join(line_of(value) for value in objects), mode)


def write_whole(path: Path, data: bytes, mode: int = 0o666) -> None:
    """Write a file atomically (see `omniinput_hpc.text.write_atomically`).

    Raises
    ------
    UserError
        It cannot be written, for instance on a full disk. An existing file stays as it was.
    """
    try:
        write_atomically(path, data, mode=mode)
    except OSError as error:
        raise UserError(f"{path} cannot be written: {error.strerror or error}") from None
