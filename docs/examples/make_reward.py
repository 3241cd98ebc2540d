"""Write a tiny reward model with random weights, as the hub stores such models."""

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors
from transformers import LlamaConfig, LlamaForSequenceClassification, PreTrainedTokenizerFast

words = ["<end>", "<pad>", *"abcdefghijklmnopqrstuvwx", "<s>"]  # one token per letter
tokenizer = Tokenizer(models.BPE({word: i for i, word in enumerate(words)}, []))
tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
tokenizer.decoder = decoders.ByteLevel()
tokenizer.add_special_tokens(["<end>", "<pad>", "<s>"])
tokenizer.post_processor = processors.TemplateProcessing(
    single="<s> $A <end>", special_tokens=[("<s>", 26), ("<end>", 0)]
)
PreTrainedTokenizerFast(tokenizer_object=tokenizer).save_pretrained("reward")

torch.manual_seed(8)
config = LlamaConfig(
    vocab_size=29,  # two more than tokens, as in many models
    hidden_size=16,
    intermediate_size=24,
    num_hidden_layers=2,
    num_attention_heads=4,
    num_key_value_heads=2,
    max_position_embeddings=16,
    num_labels=1,
    pad_token_id=None,
    bos_token_id=None,
    eos_token_id=None,
)
model = LlamaForSequenceClassification(config)
for weights in model.parameters():
    weights.data *= 5  # untrained weights are small: z would hardly vary
model.save_pretrained("reward")
