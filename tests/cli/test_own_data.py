"""Test data of the user's own: each kind of file becomes the inputs that it says, or is refused."""

import json

import numpy as np
import pytest
from language_folders import WORDS, save_classifier, save_decoder
from PIL import Image
from run_tools import ROOT

from omniinput_hpc.cli import own_data
from omniinput_hpc.config import input_file
from omniinput_hpc.config.space import Space
from omniinput_hpc.errors import UserError
from omniinput_hpc.models.images.files import shape_of
from omniinput_hpc.models.language import hf_folder

D, V = 4, 29
ALL = Space(V)


@pytest.fixture
def language(tmp_path):
    folder = save_decoder("gpt2", tmp_path / "model")
    keys = [
        f"model.path={folder}",
        f"model.length={D}",
        "ladder.betas=[0.0, 3.0]",
        "ladder.tune=false",
    ]
    return input_file.load(ROOT / "inputs/english-25.toml", keys)


@pytest.fixture
def images():
    return input_file.load(ROOT / "inputs/digits-mlp.toml", [])


def test_texts_a_line_become_tokens_and_what_does_not_fit_is_said(language, tmp_path):
    file = tmp_path / "t.txt"
    file.write_text("abcd\nbcdefg\n\nab\nccca\n")
    found = own_data.read(file, language, D, ALL)
    np.testing.assert_array_equal(found.x, [[2, 3, 4, 5], [3, 4, 5, 6], [4, 4, 4, 2]])
    assert found.role == ["data"] * 3
    assert [note.partition(": ")[2] for note in found.notes] == [
        "1 empty line left out", "1 of 4 texts left out: fewer than 4 tokens",
        "1 of 4 texts cut after 4 tokens",
    ]  # fmt: skip


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16"])
@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
def test_texts_however_an_editor_saves_them(language, tmp_path, encoding, end):
    for name, text in {
        "t.txt": "abcd\nabc\nbbbb",
        "t.jsonl": '{"text": "abcd"}\n\n{"text": "abc"}\n{"text": "bbbb"}\n',
        "t.csv": "Label, Text\n1,abcd\n1,abc\n,\n0,bbbb",
        "t.tsv": "text\tlabel\nabcd\t1\nabc\t1\nbbbb\t0\n",
    }.items():
        (tmp_path / name).write_bytes(text.replace("\n", end).encode(encoding))
        found = own_data.read(tmp_path / name, language, D, ALL)
        np.testing.assert_array_equal(found.x, [[2, 3, 4, 5], [3, 3, 3, 3]])
        assert "1 of 3 texts left out: fewer than 4 tokens" in found.notes[-1]
        labelled = name in ("t.csv", "t.tsv")
        assert found.role == (["positive", "negative"] if labelled else ["data"] * 2)
        left_out = {"t.jsonl": "1 empty line left out", "t.csv": "1 empty row left out"}
        assert len(found.notes) == (2 if name in left_out else 1)
        assert left_out.get(name, "") in found.notes[0]


@pytest.mark.parametrize(
    ("text", "notes"),
    [
        ("a,LABEL,b,c,d\n1,0,2,3,4\n5,1,6,7,8\n", []),
        ("\ufeffa;Label;b;c;d\r\n1;0;2;3;4\r\n5;1;6;7;8\r\n", []),
        ("a\t label \tb\tc\td\n1\t0\t2\t3\t4\n5\t1\t6\t7\t8", []),
        ("a,label,b,c,d,,\n1,0,2,3,4,,\n5,1,6,7,8,,\n,,,,,,\n", ["1 empty row left out"]),
        ("0,label,1,2,3\n1,0,2,3,4\n#5,1,6,7,8\n5,1,6,7,8\n", ["1 comment row left out"]),
        ('"a","label","b","c","d"\n"1","0"," 2","3 ","4"\n5,1,6,7,8\n', []),
    ],
)
def test_values_however_a_spreadsheet_saves_them(language, tmp_path, text, notes):
    (tmp_path / "v.csv").write_bytes(text.encode())
    found = own_data.read(tmp_path / "v.csv", language, D, ALL)
    assert found.x.tolist() == [[1, 2, 3, 4], [5, 6, 7, 8]]
    assert found.role == ["negative", "positive"]
    assert [note.partition(": ")[2] for note in found.notes] == notes


def test_a_first_row_that_may_be_names_is_noted(language, tmp_path):
    """As pandas writes the names of columns that have none; and no first row is lost."""
    for text in ("0,1,2,3\n5,6,7,8\n", "0;1;2;3\n5;6;7;8\n"):
        (tmp_path / "v.csv").write_text(text)
        found = own_data.read(tmp_path / "v.csv", language, D, ALL)
        assert found.x.tolist() == [[0, 1, 2, 3], [5, 6, 7, 8]]
        assert "the first row, 0 to 3, is read as an input" in found.notes[0]


