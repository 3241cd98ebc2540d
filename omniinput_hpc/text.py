"""Format durations, sizes, numbers, errors and CSV cells for people; write a file atomically."""

from __future__ import annotations

import io
import math
import os
import re
import shlex
import sys
from dataclasses import dataclass
from pathlib import Path

__version__ = "0.1.0"
"""The package's version, here so that files can state it without importing the Python interface."""

_FORMULA = (
    "[=+\\-@\t\r\N{FULLWIDTH EQUALS SIGN}\N{FULLWIDTH PLUS SIGN}\N{FULLWIDTH HYPHEN-MINUS}"
    "\N{FULLWIDTH COMMERCIAL AT}]"
)
LN10 = math.log(10.0)

_RUNS = re.compile(rf"'*{_FORMULA}")
_NUMBER = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?")


@dataclass(frozen=True)
class MeasureWords:
    """The words for what exp(log_g) is, so that a result is described in the right ones.

    Attributes
    ----------
    number : of some inputs
    amount : of the inputs of a bin; `share` if the density is relative
    things : what is summed
    whole, lie, have : what the whole space holds, and the verbs that follow it
    of, within : what follows a number: "10^3{within} right inputs"
    """

    number: str
    amount: str
    share: str
    things: str
    whole: str
    lie: str
    have: str
    of: str
    within: str

    def per_bin(self, absolute: bool) -> str:
        """Return the words for a density: `amount`, or `share` if it is relative."""
        return self.amount if absolute else self.share


WORDS_OF = {
    "count": MeasureWords(
        "number", "number of inputs", "share of inputs", "inputs", "all inputs", "lie",
        "have an output", "", "",
    ),
    "probability": MeasureWords(
        "probability", "probability", "share of probability", "probability", "all probability",
        "lies", "is at outputs", " of probability", " of probability in",
    ),
}  # fmt: skip
"""The words for each measure: the number of inputs, or their probability under a law."""


