import math

import pytest

from omniinput_hpc import text


@pytest.mark.parametrize(
    ("seconds", "expected"),
    [(45.2, "45 s"), (119, "119 s"), (720, "12 min"), (12_000, "3 h 20 min"),
     (53 * 3600, "2 d 5 h")],
)  # fmt: skip
def test_durations(seconds, expected):
    assert text.duration(seconds) == expected


@pytest.mark.parametrize(
    ("n_bytes", "expected"),
    [(0, "0 B"), (999, "999 B"), (1234, "1.23 kB"), (3e9, "3 GB"), (4.5e13, "45 TB")],
)
def test_amounts(n_bytes, expected):
    assert text.amount(n_bytes) == expected


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (ValueError("one\ntwo"), "one"),
        (ValueError("\n  one \ntwo"), "one "),
        (KeyError("no such name"), "no such name"),
        (OSError(28, "No space left on device"), "[Errno 28] No space left on device"),
        (MemoryError(), "MemoryError"),
        (ValueError("  \n"), "ValueError"),
    ],
)
def test_first_lines(error, expected):
    assert text.first_line(error) == expected


def test_a_file_is_written_whole_or_stays_as_it_was(tmp_path, monkeypatch):
    path = tmp_path / "a.csv"
    text.write_atomically(path, "\N{GREEK SMALL LETTER BETA} \udcff")
    assert path.read_bytes() == b"\xce\xb2 \\udcff"
    text.write_atomically(path, b"new")

    def full(descriptor):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(text.os, "fsync", full)
    with pytest.raises(OSError, match="No space left"):
        text.write_atomically(path, b"newer")
    assert path.read_bytes() == b"new" and list(tmp_path.iterdir()) == [path]


FORMULAS = [
    "=1+1",
    "+cmd|x",
    "-1+1",
    "@SUM(A1)",
    "\t=1",
    "\r=1",
    "\N{FULLWIDTH EQUALS SIGN}1",
    "-inf",
]
PLAIN = ["", "a=1", "-1.5", "+3", "-1e-5", "-.5", "'", "'a", " =1", "id-1", "0x1f"]


@pytest.mark.parametrize("cell", [*FORMULAS, *PLAIN, *(f"'{cell}" for cell in FORMULAS), "''=1"])
def test_cells_come_back_and_none_runs(cell):
    safe = text.safe_cell(cell)
    assert text.read_cell(safe) == cell
    assert safe == cell or safe == f"'{cell}"
    assert (safe == cell) == (cell in PLAIN)


def test_what_a_terminal_would_act_on_is_spelled_out():
    assert text.printable("rule x:y é\u2713") == "rule x:y é\u2713"
    assert text.printable("a\x1b[2J\r\n\u202eb\ud800") == r"a\x1b[2J\r\n\u202eb\ud800"


def test_permissions_of_a_new_file(tmp_path):
    path = tmp_path / "a"
    path.write_text("old")
    (tmp_path / "a.partial").write_text("of a killed process")
    (tmp_path / "a.partial").chmod(0o666)
    text.write_atomically(path, "new", mode=0o600)
    assert path.read_text() == "new" and path.stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize(
    ("ends", "expected"),
    [((0.314, 0.434), 2), ((0.999796, 0.999999), 6), ((0.0, 0.0213), 2), ((0.0003, 0.16), 4),
     ((1.002, 1.03), 3), ((0.5, 0.5), 2), ((-0.051, 0.03), 2), ((-math.inf, math.inf), 2)],
)  # fmt: skip
def test_as_few_decimals_as_tell_an_interval(ends, expected):
    """The ends differ, and read 0 or 1 only if they are."""
    assert text.decimals(*ends) == expected


@pytest.mark.parametrize(
    ("log_n", "words"),
    [(0.0, "1"), (math.log(12345.4), "12,345"), (30.0, "10^13.03"), (-20.0, "10^-8.69"),
     (-800.0, "10^-347.44"), (1000.0, "10^434.29"), (-6.733, "0.00119"), (-math.inf, "0"),
     (math.inf, "an unknown number"), (math.nan, "an unknown number")],
)  # fmt: skip
def test_numbers_of_inputs_in_words(log_n, words):
    assert text.tens(log_n) == words


@pytest.mark.parametrize(
    ("value", "low", "high", "words"),
    [(798, 683, 932, "798, 683 to 932"), (2e5, 1e5, 1.2e6, "10^5.30, 10^5.00 to 10^6.08"),
     (8.90e9, 8.83e9, 8.96e9, "10^9.949, 10^9.946 to 10^9.952"),
     (9.53e9, 9.529e9, 9.531e9, "10^9.97909, 10^9.97905 to 10^9.97914"),
     (5, 0, 20, "5, 0 to 20"), (5, 0, math.inf, "5, interval not known")],
)  # fmt: skip
def test_a_number_and_its_interval_are_written_alike(value, low, high, words):
    ends = (math.log(low) if low else -math.inf, math.log(high))
    assert f"{text.tens(math.log(value), ends)}, {text.tens_interval(*ends)}" == words


@pytest.mark.parametrize(
    ("ends", "words"),
    [((131.25, 556.99), "10^57.01 to 10^241.89"), ((2.3025850929940455, 7.0), "10^1.00 to 10^3.04"),
     ((1.0, 1.003), "10^0.4343 to 10^0.4355"), ((math.nan, 1.0), "an unknown range")],
)  # fmt: skip
def test_a_range_is_rounded_inwards(ends, words):
    assert text.range_words(ends) == words
