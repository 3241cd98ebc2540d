"""Tables that spreadsheets save: whatever separates the cells, the same rows and numbers."""

import pytest

from omniinput_hpc.errors import UserError
from omniinput_hpc.untrusted.tables import read_sheet, read_table

PLAIN = "id,score,note\na,0.5,x\nb,1,\n"


def table(tmp_path, text, needed=("id", "score"), optional=()):
    path = tmp_path / "t.csv"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return read_table(path, "table", 10_000, needed, optional)


@pytest.mark.parametrize(
    "text",
    [
        PLAIN,
        PLAIN.replace("\n", "\r\n"),
        PLAIN.replace("\n", "\r"),
        PLAIN.removesuffix("\n"),
        PLAIN.replace(",", ";").replace("0.5", "0,5"),
        PLAIN.replace(",", "\t").replace("0.5", "0,5").encode("utf-16"),
        "\ufeff" + PLAIN,
        "sep=;\r\n" + PLAIN.replace(",", ";"),
        '"sep=\t"\n' + PLAIN.replace(",", "\t"),
        PLAIN.replace("id,score,note", " ID , Score,NOTE"),
        PLAIN.replace("id,score,note", '"id","Score","note"'),
        PLAIN.replace("0.5", '"0,5"'),
        PLAIN.replace("0.5", " 0.5 ").replace("1,", "\u00a01\u00a0,"),
        PLAIN.replace("\n", ",,\n"),
        PLAIN.replace("b,1,", "b,1"),
    ],
)
def test_the_same_table_however_it_is_saved(tmp_path, text):
    found = table(tmp_path, text)
    assert [found.names[i] for i in range(3)] == ["id", "score", "note"]
    assert [[cell.strip() for cell in cells[::2][:1]] for _, cells in found.rows] == [["a"], ["b"]]
    assert found.numbers(["score"]) == [{"score": 0.5}, {"score": 1.0}]


def test_rows_are_counted_from_the_first_line_of_the_file(tmp_path):
    text = '# one, "two"\n\nsep=,\nid,score\n"a\r\nb",1\n,,\n\n,\nc,2\n'
    found = table(tmp_path, text)
    assert found.rows == [(5, ["a\r\nb", "1"]), (10, ["c", "2"])]
    assert (found.n_empty, found.comments) == (4, ['one, "two'])


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("id,score\na,0.5\nb,\"0,5\"\n",
         "a point (line 2: 0.5), some a comma (line 3: 0,5); use only one"),
        ("id;score\na;1.234,5\n", "line 2: 1.234,5: write numbers without thousands separators"),
        ("id;score\na;1 234\n", "line 2: 1 234: write numbers without"),
        ("id,score\na,\"1,234,567\"\n", "line 2: 1,234,567: write numbers without"),
        ("id,score\na,\"1,234\"\n", "line 2: 1,234: does the comma mark decimals or thousands?"),
    ],
)  # fmt: skip
def test_numbers_that_may_be_others_are_refused(tmp_path, text, words):
    with pytest.raises(UserError) as caught:
        table(tmp_path, text).numbers(["score"])
    assert words in str(caught.value)


def test_what_is_certain_is_read(tmp_path):
    found = table(tmp_path, 'id,score\na,"1,234"\nb,"0,5"\n')
    assert [row["score"] for row in found.numbers(["score"])] == [1.234, 0.5]
    found = table(tmp_path, "id;score\na;1,234\nb;-inf\nc;1E-03\nd;1_000\ne;\u0663\nf;\n")
    numbers = found.numbers(["score"])
    assert numbers == [
        {"score": 1.234}, {"score": float("-inf")}, {"score": 0.001}, {"score": "1_000"},
        {"score": "\u0663"}, {},
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "has no column id or score in its first line"),
        ("id|score\n1|2\n", "(it has id|score)"),
        ("id,Score,score\n", "has several columns score; keep one"),
        ("id,score\na\n", "line 2: cut short, or longer than the first"),
        ("id,note,score\na,x\n", "line 2: cut short"),
        ("id,score\na,0,5\n", "line 2: cut short, or longer than the first line; does a cell"),
        ('id,score\na,1\n"b,1\n', "line 3: cannot be read as CSV"),
        (b"PK\x03\x04", "is a workbook"),
    ],
)
def test_what_is_no_such_table_is_named(tmp_path, text, words):
    with pytest.raises(UserError) as caught:
        table(tmp_path, text)
    assert words in str(caught.value)


def test_a_row_must_reach_the_columns_that_are_read(tmp_path):
    text = "id,score,judge,note\na,1\n"
    assert table(tmp_path, text).rows == [(2, ["a", "1", "", ""])]
    with pytest.raises(UserError, match="cut short"):
        table(tmp_path, text, optional=["judge"])


def test_a_sheet_without_names(tmp_path):
    path = tmp_path / "t.csv"
    for text in ("1,2\n3,4\n", "1;2\n3;4", "1\t2\r3\t4\r"):
        path.write_text(text, newline="")
        assert read_sheet(path, "table", 100).rows == [(1, ["1", "2"]), (2, ["3", "4"])]
