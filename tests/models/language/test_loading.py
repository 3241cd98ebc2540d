"""Loading a model: its report, quantized weights, other files, tables."""

import json
import logging

import pytest
import torch
from language_folders import LLAMA_LIKE, V, save_decoder, save_tokenizer
from safetensors.torch import load_file, save_file
from transformers import (
    BitsAndBytesConfig,
    BloomConfig,
    BloomForCausalLM,
    Gemma3Config,
    Gemma3ForConditionalGeneration,
    LlamaConfig,
    LlamaForCausalLM,
)

from omniinput_hpc.config import CausalLm
from omniinput_hpc.errors import UserError
from omniinput_hpc.models.language import causal_lm, hf_folder

WIDE = {**LLAMA_LIKE, "num_key_value_heads": 2, "hidden_size": 32, "intermediate_size": 32}
X = torch.randint(V, (5, 7), generator=torch.Generator().manual_seed(1))


def build(folder, **keys):
    options = CausalLm(**{"kind": "causal-lm", "path": str(folder), "length": 7, **keys})
    hf_folder.preflight(options)
    return causal_lm.build(options, "cpu")


def settings(folder, **keys):
    file = folder / "config.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), **keys}))


def save(model, folder):
    for parameter in model.parameters():
        parameter.data *= 3
    model.eval().save_pretrained(folder)
    return model


def loss(model):
    with torch.no_grad():
        return torch.stack([model(input_ids=x[None], labels=x[None]).loss for x in X])


def test_what_transformers_reports_is_passed_on_and_its_log_is_as_before(tmp_path, caplog):
    save_decoder("gpt2", tmp_path)
    file = tmp_path / "model.safetensors"
    more = {"vision_tower.a.weight": torch.zeros(2)}
    save_file({**load_file(file), **more}, file, metadata={"format": "pt"})
    logger = logging.getLogger("transformers")
    before = (logger.level, logger.propagate, list(logger.handlers))
    with caplog.at_level(logging.INFO):
        build(tmp_path)
    assert (logger.level, logger.propagate, list(logger.handlers)) == before
    (report,) = [r for r in caplog.records if r.getMessage().startswith("transformers: GPT2LMHead")]
    assert "vision_tower.a.weight" in report.getMessage() and "\x1b" not in report.getMessage()
    assert report.levelno == logging.WARNING or logging.getLogger("omniinput_hpc").handlers


def test_other_files_of_weights_are_named(tmp_path, caplog):
    save_decoder("gpt2", tmp_path)
    save_file({"a": torch.zeros(2)}, tmp_path / "consolidated.safetensors")
    with caplog.at_level(logging.INFO):
        build(tmp_path)
    assert "weight files not read: consolidated.safetensors" in caplog.text


@pytest.mark.parametrize(
    "scheme",
    [
        {"quant_method": "gptq", "bits": 4}, {"quant_method": "no-such"}, {}, 3,
        {"quant_method": "bitsandbytes", "load_in_8bit": True},
    ],
)  # fmt: skip
def test_a_scheme_that_gives_no_plain_weights_is_refused(tmp_path, scheme):
    save_decoder("llama", tmp_path)
    settings(tmp_path, quantization_config=scheme)
    with pytest.raises(UserError, match=r"quantized|cannot be loaded"):
        build(tmp_path)


