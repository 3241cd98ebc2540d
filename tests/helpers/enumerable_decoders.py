"""Hugging Face decoders with random weights, so small that their inputs can be enumerated."""

from __future__ import annotations

import torch
from transformers import AutoConfig, AutoModelForCausalLM


def save_decoder(architecture, folder):
    """Write a decoder of 8 values, gpt2, llama or olmo2, for ``kind = "causal-lm"``."""
    names = {"gpt2": ("n_embd", "n_layer", "n_head", "n_positions")}.get(
        architecture,
        ("hidden_size", "num_hidden_layers", "num_attention_heads", "max_position_embeddings"),
    )
    sizes = dict(zip(names, (16, 2, 4, 16), strict=True))
    if architecture != "gpt2":
        sizes |= {"intermediate_size": 24, "num_key_value_heads": 4, "pad_token_id": None}
    config = AutoConfig.for_model(
        architecture, vocab_size=8, bos_token_id=None, eos_token_id=None, **sizes
    )
    torch.manual_seed(4)
    model = AutoModelForCausalLM.from_config(config)
    for parameter in model.parameters():
        parameter.data *= 4.0  # outputs far from uniform
    model.save_pretrained(folder)