def test_tokens_that_no_site_takes(language, tmp_path):
    only = language.model.model_copy(update={"tokens": "no-special"})
    only = language.model_copy(update={"model": only})
    (tmp_path / "t.txt").write_text("abcd\nab<end>c\n")
    found = own_data.read(tmp_path / "t.txt", only, D, Space(V))
    (tmp_path / "v.csv").write_text("1,2,3,4\n")  # as ids, other tokens would be meant
    with pytest.raises(UserError, match=r"numbered without the special ones, .*; give texts"):
        own_data.read(tmp_path / "v.csv", only, D, Space(V))
    np.testing.assert_array_equal(found.x, [[0, 1, 2, 3]])  # two special tokens come before "a"
    assert "left out: a token is not allowed at any site" in found.notes[0]
    np.testing.assert_array_equal(
        own_data.read(tmp_path / "t.txt", language, D, ALL).x[1],
        [2, 3, WORDS.index("<end>"), 4],
    )


def test_labels_of_jsonl_and_csv(language, tmp_path):
    lines = [{"text": "abcd", "label": 1}, {"text": "abc"}, {"text": "bbbb", "label": 0}]
    (tmp_path / "t.jsonl").write_text("\n".join(map(json.dumps, lines)))
    found = own_data.read(tmp_path / "t.jsonl", language, D, ALL)
    assert found.role == ["positive", "negative"] and found.x[1].tolist() == [3] * 4
    (tmp_path / "v.jsonl").write_text('{"values": [1, 2, 3, 4], "label": true}\n')
    assert own_data.read(tmp_path / "v.jsonl", language, D, ALL).role == ["positive"]
    (tmp_path / "v.csv").write_text("# mine\na,label,b,c,d\n1,0,2,3,4\n5,1,6,7,8\n")
    found = own_data.read(tmp_path / "v.csv", language, D, ALL)
    assert found.x.tolist() == [[1, 2, 3, 4], [5, 6, 7, 8]]
    assert found.role == ["negative", "positive"]
    (tmp_path / "v.csv").write_text("1,2,3,4\n5,6,7,8\n")
    assert own_data.read(tmp_path / "v.csv", language, D, ALL).role == ["data"] * 2


