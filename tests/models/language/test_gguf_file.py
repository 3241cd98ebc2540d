"""Language models in GGUF files: outputs, tokens, and files that lie."""

import struct
from types import SimpleNamespace

import gguf
import numpy as np
import pytest
import torch
from gguf_models import CONTROL, TOKENS, save_gguf
from language_folders import save_decoder

from omniinput_hpc.config import CausalLm
from omniinput_hpc.errors import UserError
from omniinput_hpc.models import constraint
from omniinput_hpc.models.language import causal_lm, gguf_file, hf_folder, tokenizer

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")


@pytest.fixture
def path(tmp_path):
    save_gguf("llama", tmp_path / "small.gguf")
    return tmp_path / "small.gguf"


def options(path, **keys):
    return CausalLm(**{"kind": "causal-lm", "path": str(path), "length": 7, **keys})


def refused(path, **keys):
    with pytest.raises(UserError) as caught:
        hf_folder.preflight(options(path, **keys))
    return str(caught.value)


@pytest.mark.slow
@pytest.mark.parametrize("architecture", gguf_file.ARCHITECTURES)
def test_the_outputs_are_those_of_the_dequantized_weights(architecture, tmp_path):
    reference = save_gguf(architecture, tmp_path / "small.gguf")
    model = causal_lm.build(options(tmp_path / "small.gguf"), "cpu")
    x = torch.randint(len(TOKENS), (6, 7), generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        loss = torch.stack([reference(input_ids=row[None], labels=row[None]).loss for row in x])
    torch.testing.assert_close(model.output(x), loss, rtol=0, atol=2e-6)
    z, log_p = model.conditional_logits(x)
    torch.testing.assert_close(z, loss, rtol=0, atol=2e-6)
    chosen = log_p[:, 1:].gather(2, x[:, 1:, None]).squeeze(2)
    torch.testing.assert_close(-chosen.mean(dim=1), loss, rtol=0, atol=2e-6)
    other = save_gguf(architecture, tmp_path / "other.gguf", seed=4)
    with torch.no_grad():
        wrong = torch.stack([other(input_ids=row[None], labels=row[None]).loss for row in x])
    assert (wrong - loss).abs().min() > 1e-3  # other weights would have shown


def test_preflight_reads_the_header_alone(path):
    about = hf_folder.preflight(options(path))
    assert (about["n_values"], about["n_sites"]) == (len(TOKENS), 7)
    assert about["fingerprint"] == hf_folder.preflight(options(path))["fingerprint"]
    n_before = hf_folder.preflight(options(path, tokens="no-special"))["n_values"]
    assert n_before == len(TOKENS) - len(CONTROL)


def test_a_folder_with_one_file_is_that_file(path):
    assert hf_folder.resolve(str(path.parent)) == path
    (path.parent / "second.gguf").write_bytes(path.read_bytes())
    assert "2 GGUF files" in refused(path.parent)
    assert hf_folder.resolve(str(path)) == path


def test_a_folder_of_safetensors_stays_one(tmp_path):
    folder = save_decoder("gpt2", tmp_path)
    (folder / "small.gguf").write_bytes(b"GGUF")
    assert hf_folder.resolve(str(folder)) == folder


def test_texts_are_cut_and_merged_as_the_file_says(path):
    words = tokenizer.read(path)
    assert words.decode(words.encode("abcd ef 12")) == "abcd ef 12"
    assert [TOKENS[i] for i in words.encode("abcd12")] == ["abcd", "1", "2"]
    assert words.encode("<|user|>a") == [1, TOKENS.index("a")]
    assert words.special == {0, 1}


def test_texts_of_an_unknown_tokenizer_are_shown_and_not_encoded(tmp_path):
    save_gguf("llama", tmp_path / "small.gguf", pre="a-new-one")
    words = tokenizer.read(tmp_path / "small.gguf")
    assert words.decode([2, 3]) == "ab"
    with pytest.raises(UserError, match="a-new-one"):
        words.encode("ab")


def test_what_cannot_be_a_model_is_refused(path):
    whole = path.read_bytes()
    for end in (0, 3, 30, 200, len(whole) // 3, len(whole) - 40):
        path.write_bytes(whole[:end])
        assert "cannot be loaded as GGUF" in refused(path)
    path.write_bytes(whole + bytes(64))
    assert "64 bytes follow" in refused(path)
    path.write_bytes(whole.replace(b"llama.block_count", b"llama.block_comma"))
    assert hf_folder.preflight(options(path))  # transformers' own default: found when it is loaded
    place = whole.index(b"llama.block_count") + len(b"llama.block_count") + 4
    path.write_bytes(whole[:place] + struct.pack("<I", 1500) + whole[place + 4 :])
    with pytest.raises(UserError, match="describes 1,500 layers, but the weights hold 21 tensors"):
        causal_lm.build(options(path), "cpu")
    path.write_bytes(whole[:place] + struct.pack("<I", 1) + whole[place + 4 :])
    assert "llama.block_count is 1, but the file holds 2 blocks" in refused(path)
    path.write_bytes(whole.replace(b"general.architecture\x08\x00\x00\x00\x05\x00\x00\x00\x00\x00"
                                   b"\x00\x00llama", b"general.architecture\x08\x00\x00\x00\x05"
                                   b"\x00\x00\x00\x00\x00\x00\x00mamba"))  # fmt: skip
    assert "architecture is 'mamba'" in refused(path)


@pytest.mark.parametrize(
    "name", ["rope_freqs.weight", "blk.0.attn_q.bias", "blk.1.ffn_gate_inp.weight"]
)
def test_a_tensor_that_would_be_left_out_is_refused(tmp_path, name):
    save_gguf("llama", tmp_path / "small.gguf", more=[(name, np.ones(64, np.float32))])
    assert f"transformers does not read the tensor {name} of a llama" in refused(tmp_path)


NONE, LINEAR, YARN = (
    ("add_rope_scaling_type", gguf.RopeScalingType(kind)) for kind in ("none", "linear", "yarn")
)


def test_scaled_positions_that_would_be_plain_are_refused(tmp_path):
    factor, one = (("add_rope_scaling_factor", number) for number in (4.0, 1.0))
    old = "add_float32", "qwen3.rope.scale_linear", 8.0
    for settings, words in (
        ([YARN, factor], "yarn, factor 4.0"),
        ([LINEAR, factor], "linear, factor 4.0"),
        ([factor], "linear, factor 4.0"),
        ([old], "linear, factor 8.0"),
    ):
        save_gguf("qwen3", tmp_path / "small.gguf", settings=settings)
        said = f"transformers does not read qwen3.rope.scaling ({words})"
        assert said in refused(tmp_path)
    for settings in ([NONE, factor], [LINEAR, one]):
        save_gguf("qwen3", tmp_path / "small.gguf", settings=settings)
        assert hf_folder.preflight(options(tmp_path))


def test_biases_and_norms_of_the_architectures_that_have_them_are_read(tmp_path):
    for architecture, n in (("qwen2", 27), ("qwen3", 25)):
        save_gguf(architecture, tmp_path / "small.gguf")
        assert len(gguf_file.read_tensors(tmp_path / "small.gguf")) == n
        assert hf_folder.preflight(options(tmp_path))


def test_a_classifier_is_not_read_from_gguf(path):
    from omniinput_hpc.config import SequenceClassifier

    keys = {"kind": "sequence-classifier", "target": 0, "output": "logit", "length": 7}
    with pytest.raises(UserError, match="causal-lm"):
        hf_folder.preflight(SequenceClassifier(path=str(path), **keys))


@pytest.mark.slow
def test_a_file_whose_settings_lie_is_refused_when_it_is_loaded(path):
    whole = path.read_bytes()
    place = whole.index(b"llama.embedding_length") + len(b"llama.embedding_length") + 4
    path.write_bytes(whole[:place] + struct.pack("<I", 128) + whole[place + 4 :])
    with pytest.raises(UserError, match=r"small\.gguf"):
        causal_lm.build(options(path), "cpu")


def test_texts_end_with_the_token_that_the_file_names(tmp_path):
    """Neither name is the usual one, which this vocabulary lacks."""
    config = SimpleNamespace(model=options(tmp_path), space=SimpleNamespace(end="eos"))
    for end in (0, 1):
        save_gguf("llama", tmp_path / "small.gguf", settings=[("add_eos_token_id", end)])
        assert constraint.end_id(config) == end
    save_gguf("llama", tmp_path / "small.gguf")
    with pytest.raises(UserError, match="has no eos_token"):
        constraint.end_id(config)