def duration(seconds: float) -> str:
    """Return a duration in readable units: "45 s", "12 min", "3 h 20 min", "2 d 5 h"."""
    s = round(seconds)
    if s < 120:
        return f"{s} s"
    minutes = round(seconds / 60)
    if minutes < 120:
        return f"{minutes} min"
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min" if hours < 48 else f"{hours // 24} d {hours % 24} h"


def amount(n_bytes: float) -> str:
    """Return a number of bytes in readable units: "45 B", "1.2 kB", "3 GB"."""
    for unit in ("B", "kB", "MB", "GB"):
        if n_bytes < 1000:
            return f"{n_bytes:.3g} {unit}"
        n_bytes /= 1000
    return f"{n_bytes:.3g} TB"


def counted(number: int, thing: str) -> str:
    """Return a number of things: "1 empty row", "2 empty rows"."""
    return f"{number:,} {thing}{'' if number == 1 else 's'}"


def shown(value: float, form: str, unknown: str = "not known") -> str:
    """Format a number; return `unknown` if it is NaN or infinite."""
    return format(float(value), form) if math.isfinite(value) else unknown


def interval(low: float, high: float, form: str, unknown: str = "interval not known") -> str:
    """Format the ends of an interval; return `unknown` if neither end is finite."""
    if not (math.isfinite(low) or math.isfinite(high)):
        return unknown
    return f"{shown(low, form)} to {shown(high, form)}"


def decimals(low: float, high: float) -> int:
    """Return the decimals for a number with these ends of its interval: two, more if needed (to 6).

    They tell the ends from each other, and from 0 and 1 unless they are just that.
    """
    ends = [end for end in (low, high) if math.isfinite(end)]
    for digits in range(2, 6):
        near = [round(end, digits) for end in ends]
        sharp = all(a == b or a not in (0.0, 1.0) for a, b in zip(near, ends, strict=True))
        if sharp and (low == high or len(set(near)) == len(near)):
            return digits
    return 6


def tens(log_n: float, ends: tuple[float, float] = (math.nan, math.nan), digits: int = 2) -> str:
    """Format a number, given by its ln, for people: "798", "111,562", "0.0123", "10^6.94".

    It is a power of ten if it or an end of its interval, `ends`, is below 10^-3, or 10^6 or more,
    with `digits` decimals, or as many as tell the number from its ends.
    """
    if not math.isfinite(log_n):
        return "0" if log_n == -math.inf else "an unknown number"
    powers = [log / LN10 for log in (log_n, *ends) if math.isfinite(log)]
    if min(powers) < -3 or max(powers) >= 6:
        apart = (ends[1] - ends[0]) / LN10
        told = min(6, math.ceil(math.log10(3 / apart))) if 0 < apart < math.inf else 0
        return f"10^{powers[0]:.{max(digits, told)}f}"
    n = math.exp(log_n)
    return f"{n:,.0f}" if n >= 100 else f"{n:.3g}"


def tens_interval(low: float, high: float) -> str:
    """Format the ends of a number's interval, given by their ln, as `tens` does."""
    if not (math.isfinite(low) or math.isfinite(high)):
        return "interval not known"
    return f"{tens(low, (low, high))} to {tens(high, (low, high))}"


def range_words(ends: tuple[float, float], power: str = "10^") -> str:
    """Format a range of ln as powers of ten, rounded inwards so that it can be requested."""
    if not (math.isfinite(ends[0]) and math.isfinite(ends[1])):
        return "an unknown range"
    near = 1e-9  # keep numbers that are already round unchanged
    for digits in range(2, 7):
        low = math.ceil(ends[0] / LN10 * 10**digits - near) / 10**digits
        high = math.floor(ends[1] / LN10 * 10**digits + near) / 10**digits
        if low < high:
            break
    return f"{power}{low:.{digits}f} to {power}{high:.{digits}f}"


def first_line(error: BaseException) -> str:
    """Return the first line of an error's message, or the name of its type if it has none."""
    # str() of a KeyError puts its message in quotation marks
    message = error.args[0] if isinstance(error, KeyError) and error.args else error
    return next((line for line in str(message).strip().splitlines()), type(error).__name__)


def sentence(words: str) -> str:
    """Return words as a sentence, with a capital letter and a full stop."""
    return words[:1].upper() + words[1:] + "."


def printable(text: str) -> str:
    """Return a text with characters that a terminal would act on (escapes, line ends) escaped."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def shown_path(path: object) -> str:
    """Return a path as it can be typed in a command: quoted if a shell needs it.

    A path that begins with a dash gets ``./`` in front, since it would be taken for an option.
    """
    text = str(path)
    return shlex.quote(f"./{text}" if text.startswith("-") else text)


def safe_cell(text: str) -> str:
    """Return a text cell of a CSV file that no spreadsheet executes; `read_cell` reverses this.

    A text that begins like a formula (=, +, -, @), also behind apostrophes, gets an apostrophe in
    front. Numbers are unchanged.
    """
    return f"'{text}" if _RUNS.match(text) and not _NUMBER.fullmatch(text) else text


def read_cell(text: str) -> str:
    """Return the text from which `safe_cell` made a cell."""
    return text[1:] if text.startswith("'") and _RUNS.match(text) else text


def print_any_text() -> None:
    """Let this process print any text; characters that its terminal lacks appear as escapes.

    Names and texts of models hold any character, and the terminal of a job may be ASCII only.
    """
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def write_atomically(path: Path, *content: str | bytes | memoryview, mode: int = 0o666) -> None:
    """Write a file completely or not at all: under another name, fsynced, then renamed.

    Its parts follow each other. Text is written as UTF-8, with lone surrogates as escapes. `mode`
    are the permissions of the new file, before the umask. Raises an OSError if the content cannot
    be written (a full disk); an existing file then stays unchanged.
    """
    parts = [
        part.encode("utf-8", "backslashreplace") if isinstance(part, str) else part
        for part in content
    ]
    partial = path.with_name(path.name + ".partial")
    try:
        partial.unlink(missing_ok=True)  # left by a killed process; its permissions may differ
        descriptor = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode)
        with os.fdopen(descriptor, "wb") as file:
            for data in parts:
                file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(partial, path)
    except OSError:
        partial.unlink(missing_ok=True)
        raise


def sync(path: Path) -> None:
    """Sync a file or folder to the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
