"""Small language models in GGUF files, and the same weights in a folder of safetensors."""

import gguf
import numpy as np
import torch
from gguf.quants import dequantize, quantize
from transformers import AutoConfig, AutoModelForCausalLM

WIDTH, LAYERS, HEADS, KV_HEADS, INNER, POSITIONS = 64, 2, 4, 2, 96, 32
LETTERS = "abcdefghijklmnop"
MERGES = ["a b", "c d", "ab cd"]
CONTROL = ("<end>", "<|user|>")
TOKENS = [*CONTROL, *LETTERS, "Ġ", "1", "2", "3", *(m.replace(" ", "") for m in MERGES)]
NAMES = {
    "model.embed_tokens": "token_embd", "model.norm": "output_norm", "lm_head": "output",
    "input_layernorm": "attn_norm", "post_attention_layernorm": "ffn_norm",
    "self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k", "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output", "self_attn.q_norm": "attn_q_norm",
    "self_attn.k_norm": "attn_k_norm", "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}  # fmt: skip


def head_width(architecture):
    """Return the width of a head; transformers reads every Qwen3 in GGUF as of the usual 128."""
    return 128 if architecture == "qwen3" else WIDTH // HEADS


def random_model(architecture, seed=3):
    """Return a random model of an architecture in transformers."""
    config = AutoConfig.for_model(
        architecture, vocab_size=len(TOKENS), hidden_size=WIDTH, intermediate_size=INNER,
        num_hidden_layers=LAYERS, num_attention_heads=HEADS, num_key_value_heads=KV_HEADS,
        max_position_embeddings=POSITIONS, head_dim=head_width(architecture),
        tie_word_embeddings=False,
        rope_theta=10000.0, rms_norm_eps=1e-5, bos_token_id=0, eos_token_id=0, pad_token_id=None,
    )  # fmt: skip
    torch.manual_seed(seed)
    model = AutoModelForCausalLM.from_config(config).float()
    with torch.no_grad():
        for weights in model.parameters():
            weights.add_(0.3 * torch.randn_like(weights) / weights.shape[-1] ** 0.5)
    return model.eval()


def name_of(name):
    """Return GGUF's name of a tensor of transformers'."""
    stem, _, kind = name.rpartition(".")
    if stem.startswith("model.layers."):
        _, _, layer, rest = stem.split(".", 3)
        return f"blk.{layer}.{NAMES[rest]}.{kind}"
    return f"{NAMES[stem]}.{kind}"


def rotated(name, value):
    """Return a Llama's rows of queries and keys in llama.cpp's order: pairs beside each other."""
    heads = {"attn_q": HEADS, "attn_k": KV_HEADS}.get(name.split(".")[-2])
    if heads is None:
        return value
    halves = value.reshape(heads, 2, value.shape[0] // heads // 2, *value.shape[1:])
    return np.ascontiguousarray(halves.swapaxes(1, 2).reshape(value.shape))


def save_gguf(architecture, path, packed=gguf.GGMLQuantizationType.Q8_0, pre="smollm", seed=3,
              more=(), settings=()):  # fmt: skip
    """Write a GGUF file; return a model of transformers with the file's dequantized weights.

    `more` are further tensors, `settings` pairs of a method of gguf's writer and what it writes.
    """
    model = random_model(architecture, seed)
    writer = gguf.GGUFWriter(path, architecture)
    writer.add_context_length(POSITIONS)
    writer.add_embedding_length(WIDTH)
    writer.add_block_count(LAYERS)
    writer.add_feed_forward_length(INNER)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(KV_HEADS)
    writer.add_key_length(head_width(architecture))
    writer.add_value_length(head_width(architecture))
    writer.add_rope_freq_base(10000.0)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre(pre)
    writer.add_token_list(TOKENS)
    writer.add_token_types([3 if token in CONTROL else 1 for token in TOKENS])
    writer.add_token_merges(MERGES)
    for method, *given in settings:
        getattr(writer, method)(*given)
    for name, weights in model.state_dict().items():
        value, theirs = weights.numpy(), name_of(name)
        kind = packed if value.ndim == 2 else gguf.GGMLQuantizationType.F32
        stored = rotated(theirs, value) if architecture == "llama" else value
        writer.add_tensor(theirs, quantize(stored, kind), raw_dtype=kind)
        weights.copy_(torch.from_numpy(dequantize(quantize(value, kind), kind)))
    for name, value in more:
        writer.add_tensor(name, value)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return model
