"""Hiding what may point to people in shown text: e-mail addresses, phone numbers, streets."""

from __future__ import annotations

import re

_STREETS = (
    "street|st|avenue|ave|road|rd|boulevard|blvd|lane|ln|drive|dr|court|ct|place|pl|square|sq|"
    "highway|hwy|parkway|pkwy|terrace|way"
)
_PATTERNS = {
    "[e-mail]": re.compile(r"[\w.+-]+\s?@\s?[\w-]+(?:\s?\.\s?[\w-]+)+"),
    # seven digits or more in groups, as phone numbers are written; not years or decimals
    "[phone]": re.compile(
        r"(?<![\w.])(?:\+\d{1,3}[\s./-]?)?(?:\(\d{2,4}\)[\s./-]?)?\d{2,4}(?:[\s./-]\d{2,4}){1,4}"
        r"(?![\w.]\d)"
    ),
    "[address]": re.compile(
        rf"\b\d{{1,5}}\s+(?:[A-Z][\w.'-]*\s+){{1,4}}(?:{_STREETS})\b\.?", re.IGNORECASE
    ),
}


def mask(text: str) -> str:
    """Return the text with e-mail addresses, phone numbers and street addresses replaced.

    By patterns: what is written otherwise stays, so that a person must still look.
    """

    def phone(match: re.Match[str]) -> str:
        digits = sum(character.isdigit() for character in match.group())
        return "[phone]" if 7 <= digits <= 15 else match.group()

    for word, pattern in _PATTERNS.items():
        text = pattern.sub(phone if word == "[phone]" else word, text)
    return text
