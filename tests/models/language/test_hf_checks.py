"""Folders that are not what they say: refused before transformers' classes are made of them."""

import json
import os

import pytest
import torch
from language_folders import V, save_classifier, save_decoder
from safetensors.torch import save_file

from omniinput_hpc.config import CausalLm, SequenceClassifier
from omniinput_hpc.errors import UserError
from omniinput_hpc.models.language import causal_lm, hf_checks, hf_folder, sequence_classifier
from omniinput_hpc.untrusted.safetensors_header import Tensor


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


@pytest.mark.timeout(240)
@pytest.mark.parametrize(
    ("keys", "words"),
    [
        ({"n_layer": 100_000}, "n_layer is too large: 100,000, at most 2,000"),
        ({"text_config": {"n_layer": 10**12}}, "text_config.n_layer is too large"),
        ({"attention_types": [[["global"], 10**9]]}, "attention_types[0][1] is too large"),
        ({"num_experts": 10**9}, "num_experts is too large"),
        ({"num_labels": 10**9}, "num_labels is too large"),
        ({"n_embd": 10**12}, "n_embd is too large"),
        ({"vocab_size": 10**8}, "no usable vocab_size"),
        ({"vocab_size": True}, "no usable vocab_size"),
        ({"vocab_size": "29"}, "no usable vocab_size"),
        ({"model_type": 3}, "no usable model_type"),
        ({"model_type": "../gpt2"}, "no usable model_type"),
        (
            {"configuration_files": ["config.4.0.0.json"]},
            "configuration_files names other settings",
        ),
        ({"transformers_weights": "x.safetensors"}, "transformers_weights names a file of"),
        ({"attn_implementation": "someone/kernels"}, "names code on a hub"),
    ],
)
def test_settings_are_refused(folder, keys, words):
    change(folder, **keys)
    assert words in refused(folder)


@pytest.mark.timeout(240)
@pytest.mark.parametrize(
    ("keys", "words"),
    [
        ({"n_layer": 1999}, "describes 1,999 layers, but the weights hold 28 tensors"),
        ({"vocab_size": 10**6}, "describes a model of 16,00"),
        ({"n_embd": 16_384}, "describes a model of 6,44"),  # 6.4e9 weights
        ({"n_inner": 10**6}, "do they belong to this model?"),
        ({"n_positions": 10**5}, "do they belong to this model?"),
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
    assert "must name *.safetensors in the folder" in refused(folder)
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
@pytest.mark.timeout(240)
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
        with pytest.raises(UserError):
            sequence_classifier.build(options, "cpu")


def test_tables_beside_the_weights_have_a_limit(folder):
    tensors = hf_checks.read_tensors([folder / "model.safetensors"])
    hf_checks.check_numbers(7000, 2**28, tensors, {}, folder)
    with pytest.raises(UserError, match="with tables of 268,435,457 numbers beside its 7,000"):
        hf_checks.check_numbers(7000, 2**28 + 1, tensors, {}, folder)
    hf_checks.check_numbers(100_000, 0, tensors, {"quantization_config": {"bits": 4}}, folder)
    with pytest.raises(UserError, match="a model of 100,000 weights"):
        hf_checks.check_numbers(100_000, 0, tensors, {}, folder)


@pytest.mark.timeout(60)
@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("n_head", 3), ("n_head", 0), ("n_head", -2), ("n_layer", -1), ("n_layer", [2]),
        ("n_embd", "16"), ("n_positions", True), ("n_inner", "x"), ("layer_norm_epsilon", "small"),
        ("resid_pdrop", 2), ("attn_implementation", 3), ("id2label", ["a"]), ("rope_scaling", 3),
    ],
)  # fmt: skip
def test_settings_that_do_not_fit_are_refused_by_transformers_in_our_words(folder, key, value):
    change(folder, **{key: value})
    text = refused(folder, build=True)
    assert str(folder) in text and "\n" not in text


@pytest.mark.parametrize("key", ["to_dict", "__class__"])
def test_a_key_in_the_place_of_a_method_is_refused(folder, key):
    change(folder, **{key: "x"})
    assert f"{folder / 'config.json'}: {key} is not a setting" in refused(folder)


def test_the_vocabulary_of_nested_settings_is_found(folder):
    file = folder / "config.json"
    nested = {"model_type": "gpt2", "text_config": {"vocab_size": 7}, "vocab_size": 9}
    assert hf_checks.vocabulary_size(nested, file) == 7
    change(folder, model_type="gemma3", text_config={"hidden_size": 16})  # 262,208 by default
    config = hf_checks.read_settings(folder, "config.json")
    assert hf_checks.vocabulary_size(config, file) == 262_208
    change(folder, n_words=31, model_type="xlm")
    config = hf_checks.read_settings(folder, "config.json")
    assert hf_checks.vocabulary_size({**config, "text_config": None}, file) == V


