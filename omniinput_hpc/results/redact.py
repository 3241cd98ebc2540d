"""Mask personal data in displayed text: e-mail addresses, phone numbers, street addresses."""

from __future__ import annotations

import re

_STREETS = (
    "Street|St|Avenue|Ave|Road|Rd|Boulevard|Blvd|Lane|Ln|Drive|Dr|Court|Ct|Place|Pl|Square|Sq|"
    "Highway|Hwy|Parkway|Pkwy|Terrace|Way"
)
_LONG_STREETS = "street|avenue|road|boulevard|drive|highway|parkway"
_EMAIL = re.compile(r"[\w.+-]{1,64}\s?(?:@|\[at\]|\(at\))\s?[\w-]{1,63}(?:\s?\.\s?[\w-]{1,63})+")
# groups of digits as in phone numbers, or 7 to 15 digits in a row
_PHONE = re.compile(
    r"(?<![\w.,])(?:\+\d{1,3}[\s./-]{0,2})?(?:\(\d{2,5}\)[\s./-]{0,2})?"
    r"(?:\d{2,5}(?:[\s./-]\d{2,5}){1,4}|\d{7,15})(?!\w|[.,]\d)"
)
_DATE = re.compile(
    r"(?:1\d|20)\d\d[\s./-]\d\d[\s./-]\d\d|\d\d[\s./-]\d\d[\s./-](?:1\d|20)\d\d"
    r"|(?:1\d|20)\d\d[\s/-](?:1\d|20)\d\d"
)
_ADDRESS = re.compile(
    rf"\b\d{{1,5}}[a-zA-Z]?,?\s+(?:[A-Z0-9][\w.'-]*\s+){{1,4}}(?:{_STREETS})\b\.?"  # 12 Main St.
    rf"|\b\d{{1,5}}\s+(?:[a-z]+\s+){{1,2}}(?:{_LONG_STREETS})\b"  # without capitals
    r"|\b(?:P\.?\s?O\.?|Post Office)\s?Box\s+\d+"
    r"|\b[A-Z]\w*(?:stra(?:\u00dfe|sse)|str\.|weg|platz|gasse)\s+\d{1,4}\b"
)


def mask(text: str) -> str:
    """Return the text with e-mail addresses, phone numbers and street addresses replaced.

    The patterns mask too much rather than too little. They miss other formats, so a person must
    still check.
    """
    text = _EMAIL.sub("[e-mail]", text)
    text = _ADDRESS.sub("[address]", text)
    return _PHONE.sub(_phone, text)


def _phone(match: re.Match[str]) -> str:
    """Return the mask if the match has 7 to 15 digits and is not a date or a span of years."""
    found = match.group()
    digits = sum(character.isdigit() for character in found)
    return found if _DATE.fullmatch(found) or not 7 <= digits <= 15 else "[phone]"
