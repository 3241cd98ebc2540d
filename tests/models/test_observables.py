"""Observables of inputs: what each is, and what is refused."""

import sys

import image_models
import numpy as np
import pytest
import torch
from configs import config_with
from image_models import SHAPES
from language_folders import save_classifier, save_decoder
from PIL import Image
from run_tools import ROOT
from tokenizers import Tokenizer, decoders
from tokenizers.models import BPE

from omniinput_hpc import models
from omniinput_hpc.errors import UserError
from omniinput_hpc.models import observables
from omniinput_hpc.models.observables import build, longest_run, overlap, readability

TOY = {"kind": "causal-lm", "path": str(ROOT / "inputs/models/toy"), "length": 8}
TEXTS = config_with(model=TOY)
ENGLISH = config_with(model={**TOY, "path": str(ROOT / "inputs/models/english")})
PICTURES = config_with(
    model={
        "kind": "image-classifier",
        "path": str(ROOT / "inputs/models/digits-mlp"),
        "target": "logit",
    }
)
X = np.array([[1, 2, 3, 4, 5, 6, 7, 8], [1, 1, 1, 2, 2, 3, 1, 1]])
OWN = """
def first(x):
    return x[:, 0]
def fails(x):
    raise KeyError("no")
def none(x):
    return x[:, 0] / 0.0
def wide(x):
    return x
def words(x):
    return ["a"] * len(x)
def has_twelve(texts):
    return ["12" in "".join(text.split()) for text in texts]
def sorts(x):
    x.sort(axis=1)
    return x[:, 0]
"""


@pytest.fixture
def own(tmp_path, monkeypatch):
    (tmp_path / "my_numbers.py").write_text(OWN)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", ["", *sys.path])


def y(what, x=X, config=TEXTS):
    found = build(what, config, "--observable")(x)
    assert found.dtype == np.float64 and found.shape == (len(x),)
    return found.tolist()


def test_of_values():
    assert y("distinct") == [8, 3]
    assert y("longest-run") == [1, 3]
    assert longest_run([]) == 0


def test_of_texts():
    (one, two) = observables.table.display(TEXTS).show(X)
    assert y("length") == [len(one), len(two)]
    assert y(f"contains:{two[:4]}") == [0, 1]
    assert y("matches:^1.*1$") == [0, 1]
    assert y(f"overlap:{one}")[0] == 1 and y(f"overlap:{one}")[1] < 1
    assert y("letters") == [0, 0]


def test_of_tokens():
    (words,) = observables.table.display(ENGLISH).show(X[:1])
    letters = sum(map(str.isalpha, words)) / len(words)
    assert y("letters", X[:1], ENGLISH) == [letters]
    again = observables.table.display(ENGLISH).canonical(X)
    assert y("canonical", X, ENGLISH) == again.tolist()


def test_of_texts_that_end(tmp_path):
    """What stands after the end is padding: newlines that the tokenizer would merge."""
    merges = [("\n", "\n"), ("a", "b")]
    made = Tokenizer(BPE({"a": 0, "b": 1, "\n": 2, "\n\n": 3, "ab": 4}, merges))
    made.decoder = decoders.Fuse()
    folder = save_decoder("gpt2", tmp_path)
    made.save(str(folder / "tokenizer.json"))
    table = {"kind": "causal-lm", "path": str(folder), "length": 6}
    ends = config_with(model=table, space={"end": 2})
    x = np.array([[4, 4, 2, 2, 2, 2], [0, 1, 2, 2, 2, 2], [2] * 6, [4, 0, 0, 0, 1, 4]])
    assert y("canonical", x, ends) == [1, 0, 1, 0]
    assert y("canonical", x, config_with(model=table)) == [0, 0, 0, 0]
    assert y("distinct", x, ends) == [1, 2, 0, 3]
    assert y("longest-run", x, ends) == [2, 1, 0, 3]
    assert y("length", x, ends) == [4, 2, 0, 8]


def test_readability_is_the_automated_index():
    text = "The cat sat. The dog ran."  # 18 letters, 6 words, 2 sentences
    assert readability(text) == pytest.approx(4.71 * 18 / 6 + 0.5 * 6 / 2 - 21.43)
    assert readability("") == readability("...") == 0
    assert overlap("abcdef", "xxabcdxx") == pytest.approx(1 / 3)
    assert overlap("ab", "xabx") == 1 and overlap("", "xabx") == 0


def test_of_pictures():
    how = observables.table.display(PICTURES)
    x = np.zeros((2, 64), np.int64)
    x[1, ::2] = 16
    dark, light = how.show(x)
    assert y("brightness", x, PICTURES) == [dark.mean(), light.mean()]
    assert y("edges", x, PICTURES)[0] == 0 < y("edges", x, PICTURES)[1]


def test_the_distance_from_reference_pictures(tmp_path):
    random = np.random.default_rng(1)
    x, how = random.integers(17, size=(5, 64)), observables.table.display(PICTURES)
    shown = np.stack(how.show(x))
    known = random.integers(256, size=(7, *shown.shape[1:])).astype(np.uint8)
    known[3] = shown[2]
    apart = shown[:, None].astype(float) - known
    true = np.sqrt((apart**2).mean(axis=(2, 3)).min(axis=1))
    np.save(tmp_path / "known.npy", known)
    (tmp_path / "folder").mkdir()
    for i, picture in enumerate(known):
        Image.fromarray(picture).save(tmp_path / "folder" / f"{i}.png")
    for where in ("known.npy", "folder"):
        found = y(f"distance:{tmp_path / where}", x, PICTURES)
        np.testing.assert_allclose(found, true, rtol=1e-12)
        assert found[2] == 0 < min(found[:2])


