"""FASTA files: sequences of letters, each after a header line that begins with ">"."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from omniinput_hpc.errors import UserError
from omniinput_hpc.untrusted.files import read_text

ENDINGS = (".fasta", ".fa", ".faa", ".fna", ".afa")


def read(path: Path, what: str, limit: int) -> tuple[list[str], list[str]]:
    """Return the headers, without ">", and the sequences of a file; `limit` is in bytes.

    Lines of a sequence are joined. Letters are read as upper case (lower case marks masked
    residues), and a stop (``*``) at the end is left out. Raises a `UserError` if the file cannot be
    read, does not begin with a header, or has a header without a sequence.
    """
    headers: list[str] = []
    parts: list[list[str]] = []
    for number, line in enumerate(read_text(path, what, limit).split("\n"), 1):
        if line.startswith(">"):
            headers.append(line[1:].strip())
            parts.append([])
        elif parts:
            parts[-1] += line.split()
        elif line.strip():
            raise UserError(
                f'{path}, line {number}: expected a FASTA header, which begins with ">"'
            )
    sequences = ["".join(lines).upper().removesuffix("*") for lines in parts]
    empty = next((h for h, s in zip(headers, sequences, strict=True) if not s), None)
    if empty is not None:
        raise UserError(f"{path}: the sequence {empty[:40]!r} is empty")
    return headers, sequences


def text_of(headers: Iterable[str], sequences: Iterable[str]) -> str:
    """Return the text of a FASTA file, a line per sequence."""
    pairs = zip(headers, sequences, strict=True)
    return "".join(f">{header}\n{sequence}\n" for header, sequence in pairs)
