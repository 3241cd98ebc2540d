"""Every tensor of a checkpoint is used, or left out for a reason; all else is refused."""

import json
import logging

import pytest
import torch
from language_folders import DECODERS, LLAMA_LIKE, V, save_classifier, save_decoder
from safetensors.torch import load_file, save_file
from transformers import (
    BartConfig,
    BartForCausalLM,
    LlamaConfig,
    LlamaForCausalLM,
    LlamaForSequenceClassification,
)

from omniinput_hpc.config import CausalLm, SequenceClassifier
from omniinput_hpc.errors import UserError
from omniinput_hpc.models.language import causal_lm, sequence_classifier

LLAMA = {**LLAMA_LIKE, "num_key_value_heads": 2}
Q = "model.layers.0.self_attn.q_proj"


def llama(folder, **keys):
    torch.manual_seed(4)
    LlamaForCausalLM(LlamaConfig(**{**LLAMA, **keys})).save_pretrained(folder)
    return folder


def settings(folder, **keys):
    file = folder / "config.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), **keys}))


def weights(folder, **changed):
    """Change tensors of a folder; None takes one away."""
    file = folder / "model.safetensors"
    now = {**load_file(file), **changed}
    save_file({k: v for k, v in now.items() if v is not None}, file, metadata={"format": "pt"})


def build(folder):
    return causal_lm.build(CausalLm(kind="causal-lm", path=str(folder), length=7), "cpu")


def classify(folder):
    keys = {"kind": "sequence-classifier", "path": str(folder), "length": 7, "target": 0}
    return sequence_classifier.build(SequenceClassifier(**keys), "cpu")


def refused(folder, make=build):
    with pytest.raises(UserError) as caught:
        make(folder)
    assert str(folder) in str(caught.value)
    return str(caught.value)


def shards(folder):
    """Save the model of a folder again, in several files."""
    model = LlamaForCausalLM.from_pretrained(folder)
    (folder / "model.safetensors").unlink()
    model.save_pretrained(folder, max_shard_size="5KB")
    return folder


def test_biases_that_the_settings_do_not_have_are_refused(tmp_path):
    llama(tmp_path, attention_bias=True)
    build(tmp_path)
    settings(tmp_path, attention_bias=False)
    assert "k_proj.bias, which the LlamaForCausalLM described by config.json" in refused(tmp_path)


def test_so_they_are_in_several_files(tmp_path):
    shards(llama(tmp_path, attention_bias=True))
    assert not (tmp_path / "model.safetensors").exists()
    assert len(list(tmp_path.glob("*.safetensors"))) > 2
    build(tmp_path)
    settings(tmp_path, attention_bias=False)
    assert "k_proj.bias, which the LlamaForCausalLM described by config.json" in refused(tmp_path)


def test_a_bias_of_a_layer_that_gpt_2_ignores_by_name_is_refused(tmp_path):
    """transformers takes whatever holds "attn.bias" for a mask, and does not report it."""
    save_decoder("gpt2", tmp_path)
    weights(tmp_path, **{"transformer.h.0.attn.bias": torch.zeros(16)})
    assert "transformer.h.0.attn.bias" in refused(tmp_path)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        (f"{Q}.weight_scale_inv", torch.ones(1, 1)), (f"{Q}.weight_scale", torch.ones(1)),
        (f"{Q}.SCB", torch.ones(16)), (f"{Q}.qzeros", torch.ones(1, 2, dtype=torch.int32)),
        (f"{Q}.weight_zero_point", torch.ones(1)), ("model.layers.0.mlp.up_proj.g_idx",
         torch.ones(3, dtype=torch.int32)),
    ],
)  # fmt: skip
def test_scales_and_zero_points_are_refused(tmp_path, name, value):
    llama(tmp_path)
    weights(tmp_path, **{name: value})
    assert name in refused(tmp_path)


def test_weights_of_whole_numbers_are_refused(tmp_path):
    llama(tmp_path)
    weights(tmp_path, **{f"{Q}.weight": torch.ones(16, 16, dtype=torch.int32)})
    assert f"{Q}.weight is stored as I32" in refused(tmp_path)
    save_decoder("gpt2", tmp_path / "gpt2")
    file = tmp_path / "gpt2" / "model.safetensors"
    bare = {name.removeprefix("transformer."): value for name, value in load_file(file).items()}
    bare["wpe.weight"] = bare["wpe.weight"].to(torch.int64)  # as its body alone names it
    save_file(bare, file, metadata={"format": "pt"})
    assert "wpe.weight is stored as I64" in refused(tmp_path / "gpt2")


def test_the_head_of_another_task_is_refused(tmp_path):
    torch.manual_seed(4)
    config = LlamaConfig(**{**LLAMA, "pad_token_id": 0}, num_labels=3)
    LlamaForSequenceClassification(config).save_pretrained(tmp_path)
    assert "score.weight" in refused(tmp_path)
    llama(tmp_path)
    weights(tmp_path, **{"v_head.summary.weight": torch.ones(1, 16)})
    assert "v_head.summary.weight" in refused(tmp_path)


