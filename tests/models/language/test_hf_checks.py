"""Folders that are not what they say: refused before transformers' classes are made of them."""

import json
import os

import pytest
from language_folders import save_classifier, save_decoder

from omniinput_hpc.config import CausalLm, SequenceClassifier
from omniinput_hpc.errors import UserError
from omniinput_hpc.models.language import causal_lm, hf_checks, hf_folder, sequence_classifier


@pytest.fixture
def folder(tmp_path):
    return save_decoder("gpt2", tmp_path)


def change(folder, name="config.json", **keys):
    file = folder / name
    old = json.loads(file.read_text()) if file.exists() else {}
    file.write_text(json.dumps({**old, **keys}))


def refused(folder, build=False):
    options = CausalLm(kind="causal-lm", path=str(folder), length=7)
    with pytest.raises(UserError) as caught:
        causal_lm.build(options, "cpu") if build else hf_folder.preflight(options)
    return str(caught.value)


@pytest.mark.timeout(20)
@pytest.mark.parametrize(
    ("keys", "words"),
    [
        ({"n_layer": 100_000}, "n_layer is too large: 100,000, at most 2,000"),
        ({"n_layer": 1999}, "n_layer is 1,999, and the weights hold 28 tensors"),
        ({"text_config": {"n_layer": 10**12}}, "text_config.n_layer is too large"),
        ({"attention_types": [[["global"], 10**9]]}, "attention_types[0][1] is too large"),
        ({"num_experts": 10**9}, "num_experts is too large"),
        ({"num_labels": 10**9}, "num_labels is too large"),
        ({"n_embd": 10**12}, "n_embd is too large"),
        ({"vocab_size": 10**6}, "no tensor of the weights has as many rows"),
        ({"vocab_size": True}, "no usable vocab_size"),
        ({"vocab_size": "29"}, "no usable vocab_size"),
        ({"model_type": 3}, "no usable model_type"),
        ({"model_type": "../gpt2"}, "no usable model_type"),
        ({"configuration_files": ["config.4.0.0.json"]}, "configuration_files names other files"),
        ({"transformers_weights": "x.safetensors"}, "transformers_weights names a file of"),
        ({"attn_implementation": "someone/kernels"}, "names code of a hub"),
    ],
)
def test_settings_are_refused(folder, keys, words):
    change(folder, **keys)
    assert words in refused(folder)


@pytest.mark.timeout(60)
@pytest.mark.parametrize(
    ("keys", "words"),
    [
        ({"n_embd": 16_384}, "describes a model of 6,44"),  # 6.4e9 weights
        ({"n_inner": 10**6}, "are they of this model?"),
        ({"n_positions": 10**5}, "are they of this model?"),
        ({"activation_function": "none"}, "cannot be loaded"),
        ({"dtype": "no_such"}, "cannot be loaded"),
        ({"model_type": "no-such"}, "cannot be loaded"),
    ],
)
def test_models_that_are_not_their_weights_are_refused(folder, keys, words):
    change(folder, **keys)
    assert words in refused(folder, build=True)


def test_files_that_transformers_would_read_are_checked(folder):
    change(folder, "adapter_config.json", base_model_name_or_path="elsewhere")
    assert "it holds an adapter" in refused(folder)
    (folder / "adapter_config.json").unlink()
    change(folder, "model.safetensors.index.json", weight_map={"a": "../other.safetensors"})
    assert "must name *.safetensors of the folder" in refused(folder)
    (folder / "model.safetensors.index.json").unlink()
    (folder / "generation_config.json").write_text("[" * 100_000)
    assert "generation_config.json is not valid JSON: nested too deeply" in refused(folder)
    (folder / "generation_config.json").unlink()
    os.mkfifo(folder / "generation_config.json")
    assert "it is a named pipe" in refused(folder)
    (folder / "generation_config.json").unlink()
    (folder / "shard-00000-model-00001-of-00001.safetensors").touch()
    assert "distributed checkpoints are not read" in refused(folder)


@pytest.mark.parametrize(
    "name", ["config.json", "tokenizer.json", "tokenizer_config.json", "model.safetensors"]
)
@pytest.mark.timeout(20)
def test_pipes_and_devices_are_refused(folder, name):
    for make in (os.mkfifo, lambda path: path.symlink_to("/dev/zero")):
        (folder / name).unlink(missing_ok=True)
        make(folder / name)
        assert "not a regular file" in refused(folder)


def test_numbers_of_classes(tmp_path):
    folder = save_classifier(tmp_path)
    keys = {"kind": "sequence-classifier", "path": str(folder), "length": 7, "target": 0}
    options = SequenceClassifier(**keys)
    hf_folder.preflight(options)
    assert sequence_classifier.build(options, "cpu").n_sites == 5
    for value in (7.5, "two", [1, 2], True, -1):
        change(folder, num_labels=value, id2label=None)
        with pytest.raises(UserError, match="no usable id2label or num_labels"):
            hf_folder.preflight(options)


def test_tables_beside_the_weights_have_a_limit(folder):
    tensors = hf_checks.read_tensors([folder / "model.safetensors"])
    hf_checks.check_numbers(7000, 2**28, tensors, {}, folder)
    with pytest.raises(UserError, match="with tables of 268,435,457 numbers beside its 7,000"):
        hf_checks.check_numbers(7000, 2**28 + 1, tensors, {}, folder)
    hf_checks.check_numbers(100_000, 0, tensors, {"quantization_config": {"bits": 4}}, folder)
    with pytest.raises(UserError, match="a model of 100,000 weights"):
        hf_checks.check_numbers(100_000, 0, tensors, {}, folder)


@pytest.mark.parametrize(
    ("key", "value", "words"),
    [
        ("n_head", 3, "n_embd = 16 is no multiple of n_head = 3"),
        ("n_head", 0, "n_head = 0 is not usable; it must be a whole number of at least 1"),
        ("n_layer", -1, "must be a whole number of at least 1"),
        ("n_layer", [2], "n_layer = [2] is not usable"),
        ("n_embd", "16", "n_embd = '16' is not usable"),
        ("n_positions", True, "must be a whole number of at least 1"),
        ("n_inner", "x", "must be a whole number"),
        ("layer_norm_epsilon", "small", "must be a number from 0 to 1"),
        ("resid_pdrop", 2, "must be a number from 0 to 1"),
        ("attn_implementation", 3, "must be a name"),
        ("id2label", ["a"], "must be a table"),
        ("rope_scaling", 3, "must be a table"),
        ("to_dict", "x", "it is no setting"),
        ("__class__", "x", "it is no setting"),
    ],
)
def test_wrong_types_are_found_before_transformers_is_imported(folder, key, value, words):
    change(folder, **{key: value})
    text = refused(folder)
    assert words in text and str(folder / "config.json") in text


def test_limits_leave_room_for_models_that_there_are():
    config = {
        "model_type": "llama", "vocab_size": 262_400, "num_hidden_layers": 126, "num_experts": 512,
        "max_position_embeddings": 10_485_760, "rope_theta": 500_000_000, "hidden_size": 53_248,
        "eos_token_id": [128_001, 128_009], "id2label": {str(i): "x" for i in range(21_843)},
        "layer_norm_eps": 1e-5, "classifier_dropout": None, "pad_token_id": -1,
        "max_window_layers": 70,
        "quantization_config": {"weight_block_size": [128, 128], "group_size": 4096},
    }  # fmt: skip
    hf_checks.check_settings(config, None)
