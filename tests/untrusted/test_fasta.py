"""FASTA files as people write them."""

import pytest

from omniinput_hpc.errors import UserError
from omniinput_hpc.untrusted import fasta


def test_sequences_over_several_lines(tmp_path):
    file = tmp_path / "a.fasta"
    file.write_bytes(b"\r\n>sp|P1 first one\r\nMKta\r\n VIL* \r\n\r\n>second\r\nA-C.\r\n")
    assert fasta.read(file, "test data", 100) == (
        ["sp|P1 first one", "second"],
        ["MKTAVIL", "A-C."],
    )
    file.write_text(fasta.text_of(["a z=1", "b"], ["MK", "VI"]))
    assert file.read_text() == ">a z=1\nMK\n>b\nVI\n"
    assert fasta.read(file, "test data", 100) == (["a z=1", "b"], ["MK", "VI"])


@pytest.mark.parametrize(
    ("text", "message"),
    [("MKV\n>a\n", "line 1: expected a FASTA header"), (">a\n>b\nMK\n", "sequence 'a' is empty")],
)
def test_what_is_refused(tmp_path, text, message):
    (tmp_path / "a.fa").write_text(text)
    with pytest.raises(UserError, match=message):
        fasta.read(tmp_path / "a.fa", "test data", 100)
