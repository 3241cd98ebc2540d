"""A small English language model, trained on the text that comes with every Python.

The text is `pydoc_data.topics` (the language reference as pydoc shows it) and the docstrings of the
standard library, cut into paragraphs of prose. This module reads it and needs the standard library
alone. ``python -m omniinput_hpc.zoo.english`` trains the tokenizer and the model (see
`english_training`, which needs torch).
"""

from __future__ import annotations

import ast
import random
import sysconfig
from collections.abc import Iterator
from pathlib import Path

# Not in every installation (Debian packs them apart), or not written for people to read.
LEFT_OUT = {
    "dist-packages", "ensurepip", "idlelib", "lib2to3", "pydoc_data", "site-packages", "test",
    "tests", "turtledemo",
}  # fmt: skip
LEAST_CHARACTERS = 40
LEAST_SHARE_OF_LETTERS = 0.85
CODE_MARKS = (">>>", "...   ", "::=", "===", "---", "+--")


def paragraphs() -> list[str]:
    """Return the distinct paragraphs of prose, in a fixed order, each on one line."""
    found: dict[str, None] = {}
    for text in _texts():
        for block in text.split("\n\n"):
            line = " ".join(block.split())
            if _is_prose(block, line):
                found.setdefault(line)
    return list(found)


def split(every: list[str], held_out: float, seed: int) -> tuple[list[str], list[str]]:
    """Return the paragraphs to train on and those held out, a share `held_out` of them."""
    shuffled = list(every)
    random.Random(seed).shuffle(shuffled)
    n = round(held_out * len(shuffled))
    return shuffled[n:], shuffled[:n]


def _texts() -> Iterator[str]:
    from pydoc_data.topics import topics

    for name in sorted(topics):
        yield topics[name]
    root = Path(sysconfig.get_path("stdlib"))
    for file in sorted(root.rglob("*.py")):
        if LEFT_OUT.isdisjoint(file.relative_to(root).parts):
            yield from _docstrings(file.read_bytes())


def _docstrings(source: bytes) -> Iterator[str]:
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            text = ast.get_docstring(node)
            if text:
                yield text


def _is_prose(block: str, line: str) -> bool:
    if len(line) < LEAST_CHARACTERS or any(mark in block for mark in CODE_MARKS):
        return False
    letters = sum(c.isalpha() or c == " " for c in line)
    return letters >= LEAST_SHARE_OF_LETTERS * len(line)


if __name__ == "__main__":
    from omniinput_hpc.zoo.english_training import main

    raise SystemExit(main())
