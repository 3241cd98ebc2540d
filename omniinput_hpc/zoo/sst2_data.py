"""Reading SST-2 from a local folder: GLUE's train.tsv and dev.tsv. Nothing is downloaded."""

from __future__ import annotations

import csv
from pathlib import Path

from omniinput_hpc.errors import UserError

PARTS = {"train": "train.tsv", "test": "dev.tsv"}
FETCH = (
    "fetch SST-2 of GLUE (SST-2.zip, https://gluebenchmark.com/tasks), put train.tsv and dev.tsv "
    "there; the labels of GLUE's test.tsv are secret, so that dev.tsv is for the test"
)


def read_sst2(folder: Path, part: str) -> tuple[list[str], list[int]]:
    """Return the sentences and their classes, 0 negative and 1 positive.

    Parameters
    ----------
    part : "train" or "test" (GLUE's dev.tsv)

    Raises
    ------
    UserError
        The file is missing (what to fetch is said), or is no table ``sentence``, ``label``.
    """
    path = folder / PARTS[part]
    try:
        with path.open(encoding="utf-8", newline="") as file:
            rows = list(csv.reader(file, delimiter="\t", quoting=csv.QUOTE_NONE))
    except FileNotFoundError:
        raise UserError(f"{path} not found: {FETCH}") from None
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"{path} cannot be read: {error}") from None
    if not rows or rows[0] != ["sentence", "label"]:
        raise UserError(f"{path}, line 1: expected the columns sentence and label; {FETCH}")
    for number, row in enumerate(rows[1:], start=2):
        if len(row) != 2 or row[1].strip() not in ("0", "1"):
            raise UserError(
                f"{path}, line {number}: expected a sentence, a tab, and 0 or 1; is the file whole?"
            )
    if len(rows) < 2:
        raise UserError(f"{path} holds no sentence")
    return [row[0].strip() for row in rows[1:]], [int(row[1]) for row in rows[1:]]
