"""Byte-pair tokenizers trained on a few lines, and folders of small models that use them."""

from __future__ import annotations

import random
from pathlib import Path

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import GPT2Config, GPT2LMHeadModel

from omniinput_hpc.models.language.tokenizer import Vocabulary

CORPUS = [
    "the cat's hat isn't  theirs;\n\nthe end\n of  thé  end",
    "it's 1234 12 34!! we'll see\n\n\n éé\n they're",
]


def trained(size, regex=False, special=(), corpus=CORPUS):
    """Return a byte-level BPE; from 256 tokens on it has all bytes."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=regex)
    tokenizer.decoder = decoders.ByteLevel()
    every = sorted(pre_tokenizers.ByteLevel.alphabet()) if size > 256 else []
    trainer = trainers.BpeTrainer(
        vocab_size=size, special_tokens=list(special), initial_alphabet=every, show_progress=False
    )
    tokenizer.train_from_iterator(corpus, trainer)
    return tokenizer


def random_corpus(seed, letters="abé "):
    source = random.Random(seed)
    return ["".join(source.choices(letters, k=60)) for _ in range(4)]


def vocabulary(tokenizer):
    return Vocabulary(Path("nowhere"), tokenizer)


def save_with_model(folder, tokenizer):
    """Write a GPT-2 with random weights, and the tokenizer."""
    torch.manual_seed(4)
    options = {"n_positions": 8, "n_embd": 16, "n_layer": 1, "n_head": 2, "bos_token_id": None}
    options |= {"vocab_size": tokenizer.get_vocab_size(), "eos_token_id": None}
    model = GPT2LMHeadModel(GPT2Config(**options))
    for parameter in model.parameters():
        parameter.data *= 3.0
    model.save_pretrained(folder)
    tokenizer.save(str(folder / "tokenizer.json"))