def test_an_old_name_of_the_vocabulary_is_one(tmp_path):
    (tmp_path / "config.json").write_text('{"model_type": "xlm", "n_words": 31}')
    config = hf_checks.read_settings(tmp_path, "config.json")
    assert hf_checks.vocabulary_size(config, tmp_path / "config.json") == 31
    (tmp_path / "config.json").write_text('{"model_type": "canine"}')
    with pytest.raises(UserError, match="type canine has no fixed vocabulary"):
        hf_checks.vocabulary_size({"model_type": "canine"}, tmp_path / "config.json")


def save(folder, name, **tensors):
    save_file(tensors, folder / name, metadata={"format": "pt"})


def test_the_files_are_those_that_transformers_reads(tmp_path):
    one, two, all_of = "model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors", []
    index = {"weight_map": {"a": one, "b": two}}
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps(index))
    save(tmp_path, one, a=torch.zeros(2))
    all_of = sorted(tmp_path.glob("*.safetensors"))
    with pytest.raises(UserError, match=f"names {two}, which is not in the folder"):
        hf_checks.files_read(tmp_path, all_of)
    save(tmp_path, two, a=torch.zeros(2), b=torch.zeros(2))
    save(tmp_path, "consolidated.safetensors", a=torch.zeros(2))
    all_of = sorted(tmp_path.glob("*.safetensors"))
    read = hf_checks.files_read(tmp_path, all_of)
    assert [file.name for file in read] == [one, two]
    with pytest.raises(UserError, match="another file in the folder also holds a"):
        hf_checks.read_tensors(read)
    save(tmp_path, "model.safetensors", a=torch.zeros(2))
    with pytest.raises(UserError, match="keep only one of the two models there"):
        hf_checks.files_read(tmp_path, sorted(tmp_path.glob("*.safetensors")))


@pytest.mark.parametrize(
    ("name", "dtype", "words"),
    [
        ("q.weight", "F8_E4M3", "stored as F8_E4M3, but config.json has no quantization_config"),
        ("q.weight", "I8", "stored as I8"),
        ("q.weight", "U8", "stored as U8"),
        ("q.lora_A.weight", "F32", "q.lora_A.weight is part of an adapter"),
        ("base_layer.weight", "F32", "merge it into the model"),
        ("q.lora_embedding_B", "F32", "is part of an adapter"),
    ],
)
def test_codes_without_a_scheme_and_adapters_are_refused(name, dtype, words, tmp_path):
    tensors = {"a.weight": Tensor("F32", (2, 2)), name: Tensor(dtype, (2, 2))}
    with pytest.raises(UserError) as caught:
        hf_checks.check_tensors(tensors, False, tmp_path)
    assert words in str(caught.value)
    mask = {"h.0.attn.bias": Tensor("U8", (1, 1, 4, 4)), "a.weight": Tensor("BF16", (2, 2))}
    hf_checks.check_tensors(mask, False, tmp_path)


def test_weights_of_8_bits_need_their_scale(tmp_path):
    tensors = {"q.weight": Tensor("F8_E4M3", (4, 4)), "q.weight_scale_inv": Tensor("F32", (1, 1))}
    hf_checks.check_tensors(tensors, True, tmp_path)
    with pytest.raises(UserError, match="no tensor holds its scale"):
        hf_checks.check_tensors({**tensors, "k.weight": Tensor("F8_E4M3", (4, 4))}, True, tmp_path)


def test_limits_leave_room_for_models_that_there_are():
    config = {
        "model_type": "llama", "vocab_size": 262_400, "num_hidden_layers": 126, "num_experts": 512,
        "max_position_embeddings": 10_485_760, "rope_theta": 500_000_000, "hidden_size": 53_248,
        "eos_token_id": [128_001, 128_009], "id2label": {str(i): "x" for i in range(21_843)},
        "layer_norm_eps": 1e-5, "classifier_dropout": None, "pad_token_id": -1,
        "max_window_layers": 70, "hidden_dropout": 0.1, "token_dropout": False, "n_head": 3,
        "n_embd": 16, "text_config": {"rope_theta": 45_881_793_536},
        "quantization_config": {"weight_block_size": [128, 128], "group_size": 4096},
    }  # fmt: skip
    hf_checks.check_settings(config, None)