def test_a_head_for_tokens_beside_that_for_classes_is_left_out(tmp_path):
    """The output depends on the head for classes alone; without it the folder is refused."""
    save_classifier(tmp_path)
    weights(tmp_path, **{"vocab_transform.weight": torch.ones(16, 16)})
    classify(tmp_path)
    weights(tmp_path, **{"classifier.weight": None})
    assert "missing keys: classifier.weight" in refused(tmp_path, classify)


def test_an_unknown_tensor_of_a_classifier_is_refused(tmp_path):
    save_classifier(tmp_path)
    weights(tmp_path, **{"distilbert.transformer.layer.0.adapter.down.weight": torch.ones(2, 16)})
    assert "layer.0.adapter.down.weight" in refused(tmp_path, classify)


def test_masks_and_numbers_that_are_computed_may_be_left_out(tmp_path, caplog):
    save_decoder("gpt2", tmp_path / "gpt2")
    z = build(tmp_path / "gpt2").output(torch.arange(7)[None])
    mask = {"bias": torch.ones(1, 1, 16, 16, dtype=torch.uint8), "masked_bias": torch.tensor(-1e4)}
    weights(tmp_path / "gpt2", **{f"transformer.h.0.attn.{k}": v for k, v in mask.items()})
    with caplog.at_level(logging.INFO):
        assert torch.equal(build(tmp_path / "gpt2").output(torch.arange(7)[None]), z)
    assert (
        "left out of the weights: transformer.h.0.attn.bias and 1 more (the causal" in caplog.text
    )
    folder, name = llama(tmp_path / "llama"), "model.layers.0.self_attn.rotary_emb.inv_freq"
    weights(folder, **{name: 10000.0 ** -torch.arange(0, 1, 0.5)})
    build(folder)
    weights(folder, **{name: 500.0 ** -torch.arange(0, 1, 0.5)})  # of another base
    assert name in refused(folder)


def test_layers_beyond_the_described_ones_are_refused(tmp_path):
    save_decoder("gpt2", tmp_path)
    settings(tmp_path, n_layer=1)
    assert "describes 1 layer(s), but the weights hold more (tra" in refused(tmp_path)


def test_layers_that_look_ahead_are_left_out_if_the_settings_say_so(tmp_path, caplog):
    llama(tmp_path)
    weights(tmp_path, **{"model.layers.2.mlp.up_proj.weight": torch.ones(24, 16),
                         "model.layers.2.eh_proj.weight": torch.ones(16, 32)})  # fmt: skip
    assert "the weights hold more (model.layers.2.eh_proj.weight)" in refused(tmp_path)
    settings(tmp_path, num_nextn_predict_layers=1)
    with caplog.at_level(logging.INFO):
        build(tmp_path)
    assert "model.layers.2.eh_proj.weight and 1 more (layers that predict" in caplog.text
    weights(tmp_path, **{"model.layers.3.mlp.up_proj.weight": torch.ones(24, 16)})
    assert "model.layers.3.mlp.up_proj.weight" in refused(tmp_path)


def test_parts_for_other_inputs_may_be_left_out(tmp_path):
    save_decoder("gpt2", tmp_path)
    names = ("vision.encoder.layers.7", "audio_tower.conv", "multi_modal_projector.linear_1")
    weights(tmp_path, **{f"{name}.bias": torch.zeros(3) for name in names})
    build(tmp_path)
    weights(tmp_path, **{"transformer.h.0.mlp.c_up.weight": torch.zeros(3)})
    assert "transformer.h.0.mlp.c_up.weight" in refused(tmp_path)


def test_the_other_half_of_an_encoder_decoder_may_be_left_out(tmp_path):
    torch.manual_seed(4)
    sizes = {"decoder_layers": 1, "decoder_attention_heads": 2, "decoder_ffn_dim": 24}
    config = BartConfig(vocab_size=V, d_model=16, max_position_embeddings=16, **sizes)
    BartForCausalLM(config).save_pretrained(tmp_path)
    half = {"model.encoder.layers.0.fc1.bias": torch.zeros(24)}
    weights(tmp_path, **half, final_logits_bias=torch.zeros(1, V))
    build(tmp_path)
    weights(tmp_path, final_logits_bias=torch.ones(1, V))
    assert "final_logits_bias" in refused(tmp_path)


def test_tied_weights_may_be_stored_twice_if_they_are_equal(tmp_path):
    llama(tmp_path, tie_word_embeddings=True)
    same = load_file(tmp_path / "model.safetensors")["model.embed_tokens.weight"]
    weights(tmp_path, **{"lm_head.weight": same.clone()})
    build(tmp_path)
    weights(tmp_path, **{"lm_head.weight": same + 1})
    assert "says that lm_head.weight and model.embed_tokens.weight are the same" in refused(
        tmp_path
    )


@pytest.mark.parametrize("kind", DECODERS)
def test_nothing_is_left_out_of_what_transformers_saves(tmp_path, kind, caplog):
    with caplog.at_level(logging.INFO):
        build(save_decoder(kind, tmp_path))
    assert "left out" not in caplog.text and "transformers:" not in caplog.text
