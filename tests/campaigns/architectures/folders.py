"""Tiny folders with random weights: one of every decoder and text classifier of transformers."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator

os.environ["HF_HUB_OFFLINE"] = "1"

import torch
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import (
    CONFIG_MAPPING,
    AutoModelForCausalLM,
    AutoModelForSequenceClassification,
    PreTrainedConfig,
)
from transformers.models.auto import modeling_auto

V, LENGTH, N_CLASSES = 64, 10, 3
PAD, BOS, EOS = 0, 1, 2
WORDS = ["<pad>", "<s>", "</s>", "<mask>", *(f"w{i}" for i in range(V - 4))]
MOST_NUMBERS = 60_000_000
TASKS = {
    "causal": (AutoModelForCausalLM, modeling_auto.MODEL_FOR_CAUSAL_LM_MAPPING_NAMES),
    "classifier": (
        AutoModelForSequenceClassification,
        modeling_auto.MODEL_FOR_SEQUENCE_CLASSIFICATION_MAPPING_NAMES,
    ),
}

SPECIAL = {"pad_token_id": PAD, "bos_token_id": BOS, "eos_token_id": EOS}
WIDTHS = dict.fromkeys(
    ("hidden_size", "n_embd", "d_model", "dim", "embedding_size", "word_embed_proj_dim",
     "lru_width", "moe_intermediate_size"), 32,
)  # fmt: skip
DEPTHS = dict.fromkeys(
    ("num_hidden_layers", "n_layer", "n_layers", "num_layers", "encoder_layers", "decoder_layers"),
    2,
)
HEADS = dict.fromkeys(
    ("num_attention_heads", "n_head", "n_heads", "num_heads", "attention_heads",
     "encoder_attention_heads", "decoder_attention_heads"), 4,
)  # fmt: skip
INNER = dict.fromkeys(
    ("intermediate_size", "ffn_dim", "encoder_ffn_dim", "decoder_ffn_dim", "n_inner", "d_ff",
     "max_position_embeddings", "n_positions", "max_seq_len"), 64,
)  # fmt: skip
EXPERTS = {
    **dict.fromkeys(("num_local_experts", "num_experts", "n_routed_experts"), 4),
    **dict.fromkeys(("n_shared_experts", "n_group", "topk_group", "first_k_dense_replace"), 1),
    "moe_num_experts": 4, "moe_k": 2, "num_experts_per_tok": 2,
}  # fmt: skip
LATENT = {
    **dict.fromkeys(("qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim", "d_kv"), 8),
    **dict.fromkeys(("q_lora_rank", "kv_lora_rank", "qk_head_dim"), 16), "head_dim": 8,
}  # fmt: skip
RECURRENT = {
    "state_size": 8, "conv_kernel": 4, "time_step_rank": 4, "mamba_d_state": 8,
    "mamba_n_heads": 4, "mamba_d_head": 16, "mamba_expand": 2, "mamba_n_groups": 1,
    "mamba_chunk_size": 8, "chunk_size": 8, "mamba_num_heads": 4, "mamba_head_dim": 16,
    "ssm_state_size": 8, "mamba_d_ssm": 64, "linear_num_key_heads": 2, "linear_num_value_heads": 4,
    "linear_key_head_dim": 8, "linear_value_head_dim": 8, "linear_num_heads": 4,
    "linear_head_dim": 8,
}  # fmt: skip
SIZES = {
    "vocab_size": V, "num_key_value_heads": 2, "multi_query_group_num": 2, "sliding_window": 4,
    "type_vocab_size": 2, "attention_dropout": 0.0,
    **WIDTHS, **DEPTHS, **HEADS, **INNER, **EXPERTS, **LATENT, **RECURRENT, **SPECIAL,
}  # fmt: skip
"""What any key of these names is set to, so that the model is small."""
LEFT_OUT_IF_NONE = ("head_dim", "q_lora_rank", "sliding_window", "n_inner", "lru_width")
LAYER_KINDS = ("layer_types", "layers_block_type", "block_types", "mlp_layer_types")
FEW = {
    "vocab_size", "hidden_size", "n_embd", "d_model", "intermediate_size", "ffn_dim",
    "decoder_ffn_dim", "word_embed_proj_dim", "num_experts", "num_local_experts",
    "n_routed_experts", "state_size", "moe_intermediate_size", "num_key_value_heads", "head_dim",
    *SPECIAL, *DEPTHS, *HEADS,
}  # fmt: skip
"""What is set alone where all of `SIZES` do not fit each other."""
ROPE = {"rope_type": "default", "rope_theta": 1e4}
OWN: dict[str, dict[str, object]] = {
    "bamba": {"attn_layer_indices": [1]},
    "codegen": {"rotary_dim": 4},
    "cohere_compass_text": {"rope_parameters": {"full_attention": ROPE}},
    "dbrx": {
        "attn_config": {"rope_theta": 1e4, "kv_n_heads": 2, "clip_qkv": 8},
        "ffn_config": {"ffn_hidden_size": 64, "hidden_size": 32, "moe_top_k": 2},
    },
    "gemma3n_text": {"num_kv_shared_layers": 0, "vocab_size_per_layer_input": V},
    "gemma4_text": {"vocab_size_per_layer_input": V},
    "gptj": {"rotary_dim": 4},
    "granitemoehybrid": {"layer_types": ["linear_attention", "full_attention"]},
    "hunyuan_v1_dense": {"head_dim": 8},
    "hunyuan_v1_moe": {"head_dim": 8},
    "inkling2_loop_text": {"unpadded_vocab_size": V},
    "inkling2_text": {"unpadded_vocab_size": V},
    "jamba": {"attn_layer_period": 2, "attn_layer_offset": 1, "use_mamba_kernels": False},
    "lfm2_moe": {"layer_types": ["conv", "full_attention"]},
    "mamba2": {"num_heads": 8, "n_groups": 1},
    "ministral": {"head_dim": 8},
    "layoutlmv3": {"coordinate_size": 5, "shape_size": 6},
    "lilt": {"max_2d_position_embeddings": 64, "channel_shrink_ratio": 4, "hidden_size": 48},
    "luke": {"entity_vocab_size": V},
    "mt5": {"decoder_start_token_id": PAD},
    "nemotron_h": {"n_groups": 1},
    "perceiver": {
        "num_latents": 8, "d_latents": 32, "num_blocks": 1, "num_self_attends_per_block": 2,
        "num_self_attention_heads": 4, "num_cross_attention_heads": 4,
    },
    "qwen4_exp_text": {
        "indexer_n_heads": 2, "indexer_kv_heads": 1, "indexer_head_dim": 8, "indexer_budget": 4,
        "indexer_compress_ratio": 2, "hc_lowrank": 8, "split_ngram_parts": 2,
    },
    "recurrent_gemma": {"block_types": ["recurrent", "attention"]},
    "t5": {"decoder_start_token_id": PAD},
    "umt5": {"decoder_start_token_id": PAD},
    "xlstm": {"hidden_size": 128, "embedding_dim": 128, "num_heads": 1, "num_blocks": 2},
    "xmod": {"default_language": "en_XX"},
    "zamba": {
        "num_hidden_layers": 4, "layers_block_type": ["linear_attention", "hybrid"] * 2,
        "use_mamba_kernels": False,
    },
    "reformer": {"axial_pos_embds": False, "attn_layers": ["local", "local"]},
}  # fmt: skip
"""Settings by type, of those that the names of `SIZES` do not make small."""


class Unmakeable(Exception):
    """No tiny folder of this type could be made; the text says why."""


def types(task: str) -> list[str]:
    """Return all types that the installed transformers knows for a task."""
    return list(TASKS[task][1])


def attempts(model_type: str, task: str) -> Iterator[dict[str, object]]:
    """Yield settings of a small model, those first that set the most."""
    wanted = {**settings_like(CONFIG_MAPPING[model_type]()), **OWN.get(model_type, {})}
    if task == "causal":
        wanted["is_decoder"] = True
    else:
        wanted["num_labels"] = N_CLASSES
    yield wanted
    for left_out in (("head_dim",), LAYER_KINDS):
        yield {key: value for key, value in wanted.items() if key not in left_out}
    few = {k: v for k, v in wanted.items() if k in FEW or k in ("is_decoder", "num_labels")}
    yield few
    yield {k: v for k, v in few.items() if k not in ("num_key_value_heads", "head_dim")}


def settings_like(base: PreTrainedConfig) -> dict[str, object]:
    """Return the small settings that a configuration has keys for, those of its parts too."""
    found: dict[str, object] = {}
    names = set(base.to_dict()) | set(getattr(base, "attribute_map", {}))
    for key, value in SIZES.items():
        old = value_of(base, key)
        if key not in names or isinstance(old, bool | list | tuple | dict):
            continue
        if old is None and key in LEFT_OUT_IF_NONE:
            continue
        found[key] = value
    for key in LAYER_KINDS:
        kinds = list(dict.fromkeys(value_of(base, key) or ()))
        if kinds and key not in base.attribute_map and not is_computed(base, key):
            found[key] = (kinds * 2)[:2]
    if "attention_types" in names:
        found["attention_types"] = [[["global", "local"], 1]]
    if "qk_rope_head_dim" in found:  # latent attention has as many heads of keys as of queries
        found["num_key_value_heads"] = 4
    for part in base.sub_configs:
        inner = value_of(base, part)
        if isinstance(inner, PreTrainedConfig):
            found[part] = {"model_type": inner.model_type, **settings_like(inner)}
            found[part].update(OWN.get(inner.model_type, {}))
    return found


def is_computed(config: PreTrainedConfig, key: str) -> bool:
    """Whether a setting follows from others, and so cannot be set."""
    return isinstance(getattr(type(config), key, None), property)


def value_of(config: PreTrainedConfig, key: str) -> object:
    """Return a setting; None where there is none, or another one for each layer."""
    try:
        return getattr(config, key, None)
    except Exception:  # in transformers' own words, which differ between its versions
        return None


def make(model_type: str, task: str, folder) -> torch.nn.Module:
    """Write a tiny folder with its tokenizer; return the model as transformers loads it again.

    `Unmakeable` says what transformers raised, for the settings that it was asked first.
    """
    kind, reasons = TASKS[task][0], []
    torch.manual_seed(0)
    try:
        for settings in attempts(model_type, task):
            try:
                model = random_model(kind, CONFIG_MAPPING[model_type](**settings))
                break
            except Exception as error:
                reasons.append(" ".join(f"{type(error).__name__}: {error}".split())[:200])
        else:
            raise Unmakeable(" | ".join(dict.fromkeys(reasons)))
        model.save_pretrained(folder)
        write_tokenizer(folder)
        again = kind.from_pretrained(folder).eval().float()
        evaluated(again, ended(torch.randint(V, (4, LENGTH))))
    except Unmakeable:
        raise
    except Exception as error:
        raise Unmakeable(f"{type(error).__name__}: {error}".splitlines()[0][:200]) from error
    return again


def random_model(kind, config: PreTrainedConfig) -> torch.nn.Module:
    """Return a model whose outputs are far from uniform, which evaluates random tokens."""
    with torch.device("meta"):
        n_numbers = sum(p.numel() for p in kind.from_config(config).parameters())
    if n_numbers > MOST_NUMBERS:
        raise RuntimeError(f"it is not tiny: {n_numbers / 1e6:.0f} million numbers")
    model = kind.from_config(config).eval().float()
    with torch.no_grad():
        for p in model.parameters():
            if p.dim() > 1:
                p.normal_(0, 0.9 / max(1, p.shape[-1]) ** 0.5)
    evaluated(model, ended(torch.randint(4, V, (2, LENGTH))))
    return model


def ended(tokens: torch.Tensor) -> torch.Tensor:
    """Return tokens whose last one is </s>, which some heads look for."""
    return torch.cat([tokens[:, :-1], torch.full((len(tokens), 1), EOS)], dim=1)


def evaluated(model, tokens: torch.Tensor) -> torch.Tensor:
    """Return the logits that transformers gives for tokens, each input by itself."""
    with torch.no_grad():
        rows = [row[None] for row in tokens]
        found = [model(input_ids=x, attention_mask=torch.ones_like(x)).logits for x in rows]
    return torch.cat(found).float()


def write_tokenizer(folder) -> None:
    """Write a tokenizer of whole words, whose frame is <s> and </s>."""
    tokenizer = Tokenizer(models.WordLevel({word: i for i, word in enumerate(WORDS)}, "<pad>"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer.add_special_tokens(WORDS[:4])
    tokenizer.save(str(folder / "tokenizer.json"))
    named = {
        "pad_token": "<pad>", "bos_token": "<s>", "eos_token": "</s>", "mask_token": "<mask>",
        "cls_token": "<s>", "sep_token": "</s>", "tokenizer_class": "PreTrainedTokenizerFast",
    }  # fmt: skip
    (folder / "tokenizer_config.json").write_text(json.dumps(named))
