"""A model's files, checked without torch: what is refused, and which tokens are allowed."""

import json
import os
import subprocess
import sys

import numpy as np
import pytest
import torch
from huggingface_hub import constants, snapshot_download
from huggingface_hub.errors import LocalEntryNotFoundError
from language_folders import WORDS, V, save_decoder, save_tokenizer
from safetensors.torch import load_file, save_file
from transformers import BertConfig, BertLMHeadModel

from omniinput_hpc.config import CausalLm
from omniinput_hpc.errors import UserError
from omniinput_hpc.models.language import causal_lm, hf_architectures, hf_folder, tokenizer


@pytest.fixture
def folder(tmp_path):
    return save_decoder("gpt2", tmp_path)


def options(folder, **keys):
    return CausalLm(**{"kind": "causal-lm", "path": str(folder), "length": 7, **keys})


def refused(folder, **keys):
    with pytest.raises(UserError) as caught:
        hf_folder.preflight(options(folder, **keys))
    return str(caught.value)


def test_preflight_reads_the_files_without_torch(folder):
    about = hf_folder.preflight(options(folder))
    assert (about["n_values"], about["n_sites"], about["folder"]) == (V, 7, str(folder))
    numbers = sum(t.numel() for t in load_file(folder / "model.safetensors").values())
    assert about["bytes"] == 4 * numbers
    assert hf_folder.preflight(options(folder, dtype="float16"))["bytes"] == 2 * numbers
    assert hf_folder.preflight(options(folder))["fingerprint"] == about["fingerprint"]
    config = folder / "config.json"
    config.write_text(config.read_text() + "\n")
    assert hf_folder.preflight(options(folder))["fingerprint"] != about["fingerprint"]


def test_allowed_tokens_are_neither_special_nor_padding(folder):
    words = tokenizer.read(folder)
    allowed = hf_folder.tokens_of(options(folder, tokens="no-special"), folder, V, words)
    assert allowed.tolist() == list(range(2, len(WORDS)))
    about = hf_folder.preflight(options(folder, tokens="no-special"))
    assert about["n_values"] == len(WORDS) - 2
    (folder / "tokenizer.json").unlink()
    assert 'model.tokens = "no-special" needs a tokenizer' in refused(folder, tokens="no-special")
    (folder / "tokenizer.model").touch()
    assert "save_pretrained(...) writes a tokenizer.json" in refused(folder, prefix="a")


def test_a_tokenizer_may_have_tokens_that_the_model_lacks_where_none_is_needed(folder):
    save_tokenizer(folder, [*WORDS, *"0123"])  # 30 tokens of a model of 29 values
    for prefix in (None, "a2", [28]):
        assert hf_folder.preflight(options(folder, prefix=prefix))["n_values"] == V
    for prefix in ("a3", [2, 29]):
        told = refused(folder, prefix=prefix)
        assert "model.prefix: the token '3' (29) is not one of the model's 29 tokens" in told
    values = hf_folder.encoder(options(folder))
    assert values("a2") == [2, 28] and values("a3") == [2, -1]  # no site takes it
    assert hf_folder.display(options(folder)).show(np.array([[2, 28]])) == ["a2"]
    (folder / "tokenizer.json").write_text("{")
    assert "cannot be read as a tokenizer" in refused(folder)


def test_length_and_prefix(folder):
    def too_long(**keys):
        with pytest.raises(UserError) as caught:
            causal_lm.build(options(folder, **keys), "cpu")
        return str(caught.value)

    assert "model.length = 17 is beyond the 16 positions" in too_long(length=17)
    keys = {"length": 14, "prefix": "abc"}
    assert "with its prefix of 3 tokens is beyond the 16 positions" in too_long(**keys)
    causal_lm.build(options(folder, length=13, prefix="abc"), "cpu")
    assert f"{V} is not one of the model's {V} tokens" in refused(folder, prefix=[1, V])


