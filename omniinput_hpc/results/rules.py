"""Rules by their names: functions of inputs or of their texts, and patterns that texts match."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from omniinput_hpc.annotation.display import shown_of
from omniinput_hpc.config import Analysis, Config
from omniinput_hpc.errors import UserError
from omniinput_hpc.estimators import EstimateError
from omniinput_hpc.estimators.precision_recall.from_rule import (
    Rule,
    call_rule,
    check_scores,
)
from omniinput_hpc.plugins import load_function, reads_texts
from omniinput_hpc.results.tables import read_test_sets
from omniinput_hpc.text import first_line

OPTION = "--rule"
WORD, FEWEST_WORDS = re.compile(r"[^\W\d_]+(?:'[^\W\d_]+)*"), 5
"""A word, and how many a text of words has at least."""


def rule_of(name: str, config: Config) -> Rule:
    """Return a rule for the inputs of a run.

    Its name is ``module:function``, ``regex:PATTERN`` (texts in which the pattern is found are
    right), ``contains:TEXT``, or ``words:FILE`` (see `_all_in`).

    Raises
    ------
    UserError
        No such function or file, or not a pattern; or the rule reads texts, and the inputs are not
        texts.
    """
    function = _built_in(name)
    if function is not None:
        return _of_texts(function, config, name)
    return checked_rule(load_function(name, OPTION), config, name)


def _built_in(name: str) -> Callable[[Sequence[str]], Any] | None:
    """Return the function of texts that a name with a pattern, a text or a file stands for."""
    kind, _, given = name.partition(":")
    if kind in ("contains", "regex") and not given:
        what = "the text" if kind == "contains" else "the pattern"
        raise UserError(f"{OPTION} {name} finds every input right: give {what} after the colon")
    if kind == "words":
        return _all_in(given, f"{OPTION} {name}")
    if kind == "contains":
        return lambda texts: [given in text for text in texts]
    if kind == "regex":
        try:
            pattern = re.compile(given)
        except re.error as error:
            raise UserError(f"{OPTION} {name}: not a regular expression: {error}") from None
        return lambda texts: [bool(pattern.search(text)) for text in texts]
    return None


def check_analysis(config: Config) -> None:
    """Raise a UserError if the rule or the test data of ``[analysis]`` cannot be used.

    No model is built, although that of ``[model] kind = "python"`` may show its inputs as texts.
    """
    wanted = config.analysis or Analysis()
    try:
        if wanted.rule and config.model.kind != "python":
            rule_of(wanted.rule, config)
        elif wanted.rule and _built_in(wanted.rule) is None:
            load_function(wanted.rule, OPTION)
        if wanted.test_data:
            read_test_sets(Path(wanted.test_data))
    except UserError as error:
        raise UserError(f"analysis.rule = {str(error).removeprefix(OPTION).lstrip()}") from None
    except EstimateError as error:
        raise UserError(f"analysis.test_data = {error}") from None


def rule_words(name: str) -> str:
    """Return what a rule calls right, for people."""
    if name.startswith("words:"):
        what = f"at least {FEWEST_WORDS} words besides the first and the last, all in this file"
        return f"the rule {name} ({what})"
    return f"the rule {name}"


def checked_rule(function: Callable[..., object], config: Config, name: str) -> Rule:
    """Return a function as a rule whose scores are checked; `name` is for its errors.

    It gets the inputs' values, int64 [n, D], or their texts if its first argument is ``texts``.
    """
    if reads_texts(function):
        return _of_texts(function, config, name)
    return lambda x: check_scores(call_rule(function, x, name, OPTION), len(x), name)


def _all_in(file: str, option: str) -> Callable[[Sequence[str]], list[bool]]:
    """Return a rule: right if all words of a text are in a file, and there are enough of them.

    The file has a word on each line; upper and lower case are alike. The first and the last word of
    a text may be cut, so they do not count.
    """
    try:
        listed = set(Path(file).expanduser().read_text(encoding="utf-8").lower().split())
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(
            f"{option}: cannot read {file} ({first_line(error)}); it needs a word on each line, as "
            "/usr/share/dict/words has (Debian: apt install wamerican)"
        ) from None

    def right(texts: Sequence[str]) -> list[bool]:
        found = [WORD.findall(text.lower())[1:-1] for text in texts]
        return [len(words) >= FEWEST_WORDS and listed.issuperset(words) for words in found]

    return right


def _of_texts(function: Callable[[Sequence[str]], Any], config: Config, name: str) -> Rule:
    """Return a rule that reads the texts of inputs, without a prefix that all of them share."""
    how = shown_of(config)
    if how.kind != "text":
        raise UserError(f"{OPTION} {name} reads texts, but the inputs are pictures")

    def rule(x: Any) -> Any:
        return check_scores(call_rule(function, how.show(x), name, OPTION), len(x), name)

    return rule
