"""Small texts for people (durations, numbers of bytes, errors), and writing a whole text file."""

from __future__ import annotations

import os
from pathlib import Path


def duration(seconds: float) -> str:
    """Return a duration as a person says it: "45 s", "12 min", "3 h 20 min", "2 d 5 h"."""
    s = round(seconds)
    if s < 120:
        return f"{s} s"
    minutes = round(seconds / 60)
    if minutes < 120:
        return f"{minutes} min"
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min" if hours < 48 else f"{hours // 24} d {hours % 24} h"


def amount(n_bytes: float) -> str:
    """Return a number of bytes as a person says it: "45 B", "1.2 kB", "3 GB"."""
    for unit in ("B", "kB", "MB", "GB"):
        if n_bytes < 1000:
            return f"{n_bytes:.3g} {unit}"
        n_bytes /= 1000
    return f"{n_bytes:.3g} TB"


def first_line(error: BaseException) -> str:
    """Return the first line of an error's message, or its type's name where it has none."""
    # str() of a KeyError puts its message in quotation marks
    message = error.args[0] if isinstance(error, KeyError) and error.args else error
    return next((line for line in str(message).strip().splitlines()), type(error).__name__)


def write_atomically(path: Path, content: str | bytes) -> None:
    """Write a file, whole or not at all: beside it, made durable, then renamed.

    A text is written as UTF-8 (what that lacks, lone surrogates, as its code). Raises an OSError
    where the content cannot be written (a full disk); what is there already then stays.
    """
    data = content if isinstance(content, bytes) else content.encode("utf-8", "backslashreplace")
    partial = path.with_name(path.name + ".partial")
    try:
        with partial.open("wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(partial, path)
    except OSError:
        partial.unlink(missing_ok=True)
        raise