def test_what_is_refused(folder):
    config = folder / "config.json"
    text = config.read_text()
    config.write_text(json.dumps({**json.loads(text), "auto_map": {"AutoModel": "evil.py"}}))
    assert "requires custom code" in refused(folder)
    config.write_text("{")
    assert "not valid JSON" in refused(folder)
    config.write_text("[]")
    assert "does not hold a table" in refused(folder)
    config.write_text(text)
    weights = folder / "model.safetensors"
    weights.rename(folder / "pytorch_model.bin")
    assert "never loaded" in refused(folder)
    (folder / "pytorch_model.bin").unlink()
    assert "weights not found" in refused(folder)
    config.unlink()
    assert "no config.json" in refused(folder)
    assert "no such folder" in refused(folder / "nothing")


def test_a_hub_name_that_is_not_here_names_the_download():
    message = refused("allenai/OLMo-7B-hf")
    assert "hf download allenai/OLMo-7B-hf --include '*.json'" in message
    assert "no such folder" in message


def cached(folder, home):
    """Move a folder into a cache of the hub as "someone/small", with links to its files."""
    model = home / "hub" / "models--someone--small"
    snapshot, blobs = model / "snapshots" / ("0" * 40), model / "blobs"
    for made in (snapshot, blobs, model / "refs"):
        made.mkdir(parents=True)
    (model / "refs" / "main").write_text("0" * 40)
    for number, file in enumerate(sorted(folder.iterdir())):
        file.rename(blobs / str(number))
        (snapshot / file.name).symlink_to(f"../../blobs/{number}")
    return snapshot


def test_a_hub_name_is_found_in_the_cache(folder, tmp_path_factory, monkeypatch):
    home = tmp_path_factory.mktemp("hub")
    snapshot = cached(folder, home)
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(home / "hub"))
    about = hf_folder.preflight(options("someone/small"))
    assert about["folder"] == str(snapshot)
    assert causal_lm.build(options("someone/small"), "cpu").n_values == V
    (snapshot / "model.safetensors").unlink()
    message = refused("someone/small")
    assert "weights not found" in message and "hf download someone/small" in message


def test_a_download_of_some_files_is_enough(folder, tmp_path_factory, monkeypatch):
    """The hub's client calls a snapshot incomplete that lacks files which nobody asked for."""
    tree_cache = pytest.importorskip("huggingface_hub._tree_cache")
    home = tmp_path_factory.mktemp("hub")
    snapshot = cached(folder, home)
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(home / "hub"))
    names = ["config.json", "pytorch_model.bin"]
    entries = {name: tree_cache.TreeCacheEntry(size=1, blob_id="0" * 40) for name in names}
    tree_cache.write_tree_cache(str(snapshot.parent.parent), "0" * 40, entries)
    with pytest.raises(LocalEntryNotFoundError):
        snapshot_download("someone/small", local_files_only=True)
    assert hf_folder.resolve("someone/small") == snapshot


CACHE_TRIAL = """
import os, sys

def refuse(event, arguments):
    changes = ("os.mkdir", "os.rename", "os.link", "os.symlink", "os.remove", "os.chmod")
    writes = event == "open" and isinstance(arguments[2], int) and arguments[2] & 3
    for path in arguments if writes or event in changes else ():
        if "/HOME/" in str(path) or "/link/" in str(path):
            raise PermissionError(13, "read-only", path)

sys.addaudithook(refuse)
from omniinput_hpc.config import CausalLm
from omniinput_hpc.models.language import causal_lm, hf_folder
options = CausalLm(kind="causal-lm", path="someone/small", length=7)
about = hf_folder.preflight(options)
print(about["folder"], causal_lm.build(options, "cpu").n_values)
"""


