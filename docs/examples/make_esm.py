"""Write a network of the shape of the smallest ESM-2 with random weights, as the hub stores it."""

import json
from pathlib import Path

import torch
from transformers import EsmConfig, EsmForMaskedLM

tokens = ["<cls>", "<pad>", "<eos>", "<unk>", *"LAGVSERTIDPKQNFYMHWCXBUZO.-", "<null_1>", "<mask>"]
torch.manual_seed(1)
shape = {
    "hidden_size": 320,
    "num_hidden_layers": 6,
    "num_attention_heads": 20,
    "intermediate_size": 1280,
}
config = EsmConfig(
    vocab_size=33,
    mask_token_id=32,
    pad_token_id=1,
    position_embedding_type="rotary",
    token_dropout=True,
    **shape,
)
network = EsmForMaskedLM(config)
for parameter in network.parameters():
    if parameter.dim() > 1:
        parameter.data *= 3  # untrained weights are small: z would hardly vary
network.save_pretrained("esm2-8m")
Path("esm2-8m/vocab.txt").write_text("\n".join(tokens))
Path("esm2-8m/tokenizer_config.json").write_text(json.dumps({"tokenizer_class": "EsmTokenizer"}))
