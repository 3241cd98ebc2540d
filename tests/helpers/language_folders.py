"""Small folders of each architecture with random weights, as save_pretrained writes them."""

from __future__ import annotations

import json
import shutil

import torch
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, processors
from transformers import (
    AutoModelForCausalLM,
    DistilBertConfig,
    DistilBertForSequenceClassification,
    GPT2Config,
    GPT2LMHeadModel,
    GPTNeoXConfig,
    GPTNeoXForCausalLM,
    LlamaConfig,
    LlamaForCausalLM,
    Mamba2Config,
    Mamba2ForCausalLM,
    MambaConfig,
    MambaForCausalLM,
    Olmo2Config,
    Olmo2ForCausalLM,
    OlmoConfig,
    OlmoForCausalLM,
    Qwen3NextConfig,
    Qwen3NextForCausalLM,
)

V, POSITIONS = 29, 16
"""Values of a model, of which the tokenizer knows 26: three are padding of the vocabulary."""
WORDS = ["<end>", "<pad>", *(f"{letter}" for letter in "abcdefghijklmnopqrstuvwx")]
NO_ENDS = {"vocab_size": V, "bos_token_id": None, "eos_token_id": None}
LLAMA_LIKE = {
    **NO_ENDS, "pad_token_id": None, "hidden_size": 16, "intermediate_size": 24,
    "num_hidden_layers": 2, "num_attention_heads": 4, "max_position_embeddings": POSITIONS,
}  # fmt: skip
DECODERS = {
    "gpt2": lambda: GPT2LMHeadModel(
        GPT2Config(n_positions=POSITIONS, n_embd=16, n_layer=2, n_head=2, **NO_ENDS)
    ),
    "olmo": lambda: OlmoForCausalLM(OlmoConfig(**LLAMA_LIKE)),
    "olmo2": lambda: Olmo2ForCausalLM(Olmo2Config(**LLAMA_LIKE)),
    "llama": lambda: LlamaForCausalLM(LlamaConfig(num_key_value_heads=2, **LLAMA_LIKE)),
    "gpt-neox": lambda: GPTNeoXForCausalLM(GPTNeoXConfig(**LLAMA_LIKE)),
}
STATES = {
    "mamba": lambda: MambaForCausalLM(
        MambaConfig(hidden_size=16, num_hidden_layers=2, state_size=4, time_step_rank=2, **NO_ENDS)
    ),
    "mamba2": lambda: Mamba2ForCausalLM(
        Mamba2Config(
            hidden_size=16, num_hidden_layers=2, state_size=4, num_heads=4, head_dim=8,
            n_groups=1, chunk_size=4, pad_token_id=None, **NO_ENDS,
        )
    ),
    "qwen3-next": lambda: Qwen3NextForCausalLM(
        Qwen3NextConfig(
            layer_types=["linear_attention", "full_attention"], head_dim=8, num_experts=4,
            num_experts_per_tok=2, moe_intermediate_size=8, shared_expert_intermediate_size=8,
            linear_num_key_heads=2, linear_num_value_heads=4, linear_key_head_dim=4,
            linear_value_head_dim=4, num_key_value_heads=2, **LLAMA_LIKE,
        )
    ),
}  # fmt: skip
"""Decoders with recurrent layers. Several tokens may follow a state, except in Mamba."""


def save_decoder(kind, folder, scale=3.0):
    """Write a decoder and its tokenizer; weights far from zero give outputs far from uniform."""
    torch.manual_seed(4)
    model = (DECODERS | STATES)[kind]()
    for parameter in model.parameters():
        parameter.data *= scale
    model.save_pretrained(folder)
    save_tokenizer(folder)
    return folder


def save_first_layer(of, folder):
    """Write a decoder of the GPT-2 kind that has another's first layer alone."""
    shutil.copytree(of, folder, dirs_exist_ok=True)
    lm = AutoModelForCausalLM.from_pretrained(of)
    lm.transformer.h, lm.config.n_layer = lm.transformer.h[:1], 1
    lm.save_pretrained(folder)
    return folder


def save_tokenizer(folder, words=WORDS):
    """Write a tokenizer.json: one token a letter, and pairs of letters do not exist."""
    tokenizer = Tokenizer(models.BPE({word: i for i, word in enumerate(words)}, []))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens(["<end>", "<pad>"])
    tokenizer.save(str(folder / "tokenizer.json"))


def with_beginning(folder, *first):
    """Write a tokenizer that puts tokens before every text."""
    save_tokenizer(folder, [*WORDS, "<s>"])
    made = Tokenizer.from_file(str(folder / "tokenizer.json"))
    made.add_special_tokens([AddedToken("<s>")])
    template = " ".join([*first, "$A", "<end>"])
    used = [(token, made.token_to_id(token)) for token in ("<s>", "<end>")]
    made.post_processor = processors.TemplateProcessing(single=template, special_tokens=used)
    made.save(str(folder / "tokenizer.json"))
    settings = json.dumps({"tokenizer_class": "PreTrainedTokenizerFast"})
    (folder / "tokenizer_config.json").write_text(settings)
    return len(WORDS)


def save_classifier(folder, n_classes=2):
    """Write a DistilBERT with a WordPiece vocabulary in vocab.txt."""
    torch.manual_seed(5)
    config = DistilBertConfig(
        vocab_size=V, max_position_embeddings=POSITIONS, n_layers=2, n_heads=2, dim=16,
        hidden_dim=24, num_labels=n_classes,
    )  # fmt: skip
    model = DistilBertForSequenceClassification(config)
    for parameter in model.parameters():
        parameter.data *= 6
    model.save_pretrained(folder)
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *"abcdefghijklmnopqrst", "##s", "##ed"]
    (folder / "vocab.txt").write_text("\n".join(words) + "\n")
    return folder