def test_pictures_of_files_and_arrays(images, tmp_path):
    grey = np.random.default_rng(1).integers(0, 256, size=(3, 8, 8), dtype=np.uint8)
    shape = shape_of(images.model)
    expected = np.rint(grey / 255 * (shape.n_values - 1)).reshape(3, 64)
    np.save(tmp_path / "p.npy", grey)
    folder = tmp_path / "png"
    folder.mkdir()
    for n, one in enumerate(grey):
        Image.fromarray(one).save(folder / f"{n}.png")
    coloured = tmp_path / "coloured.npy"
    np.save(coloured, np.repeat(grey[..., None], 3, axis=3))
    (folder / "2.png").rename(folder / "2.PNG")
    for name in ("._0.png", ".DS_Store", "more.txt"):
        (folder / name).write_bytes(b"x")
    levels = Space(shape.n_values)
    assert "1 other file left out" in own_data.read(folder, images, 64, levels).notes[0]
    for path in (tmp_path / "p.npy", folder, coloured):
        assert own_data.is_file_of_data(str(path))
        np.testing.assert_array_equal(
            own_data.read(path, images, 64, Space(shape.n_values)).x, expected
        )
    pixels = shape.pixels(expected.astype(int))  # what a run shows of them
    assert np.abs(pixels.astype(int) - grey).max() <= 128 / (shape.n_values - 1) + 1


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("a.txt", "", "holds no inputs"),
        ("a.txt", "ab\nc\n", "no text has 4 tokens"),
        ("a.jsonl", '{"text": "abcd"', "line 1: not valid JSON"),
        ("a.jsonl", "[" * 100_000, "line 1: not valid JSON"),
        ("a.jsonl", "7\n", 'expected an object with "text" or "values"'),
        ("a.jsonl", '{"text": 3}', 'expected an object with "text" or "values"'),
        ("a.jsonl", '{"text": "abcd", "label": 2}', "the label '2' is neither 0"),
        ("a.jsonl", '{"text": "abcd"}\n{"values": [1]}', "cannot be mixed"),
        ("a.jsonl", '{"values": [1, 2, 3, [4]]}', "the same number of whole numbers"),
        ("a.jsonl", '{"values": [1, 2, 3, 4.0]}', "the same number of whole numbers"),
        ("a.jsonl", '{"values": [1, 2, 3, 1e400]}', "the same number of whole numbers"),
        ("a.jsonl", '{"values": [1, 2, 3]}', "have 3 values each; the model has 4"),
        ("a.jsonl", '{"values": [1, 2, 3, 29]}', "input 1: the value 29 is not from 0 to 28"),
        ("a.csv", "1,2,3,-1\n", "input 1: the value -1"),
        ("a.csv", "1,2,3,4\n1,2\n", "the same number of whole numbers"),
        ("a.csv", "a,label\n1\n", "a row has no label"),
        ("a.csv", "1.0,2,3,4\n1,2,3,4\n", "the same number of whole numbers"),
        ("a.csv", "+1,2,,4\n1,2,3,4\n", "the same number of whole numbers"),
        ("a.csv", "1,2,3,99999999999999999999999\n", "the same number of whole numbers"),
        ("a.npy", b"no", "cannot be read"),
        ("a.txt", b"\xff\xfe\xff", "a.txt"),
        ("a.txt", b"abcd\nGr\xfc\xdfe\n", "line 2: not a text file .UTF-8.*0xfc"),
        ("a.txt", "abcd\nab\rcd\n", "line 2: a carriage return"),
        ("a.csv", b"PK\x03\x04", "is a workbook .*save it as .* CSV"),
        ("a.csv", "text,text\na,b\n", "several columns text"),
        ("a.csv", "label,text\n1,abcd, and more\n", "line 2: longer than .*quotation marks"),
        ("a.csv", "1,2,3,4\n1_0,2,3,4\n", "line 2: .*number of whole numbers, found '1_0'"),
        ("a.csv", "1;2;3;4\n1,5;2;3;4\n", "line 2: .*found '1,5'"),
        ("a.csv", "1,2,3,4\n\u0663,2,3,4\n", "number of whole numbers"),
        ("a.csv", "label,a,b,c,d\n1,1,2,3,4\nx,1,2,3,4\n", "line 3: the label 'x' is neither"),
        ("a.jsonl", '{"values": [1, 2, 3, "1_0"]}', "the same number of whole numbers"),
        ("a.xls", "x", "expected a folder of pictures, or one of .txt"),
        ("a.xlsx", "x", "save it as CSV"),
        ("a.txt.gz", "x", "unpack it first"),
    ],
)
def test_what_is_no_data_is_refused_in_one_sentence(language, tmp_path, name, content, said):
    path = tmp_path / name
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(UserError, match=said) as caught:
        own_data.read(path, language, D, ALL)
    assert "\n" not in str(caught.value)


def test_an_array_without_an_axis_holds_nothing(language, tmp_path):
    np.save(tmp_path / "a.npy", np.int64(3))
    with pytest.raises(UserError, match="holds no inputs"):
        own_data.read(tmp_path / "a.npy", language, D, ALL)


def test_pictures_for_other_models_and_texts_for_networks(language, images, tmp_path):
    np.save(tmp_path / "p.npy", np.zeros((2, 8, 8), np.uint8))
    with pytest.raises(UserError, match=r"this model takes values, integers \[n, 4\]"):
        own_data.read(tmp_path / "p.npy", language, D, ALL)
    np.save(tmp_path / "p.npy", np.zeros((2, 8, 7), np.uint8))
    with pytest.raises(UserError, match=r"picture is \[8, 7\] .*the model takes \[8, 8\]"):
        own_data.read(tmp_path / "p.npy", images, 64, Space(16))
    (tmp_path / "t.txt").write_text("abcd\n")
    with pytest.raises(UserError, match="holds texts, but model"):
        own_data.read(tmp_path / "t.txt", images, 64, Space(16))
    (tmp_path / "none").mkdir()
    with pytest.raises(UserError, match=r"the folder holds no pictures"):
        own_data.read(tmp_path / "none", images, 64, Space(16))


def test_a_text_is_encoded_as_the_run_shows_it(tmp_path, language):
    """Decoded again by what people see, the values give the text."""
    (tmp_path / "t.txt").write_text("hgfe\naaab\n")
    x = own_data.read(tmp_path / "t.txt", language, D, ALL).x
    assert hf_folder.display(language.model).show(x) == ["hgfe", "aaab"]


def test_texts_of_a_classifier_have_no_special_tokens_of_their_own(tmp_path):
    folder = save_classifier(tmp_path / "model")
    keys = [f"model.path={folder}", "model.length=6"]
    config = input_file.load(ROOT / "inputs/distilbert-10.toml", keys)
    words = hf_folder.tokenizer.read(folder)
    word = next(w for w, i in sorted(words.ids.items()) if w.isalpha())
    (tmp_path / "t.txt").write_text(" ".join([word] * D) + "\n")
    x = own_data.read(tmp_path / "t.txt", config, D, ALL).x
    assert x.tolist() == [[words.ids[word]] * D]
