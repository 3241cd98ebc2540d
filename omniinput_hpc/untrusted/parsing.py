"""Parsing untrusted JSON and TOML, with limits on depth, size and the length of numbers.

Without these limits, a number of 5,000 digits, 20,000 brackets or a key with 100,000 dots would end
the program with a traceback or keep it busy for hours.
"""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Iterable, Iterator
from typing import Any

MAX_DEPTH = 32
"""Maximum nesting of lists and objects (tables); our own formats need 6."""
MAX_JSON_VALUES = 1 << 23
MAX_TOML_VALUES = 50_000
MAX_TOML_BYTES = 1 << 19
"""tomllib reads this much in a few seconds; three lists of 16,384 numbers fit."""
MAX_DOTTED = 32
"""Maximum number of parts of a dotted TOML key; the parsing time grows with its square."""

_MAX_WHOLE_DIGITS, _MAX_NUMBER_LENGTH = 300, 400
_MANY_DIGITS = re.compile(r"[0-9]{300}")
_DOTTED = re.compile(
    r"""(?<![\w-])(?:(?:"[^"\n]*"|'[^'\n]*'|[\w-]++)[ \t]*+\.[ \t]*+){%d}"""  # noqa: UP031
    % MAX_DOTTED
)


def parse_json(data: bytes) -> Any:
    """Return the value of a JSON text.

    Integers may have at most 300 digits, so that they fit in a float (the `model_max_length` of
    tokenizers has 31). NaN and infinity are accepted, as by Python's json.

    Raises
    ------
    ValueError
        The text is not JSON, is nested deeper than `MAX_DEPTH`, has more than `MAX_JSON_VALUES`
        values, or contains a number that is too long.
    """
    text = data.decode(json.detect_encoding(data), "surrogatepass")
    n_brackets = text.count("[") + text.count("{")
    if n_brackets + text.count(",") > MAX_JSON_VALUES:
        raise ValueError(f"more than {MAX_JSON_VALUES:,} values")
    options: dict[str, Any] = {}
    if _MANY_DIGITS.search(text):  # these hooks are slower, so they are used only if needed
        options = {"parse_int": _whole, "parse_float": _float}
    try:
        value = json.loads(text, **options)
    except RecursionError:
        raise ValueError("nested too deeply") from None
    if n_brackets > MAX_DEPTH and depth_of(value, MAX_DEPTH) > MAX_DEPTH:
        raise ValueError("nested too deeply")
    return value


def parse_toml(text: str) -> dict[str, Any]:
    """Return the table of a TOML text.

    Raises
    ------
    ValueError
        The text is not TOML, is longer than `MAX_TOML_BYTES` characters, is nested deeper than
        `MAX_DEPTH`, has more than `MAX_TOML_VALUES` values, or contains an integer beyond 64 bits,
        which TOML does not allow.
    """
    check_toml(text)
    try:
        tree = tomllib.loads(text)
    except RecursionError:
        raise ValueError("nested too deeply") from None
    except tomllib.TOMLDecodeError:
        raise
    except ValueError:  # Python's limit on the digits of an integer
        raise ValueError("a whole number beyond 64 bits") from None
    check_tree(tree)
    return tree


def check_toml(text: str) -> None:
    """Raise a ValueError if a text exceeds the limits of `parse_toml` on what is parsed at all."""
    if len(text) > MAX_TOML_BYTES:
        raise ValueError(f"longer than {MAX_TOML_BYTES:,} characters")
    if text.count(",") > MAX_TOML_VALUES:
        raise ValueError(f"more than {MAX_TOML_VALUES:,} values")
    if _DOTTED.search(text):
        raise ValueError("nested too deeply")


def check_tree(tree: Any) -> None:
    """Raise a ValueError if a parsed value exceeds the limits of `parse_toml`."""
    if depth_of(tree, MAX_DEPTH) > MAX_DEPTH:
        raise ValueError("nested too deeply")
    for n, (key, value) in enumerate(leaves(tree)):
        if n >= MAX_TOML_VALUES:
            raise ValueError(f"more than {MAX_TOML_VALUES:,} values")
        if isinstance(value, int) and not -(2**63) <= value < 2**63:
            raise ValueError(f"{key}: a whole number beyond 64 bits")


def depth_of(value: Any, most: int) -> int:
    """Return the nesting depth of lists and objects, or `most` + 1 if it is larger than `most`."""
    depth, level = 0, [value] if isinstance(value, dict | list) else []
    while level and depth <= most:
        depth += 1
        level = [v for one in level for v in _children(one) if isinstance(v, dict | list)]
    return depth


def leaves(value: Any) -> Iterator[tuple[str, Any]]:
    """Yield the path ("a.b[3]") and the value of each leaf, which is neither list nor object."""
    stack = [("", value)]
    while stack:
        name, one = stack.pop()
        if isinstance(one, dict):
            stack += [(f"{name}.{key}" if name else str(key), v) for key, v in one.items()]
        elif isinstance(one, list):
            stack += [(f"{name}[{i}]", v) for i, v in enumerate(one)]
        else:
            yield name, one


def _children(value: dict[str, Any] | list[Any]) -> Iterable[Any]:
    return value.values() if isinstance(value, dict) else value


def _whole(text: str) -> int:
    if len(text.lstrip("-")) > _MAX_WHOLE_DIGITS:
        raise ValueError(f"a whole number of more than {_MAX_WHOLE_DIGITS} digits")
    return int(text)


def _float(text: str) -> float:
    if len(text) > _MAX_NUMBER_LENGTH:
        raise ValueError(f"a number of more than {_MAX_NUMBER_LENGTH} characters")
    return float(text)