def test_weights_of_8_bits_are_those_that_their_scales_make(tmp_path, caplog):
    torch.manual_seed(4)
    save(LlamaForCausalLM(LlamaConfig(**WIDE)), tmp_path)
    file, plain = tmp_path / "model.safetensors", {}
    packed = load_file(file)
    for name in [name for name in packed if "proj" in name]:
        packed[name] = packed[name].to(torch.float8_e4m3fn)
        n = [-(-size // 16) for size in packed[name].shape]
        packed[f"{name}_scale_inv"] = torch.full(n, 1.5)
        plain[name] = packed[name].float() * 1.5
    reference = LlamaForCausalLM.from_pretrained(tmp_path).eval()
    reference.load_state_dict(plain, strict=False)
    save_file(packed, file, metadata={"format": "pt"})
    with pytest.raises(UserError, match="stored as F8_E4M3"):
        build(tmp_path)
    fp8 = {"quant_method": "fp8", "weight_block_size": [16, 16], "activation_scheme": "dynamic"}
    settings(tmp_path, quantization_config=fp8)
    with caplog.at_level(logging.INFO):
        torch.testing.assert_close(build(tmp_path).output(X), loss(reference), atol=1e-5, rtol=0)
    assert "the weights are quantized (fp8); they are dequantized once" in caplog.text


def test_weights_that_transformers_dequantizes_afterwards(tmp_path):
    save_decoder("llama", tmp_path / "plain")
    scheme = BitsAndBytesConfig(load_in_8bit=True)
    packed = LlamaForCausalLM.from_pretrained(tmp_path / "plain", quantization_config=scheme)
    packed.save_pretrained(tmp_path / "packed")
    held = load_file(tmp_path / "packed" / "model.safetensors")
    plain = {
        name: held[name].float() * held[name.replace("weight", "SCB")][:, None] / 127
        for name in held
        if held[name].dtype == torch.int8
    }
    assert plain
    reference = LlamaForCausalLM.from_pretrained(tmp_path / "plain").eval()
    reference.load_state_dict(plain, strict=False)
    found = build(tmp_path / "packed").output(X)
    torch.testing.assert_close(found, loss(reference), atol=1e-5, rtol=0)


def test_whole_numbers_in_place_of_weights_are_codes_only_with_a_scheme(tmp_path):
    save_decoder("llama", tmp_path)
    file = tmp_path / "model.safetensors"
    held = load_file(file)
    name = "model.layers.0.mlp.up_proj.weight"
    save_file({**held, name: held[name].to(torch.int32)}, file, metadata={"format": "pt"})
    with pytest.raises(UserError, match="stored as I32, but weights must be real numbers"):
        build(tmp_path)


def test_a_bloom_as_transformers_saves_it(tmp_path):
    """It has hidden_size and n_head; n_embd is another architecture's."""
    torch.manual_seed(4)
    ends = {"pad_token_id": 1, "bos_token_id": 0, "eos_token_id": 2}
    bloom = BloomForCausalLM(BloomConfig(vocab_size=V, hidden_size=16, n_layer=2, n_head=2, **ends))
    reference = save(bloom, tmp_path)
    torch.testing.assert_close(build(tmp_path).output(X), loss(reference), atol=1e-5, rtol=0)
    old = json.loads((tmp_path / "config.json").read_text())
    old["num_attention_heads"] = old.pop("n_head")  # as the first files of the hub have it
    (tmp_path / "config.json").write_text(json.dumps(old))
    torch.testing.assert_close(build(tmp_path).output(X), loss(reference), atol=1e-5, rtol=0)


def test_the_text_of_a_model_with_nested_settings(tmp_path):
    torch.manual_seed(4)
    text = {"vocab_size": V, "hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 2,
            "num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 8,
            "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}  # fmt: skip
    vision = {"hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 1,
              "num_attention_heads": 2, "image_size": 28, "patch_size": 14}  # fmt: skip
    tokens = {"image_token_index": 5, "boi_token_index": 6, "eoi_token_index": 7}
    config = Gemma3Config(text_config=text, vision_config=vision, mm_tokens_per_image=1, **tokens)
    reference = save(Gemma3ForConditionalGeneration(config), tmp_path)
    save_tokenizer(tmp_path)
    usual = X.clamp(max=4)  # without the tokens in an image's place
    model = build(tmp_path)
    with torch.no_grad():
        found = torch.stack([reference(input_ids=x[None], labels=x[None]).loss for x in usual])
    torch.testing.assert_close(model.output(usual), found, atol=1e-5, rtol=0)
