"""Texts of other programs are read as they are meant, or refused with what to do."""

import gzip
from pathlib import Path

import pytest

from omniinput_hpc.errors import UserError
from omniinput_hpc.untrusted.files import read_text
from omniinput_hpc.untrusted.texts import decode, encoding_of, with_line_feeds

TEXT = "Grüße, Ana\nzweite Zeile\n"


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "utf-16-be", "utf-32"])
@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
@pytest.mark.parametrize("last", [True, False])
def test_the_same_text_however_it_is_saved(tmp_path, encoding, end, last):
    text = TEXT if last else TEXT.removesuffix("\n")
    mark = "\ufeff" if encoding == "utf-16-be" else ""
    path = tmp_path / "t.txt"
    path.write_bytes((mark + text).replace("\n", end).encode(encoding))
    assert read_text(path, "text", 1000) == text


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"one\ntwo\r\nGr\xfc\xdfe", "line 3: not a text file (UTF-8): it holds the byte 0xfc"),
        (b"one\rGr\xfc", "line 2: not a text file"),
        ("\ufeffab".encode("utf-16-le")[:-1], "line 1: not a text file (UTF-16)"),
        (b"\xff\xfea\x00\n\x00\x00\xd8b\x00", "line 2: not a text file (UTF-16)"),
        ("a\nb".encode("utf-16-le"), "line 1: not a text file (UTF-8): it holds a zero byte"),
        (b"a\nb\0c", "line 2: not a text file"),
        (b"\xed\xa0\x80", "line 1: not a text file"),
        (gzip.compress(b"a", mtime=0), "is gzipped: unpack it first"),
        (b"PK\x03\x04\x14\x00", "is a workbook (.xlsx, .ods) or another zip archive: save it as"),
        (b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1", "is a workbook (.xls) or document, not a text"),
        (b"{\\rtf1\\ansi one}", "is a document (.rtf)"),
        (b"%PDF-1.7\n", "is a document (.pdf)"),
    ],
)
def test_what_is_no_text_is_named_with_what_to_do(tmp_path, data, words):
    with pytest.raises(UserError) as caught:
        decode(data, Path("t.txt"))
    assert words in str(caught.value) and str(caught.value).startswith("t.txt")
    assert "UTF-8" in str(caught.value) or "unpack" in str(caught.value)


def test_texts_that_begin_like_an_archive_are_texts():
    for text in ("BZhang writes", "PK is a name", "{text}", "% PDF"):
        assert decode(text.encode(), Path("t")) == text


def test_a_carriage_return_inside_a_line_may_be_an_end_or_not():
    with pytest.raises(UserError, match=r"line 2: a carriage return \(CR\) inside the line"):
        with_line_feeds("a\r\nb\rc\n", Path("t.txt"))
    assert with_line_feeds("a\rb\r\rc", Path("t.txt")) == "a\nb\n\nc"


def test_marks_of_files_that_were_joined_are_no_characters():
    assert with_line_feeds("a\n\ufeffb\nc\ufeff\n", Path("t.txt")) == "a\nb\nc\ufeff\n"


def test_the_mark_of_utf_32_is_not_taken_for_that_of_utf_16():
    assert encoding_of("a".encode("utf-32")) == "utf-32"
    assert encoding_of("a".encode("utf-16")) == "utf-16"
    assert encoding_of(b"a") == "utf-8"