@pytest.mark.parametrize(
    ("known", "words"),
    [
        (np.zeros((2, 9, 8), np.uint8), r"are \[9, 8\], those of this run \[8, 8\]"),
        (np.zeros((2, 8, 8)), "expected 1 or more pictures uint8"),
        (np.zeros((0, 8, 8), np.uint8), "expected 1 or more pictures uint8"),
        (None, "known.npy cannot be read"),
    ],
)
def test_reference_pictures_that_do_not_fit(known, words, tmp_path):
    if known is not None:
        np.save(tmp_path / "known.npy", known)
    with pytest.raises(UserError, match=words):
        y(f"distance:{tmp_path}/known.npy", np.zeros((1, 64), np.int64), PICTURES)
    with pytest.raises(UserError, match=f"distance:{tmp_path}/more holds no pictures"):
        (tmp_path / "more").mkdir()
        build(f"distance:{tmp_path}/more", PICTURES, "--observable")


def test_edges_of_pictures_of_one_row_or_column_or_pixel():
    row = np.array([[0.0, 1.0, 3.0]])
    assert observables.edges(row) == observables.edges(row.T) == 1.5
    assert observables.edges(row[:, :1]) == 0


def test_a_function_of_ones_own_may_read_texts(own):
    assert y("my_numbers:has_twelve") == y("matches:1 ?2") == [1, 1]
    assert y("my_numbers:has_twelve", X[:, ::-1]) == [0, 0]
    with pytest.raises(UserError, match="reads texts; this run's inputs are images"):
        y("my_numbers:has_twelve", np.zeros((1, 64), np.int64), PICTURES)


def test_a_function_of_ones_own(own):
    assert y("my_numbers:first") == [1, 1]
    for name, words in {
        "my_numbers:fails": "failed: KeyError",
        "my_numbers:none": "expected finite numbers",
        "my_numbers:wide": r"expected 2 numbers, found shape \(2, 8\)",
        "my_numbers:words": "failed: ValueError",
    }.items():
        with pytest.raises(UserError, match=f"--observable {name}.*{words}"):
            y(name)


@pytest.mark.parametrize(
    ("what", "config", "words"),
    [
        ("legnth", TEXTS, "expected one of length"),
        ("distnct", TEXTS, 'did you mean "distinct"'),
        ("contains:", TEXTS, "expected contains:TEXT"),
        ("matches:", TEXTS, "expected matches:REGEX"),
        ("overlap:the", TEXTS, "give a TEXT of at least 4 characters"),
        ("distance:", PICTURES, "expected distance:PICTURES"),
        ("distance:x", TEXTS, "is for images; this run's inputs are texts"),
        ("distance:x", PICTURES, "not a folder of pictures"),
        ("matches:(", TEXTS, "not a regular expression"),
        ("brightness", TEXTS, "is for images; this run's inputs are texts"),
        ("length", PICTURES, "is for texts; this run's inputs are images"),
        ("canonical", PICTURES, "needs the model's tokenizer"),
        ("no_such:function", TEXTS, "cannot import no_such"),
    ],
)
def test_what_cannot_be_is_refused(what, config, words):
    with pytest.raises(UserError, match=f"--observable {what.replace('(', '.')}.*{words}"):
        build(what, config, "--observable")


def test_a_python_model_is_built_only_if_asked():
    model = {"kind": "python", "factory": "no_such:make"}
    with pytest.raises(UserError, match="no_such"):
        build("length", config_with(model=model), "--observable")
    with pytest.raises(UserError, match="length reads inputs as the model's own render"):
        build("length", config_with(model=model), "--observable", render=False)


def test_the_class_of_a_classifier(tmp_path):
    """The class is the one whose logit is the largest, whatever z is."""
    image_models.save(tmp_path / "net", "mlp", SHAPES["grey"], n_outputs=4)
    x = np.random.default_rng(3).integers(11, size=(300, 20))
    table = {"kind": "image-classifier", "path": str(tmp_path / "net"), "target": "logit"}
    logits = []
    for label in range(4):
        model = models.build(config_with(model={**table, "label": label}), "cpu")
        logits.append(model.output(torch.from_numpy(x)).numpy())
    found = build("class", config_with(model={**table, "label": "any"}), "--observable")(x)
    np.testing.assert_array_equal(found, np.argmax(logits, axis=0))
    assert len(np.unique(found)) > 1
    image_models.save(tmp_path / "one", "mlp", SHAPES["grey"], n_outputs=1)
    one = config_with(model={**table, "path": str(tmp_path / "one")})
    z = models.build(one, "cpu").output(torch.from_numpy(x)).numpy()
    found = build("class", one, "--observable")(x)
    np.testing.assert_array_equal(found, z > 0)
    assert len(np.unique(found)) == 2
    save_classifier(tmp_path / "score", n_classes=1)
    score = {"kind": "sequence-classifier", "path": str(tmp_path / "score"), "length": 4}
    score |= {"target": 0, "output": "logit"}
    with pytest.raises(UserError, match="class: this run's model has one output, a score"):
        build("class", config_with(model=score), "--observable")
    with pytest.raises(UserError, match="class is for classifiers; this run's model is a causal"):
        build("class", TEXTS, "--observable")


def test_a_function_may_write_into_the_inputs_that_it_gets(own):
    x = X[:, ::-1].copy()
    found = [build(f"my_numbers:{name}", TEXTS, "--add")(x) for name in ("sorts", "first")]
    assert [y.tolist() for y in found] == [[1.0, 1.0], [8.0, 1.0]]