def test_a_cache_elsewhere_behind_a_link_and_read_only(folder, tmp_path_factory):
    """`HF_HOME` is read when the hub's client is imported."""
    place = tmp_path_factory.mktemp("shared")
    home, link = place / "HOME", place / "link"
    cached(folder, home)
    link.symlink_to(home)
    environment = {**os.environ, "HF_HOME": str(link)}
    environment.pop("HF_HUB_CACHE", None)
    run = subprocess.run(
        [sys.executable, "-c", CACHE_TRIAL],
        env=environment, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert run.stdout.split()[1:] == [str(V)], run.stderr
    assert run.stdout.startswith(str(place))


def test_broken_weights_are_bad_input(folder):
    file = folder / "model.safetensors"
    whole = file.read_bytes()
    file.write_bytes(b"not safetensors at all")
    assert "cannot be loaded as safetensors" in refused(folder)
    file.write_bytes(whole[: len(whole) // 2])
    assert "cannot be loaded as safetensors" in refused(folder)
    with pytest.raises(UserError, match="cannot be loaded"):
        causal_lm.build(options(folder), "cpu")


def change_weights(folder, change):
    file = folder / "model.safetensors"
    weights = load_file(file)
    change(weights)
    save_file(weights, file, metadata={"format": "pt"})


def test_weights_that_are_not_finite_are_bad_input(folder):
    def spoil(weights):
        weights["transformer.h.0.mlp.c_fc.weight"][0, 0] = torch.nan

    change_weights(folder, spoil)
    with pytest.raises(UserError, match=r"weights of transformer\.h\.0\.mlp.* NaN or infinite"):
        causal_lm.build(options(folder), "cpu")


def test_float16_that_overflows_is_bad_input(folder):
    def enlarge(weights):
        weights["transformer.ln_f.weight"][0] = 1e5

    change_weights(folder, enlarge)
    causal_lm.build(options(folder), "cpu")
    with pytest.raises(UserError, match=r'infinite in float16; .* model\.dtype = "bfloat16"'):
        causal_lm.build(options(folder, dtype="float16"), "cpu")


def test_missing_weights_are_not_made_up(folder):
    change_weights(folder, lambda weights: weights.pop("transformer.h.1.attn.c_attn.weight"))
    with pytest.raises(UserError, match=r"do not fit a GPT2LMHeadModel \(missing keys"):
        causal_lm.build(options(folder), "cpu")


@pytest.mark.parametrize("kind", ["no-such", "t5"])
def test_an_architecture_of_another_task_is_refused_before_transformers_is_imported(folder, kind):
    config = folder / "config.json"
    config.write_text(json.dumps({**json.loads(config.read_text()), "model_type": kind}))
    code = (
        "import sys; from omniinput_hpc.config import CausalLm; "
        "from omniinput_hpc.errors import UserError; "
        "from omniinput_hpc.models.language import hf_folder\n"
        f"try: hf_folder.preflight(CausalLm(kind='causal-lm', path={str(folder)!r}, length=7))\n"
        "except UserError as error: print(error)\n"
        "print('transformers' in sys.modules)"
    )
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    reason, imported = said.stdout.splitlines()
    assert f'model_type is "{kind}", which the installed transformers does not know as' in reason
    assert imported == "False"


@pytest.mark.parametrize("kind", hf_architectures._TABLES)
def test_the_names_are_those_of_transformers(kind):
    from transformers.models.auto import modeling_auto

    table, _ = hf_architectures._TABLES[kind]
    assert hf_architectures._names(table) == set(getattr(modeling_auto, table)) != set()


@pytest.mark.parametrize("is_decoder", [False, True])
def test_an_encoder_is_no_causal_language_model(tmp_path, is_decoder):
    torch.manual_seed(4)
    sizes = {"hidden_size": 16, "intermediate_size": 32, "max_position_embeddings": 16}
    layers = {"num_hidden_layers": 2, "num_attention_heads": 2}
    config = BertConfig(vocab_size=V, is_decoder=is_decoder, **sizes, **layers)
    BertLMHeadModel(config).save_pretrained(tmp_path)
    if is_decoder:
        causal_lm.build(options(tmp_path), "cpu")
    else:
        with pytest.raises(UserError, match="depend on later tokens"):
            causal_lm.build(options(tmp_path), "cpu")
