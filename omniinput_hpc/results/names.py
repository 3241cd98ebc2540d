"""Names of output files: the first analysis gets the plain name, later ones a distinguishing tag.

The first rule's curve keeps ``RUN.pr.csv``; another rule's curve is ``RUN.pr.RULE.csv``.
RUN.results.json records which analysis wrote which file.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from omniinput_hpc.results.record import Record, entries
from omniinput_hpc.results.tables import beside

MAX_LENGTH = 60
"""Most characters of a tag; the end of a longer one is replaced by a digest."""
NOT_KEPT = r"[^\w.+=-]+"
"""Characters of words that become "-" in a tag."""


def claim_name(record: Record, ending: str, words: Sequence[str]) -> str:
    """Return the tag to add to the names of an analysis's files: "", or ``.WORDS``.

    It is "" if no other analysis owns the plain name, RUN and `ending`, or if the owner has the
    same words. The words are stored in the record's parameters as "name".

    Parameters
    ----------
    record : of the analysis, before it is saved
    ending : of the plain name of its first file, as in ".pr.csv"
    words : what distinguishes it from others of its kind: rule, annotators, side, partner

    Raises
    ------
    UserError
        RUN.results.json is not a results file.
    """
    tag = _short("-".join(re.sub(NOT_KEPT, "-", word) for word in words if word))
    record.parameters["name"] = tag
    plain = beside(record.run_path, ending)
    owner = _owner(beside(record.run_path, ".results.json"), plain.name)
    free = owner is None or not plain.exists()
    mine = owner is not None and (owner["analysis"], _name(owner)) == (record.analysis, tag)
    return "" if free or mine or not tag else f".{tag}"


def names_of(runs: Sequence[Path]) -> list[str]:
    """Return the names of runs: their file names, numbered from 1 if two are equal."""
    names = [path.stem for path in runs]
    if len(set(names)) == len(names):
        return names
    return [f"{number}-{name}" for number, name in enumerate(names, 1)]


def words_of(
    rule: str | None,
    scores: Sequence[Path],
    other_side: str = "",
    judges: Sequence[Path] = (),
    bank: Path | None = None,
) -> list[str]:
    """Return words for the rule, annotators or bank, a side not the model's own, and judges.

    `judges` are files of judges that people's scores correct.
    """
    by = _rule_word(rule) if rule else "+".join(sorted(map(_annotator, scores)))
    by = f"bank={bank.stem}" if bank is not None else by
    names = [path.stem.rpartition(".judge-scores.")[2] for path in judges]
    judge = [f"judge={'+'.join(sorted(names))}"] if names else []
    return [by, f"side={other_side}" if other_side else "", *judge]


def _rule_word(rule: str) -> str:
    """Return a word for a rule, with a digest if another pattern or text may give the same word."""
    word, (kind, _, given) = rule.replace(":", "."), rule.partition(":")
    if kind not in ("regex", "contains") or not re.search(NOT_KEPT + "|:", given):
        return word
    return f"{word}-{digest(rule)}"


def _annotator(path: Path) -> str:
    """Return NAME from RUN.scores.NAME.jsonl, and judge-NAME from RUN.judge-scores.NAME.jsonl."""
    _, judge, name = path.stem.rpartition(".judge-scores.")
    return f"judge-{name}" if judge else path.stem.rpartition(".scores.")[2]


def _short(text: str) -> str:
    return text if len(text) <= MAX_LENGTH else f"{text[: MAX_LENGTH - 9]}-{digest(text)}"


def digest(text: str) -> str:
    """Return 8 hexadecimal digits that tell texts apart."""
    return hashlib.sha256(text.encode()).hexdigest()[:8]


def _owner(results: Path, name: str) -> dict[str, Any] | None:
    """Return the last analysis that wrote a file of this name; None if none is recorded."""
    found = reversed(entries(results))
    return next((entry for entry in found if name in entry.get("files", [])), None)


def _name(entry: dict[str, Any]) -> object:
    parameters = entry.get("parameters")
    return parameters.get("name", "") if isinstance(parameters, dict) else ""
