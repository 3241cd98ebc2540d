"""From MODEL to [model]: what a folder, a name or a function is, and what is refused."""

import json
import os

import pytest
from run_tools import ROOT

from omniinput_hpc.config import input_file
from omniinput_hpc.errors import UserError
from omniinput_hpc.pilot import model_table

MODELS = ROOT / "inputs/models"


def written(folder, name, content):
    folder.mkdir(exist_ok=True)
    (folder / name).write_text(json.dumps(content))
    return str(folder)


@pytest.mark.parametrize(("name", "keys"), [
    ("english", {"kind": "causal-lm", "length": 25}),
    ("toy", {"kind": "causal-lm", "length": 8}),  # it has 8 positions
    ("digits-cnn", {"kind": "image-classifier", "target": "logit"}),
    ("digits-mlp-gen", {"kind": "image-classifier", "target": "log-likelihood"}),
])  # fmt: skip
def test_the_repositorys_models(name, keys):
    path = str(MODELS / name)
    assert model_table.of(path, None, None) == {**keys, "path": path}


def test_every_model_of_the_repository_has_a_kind():
    for folder in sorted(os.listdir(MODELS)):
        assert model_table.of(str(MODELS / folder), None, None)["kind"] in model_table.KINDS


def test_a_classifier_of_texts_and_a_function(tmp_path):
    config = {"architectures": ["BertForSequenceClassification"], "model_type": "bert",
              "vocab_size": 30, "num_labels": 2, "max_position_embeddings": 64}  # fmt: skip
    path = written(tmp_path / "bert", "config.json", config)
    table = model_table.of(path, None, 12)
    assert table == {"kind": "sequence-classifier", "path": path, "length": 12, "target": 1,
                     "output": "logit"}  # fmt: skip
    assert model_table.of("my_nets:make", None, None) == {
        "kind": "python", "factory": "my_nets:make"
    }  # fmt: skip


def test_a_network_of_ones_own_is_asked_how_sure_it_is_of_any_class():
    path = str(MODELS / "digits-cnn/model.safetensors")
    sure = {"target": "log-softmax", "label": "any"}
    table = {"kind": "image-classifier", "path": path, **sure}
    assert model_table.of(path, None, None, own=True) == table
    assert model_table.of("my_nets:make", None, None, own=True)["kind"] == "python"


@pytest.mark.parametrize(("model", "length", "words"), [
    ("nowhere/at/all/x", None, "no such folder"),
    ("my_nets:make", 25, "--length is for texts"),
    (str(MODELS / "digits-cnn"), 25, "--length is for texts"),
    (str(MODELS / "digits-cnn/model.safetensors"), None, "is a file: give --set model.factory="),
    (str(MODELS / "digits-cnn/model.json"), None, "is a file: give a folder"),
])  # fmt: skip
def test_what_is_no_model_is_refused(model, length, words):
    with pytest.raises(UserError, match=words) as refused:
        model_table.of(model, None, length)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(("table", "conditionals", "side"), [
    ({"kind": "causal-lm"}, True, "low"),
    ({"kind": "image-classifier"}, False, "high"),
    ({"kind": "image-classifier", "sign": -1}, False, "low"),
    ({"kind": "sequence-classifier"}, False, "high"),
    ({"kind": "python"}, True, "low"),
    ({"kind": "python"}, False, "high"),
])  # fmt: skip
def test_the_side(table, conditionals, side):
    assert model_table.default_side(table, conditionals) == side


@pytest.mark.parametrize(("kind", "side"), [("causal-lm", "low"), ("image-classifier", "high")])
def test_the_side_is_that_of_the_repositorys_own_inputs(kind, side):
    for path in sorted((ROOT / "inputs").glob("*.toml")):
        config = input_file.load(path)
        if config.model.kind == kind and config.analysis and config.analysis.side:
            assert config.analysis.side == side, path


@pytest.mark.parametrize(("model", "name"), [
    ("inputs/models/english", "english"), ("openai-community/gpt2", "gpt2"),
    ("a.my_nets:make", "my_nets"), ("./", "my"), ("a b/c d", "c-d"),
    ("nets/cnn.safetensors", "cnn"), ("rna.dat", "rna"),
])  # fmt: skip
def test_the_name_of_files(model, name):
    assert model_table.name_of(model) == name
