"""Decoding text files: UTF-8 with or without a byte order mark, UTF-16 or UTF-32 with one.

No encoding is guessed: invalid bytes are refused, with their line. Archives, workbooks and
documents are recognized by their first bytes. Each message says what to do.
"""

from __future__ import annotations

import codecs
import re
from pathlib import Path

from omniinput_hpc.errors import UserError

_MARKS = (
    (codecs.BOM_UTF32_LE, "utf-32"),  # before UTF-16's mark, with which it begins
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
    (codecs.BOM_UTF8, "utf-8-sig"),
)
_UNPACK = "unpack it first"
_SAVE = "save it as plain text (UTF-8), or a table as CSV (UTF-8)"
_FORMATS = (
    (rb"\x1f\x8b", "is gzipped", _UNPACK),
    (rb"BZh[1-9]1AY&SY", "is compressed (bzip2)", _UNPACK),
    (rb"\xfd7zXZ\0", "is compressed (xz)", _UNPACK),
    (rb"\(\xb5/\xfd", "is compressed (zstd)", _UNPACK),
    (
        rb"PK\x03\x04",
        "is a workbook (.xlsx, .ods) or another zip archive",
        f"{_SAVE}, or unpack it",
    ),
    (rb"\xd0\xcf\x11\xe0", "is a workbook (.xls) or document, not a text", _SAVE),
    (rb"\{\\rtf1", "is a document (.rtf), not a plain text", _SAVE),
    (rb"%PDF-", "is a document (.pdf), not a plain text", _SAVE),
)
_MARK, _ZERO = "\ufeff", "\0"


def known_format(data: bytes) -> str | None:
    """Return the kind of a file and the remedy, in words; None if the file may be text."""
    found = (f"{what}: {remedy}" for first, what, remedy in _FORMATS if re.match(first, data))
    return next(found, None)


def encoding_of(data: bytes) -> str:
    """Return the encoding that a byte order mark names; "utf-8" without one."""
    return next((name for mark, name in _MARKS if data.startswith(mark)), "utf-8")


def decode(data: bytes, path: Path) -> str:
    """Return the text of a file without its byte order mark; line ends are unchanged.

    Raises
    ------
    UserError
        The file is compressed, a workbook or another document, contains zero bytes, or is invalid
        in its encoding (UTF-8, or UTF-16 or UTF-32 if a byte order mark says so).
    """
    packed, encoding = known_format(data), encoding_of(data)
    if packed:
        raise UserError(f"{path} {packed}")
    try:
        text = data.decode(encoding)
    except UnicodeDecodeError as error:
        line = _lines_in(data[: error.start].decode(encoding, "ignore")) + 1
        name = encoding.removesuffix("-sig").upper()
        raise UserError(
            f"{path}, line {line}: not a text file ({name}): it holds the byte "
            f"0x{data[error.start]:02x} ({error.reason}); save it with the encoding UTF-8"
        ) from None
    if _ZERO in text:
        raise UserError(
            f"{path}, line {_lines_in(text[: text.index(_ZERO)]) + 1}: not a text file (UTF-8): it "
            "holds a zero byte, like UTF-16 without a byte order mark; save it with the encoding "
            "UTF-8"
        )
    return text


def with_line_feeds(text: str, path: Path) -> str:
    """Return a text with its line ends (CR LF, LF or CR) replaced by line feeds.

    Byte order marks at the beginning of lines (in concatenated files) are removed. Raises a
    `UserError` if CR occurs together with other line ends, since it may or may not be a line end.
    """
    text = text.replace("\r\n", "\n")
    if "\r" in text and "\n" in text:
        where = text.count("\n", 0, text.index("\r")) + 1
        raise UserError(
            f"{path}, line {where}: a carriage return (CR) inside the line, while others end with "
            "a line feed (LF); save the file with one kind of line ending"
        )
    return text.replace("\r", "\n").replace("\n" + _MARK, "\n")


def _lines_in(text: str) -> int:
    """Return the number of line ends in a text."""
    return text.count("\n") + text.count("\r") - text.count("\r\n")
