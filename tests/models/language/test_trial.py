"""How long inputs a model evaluates is found by doing it, whatever its settings call it."""

import logging
from types import SimpleNamespace

import pytest
import torch
import transformers
from language_folders import LLAMA_LIKE, POSITIONS, V
from transformers import LlamaConfig, LlamaForCausalLM

from omniinput_hpc.errors import UserError
from omniinput_hpc.models.language import trial

SIZES = {"vocab_size": V, "hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 1,
         "num_attention_heads": 2, "num_labels": 3}  # fmt: skip
PLACES = {"max_position_embeddings": POSITIONS}
BART = {f"{half}_{key}": value for half in ("encoder", "decoder")
        for key, value in {"layers": 1, "attention_heads": 2, "ffn_dim": 24}.items()}  # fmt: skip
RELATIVE = {"relative_attention": True, "position_biased_input": False, "pos_att_type": ["c2p"]}
ENCODERS = {
    "Bert": ({**SIZES, **PLACES}, POSITIONS),
    "Roberta": ({**SIZES, **PLACES, "pad_token_id": 1}, POSITIONS - 2),
    "XLMRoberta": ({**SIZES, **PLACES, "pad_token_id": 0}, POSITIONS - 1),
    "MPNet": ({**SIZES, **PLACES, "pad_token_id": 1}, POSITIONS - 2),
    "Longformer": ({**SIZES, **PLACES, "pad_token_id": 1, "attention_window": 4}, POSITIONS - 2),
    "Bart": ({"vocab_size": V, "d_model": 16, "eos_token_id": 3, "num_labels": 3, **BART, **PLACES},
             POSITIONS),
    "DebertaV2": ({**SIZES, **PLACES, **RELATIVE}, None),
    "Deberta": ({**SIZES, **PLACES, **RELATIVE}, None),
    "T5": ({"vocab_size": V, "d_model": 16, "d_kv": 8, "d_ff": 24, "num_layers": 1, "num_heads": 2,
            "eos_token_id": 3, "num_labels": 3, "decoder_start_token_id": 0}, None),
}  # fmt: skip
"""Settings, and how many tokens can be evaluated (None: any number)."""
DECODERS = {
    "GPTJ": ({"vocab_size": V, "n_embd": 16, "n_layer": 1, "n_head": 2, "rotary_dim": 4,
              "n_positions": POSITIONS}, POSITIONS),
    "OPT": ({**SIZES, **PLACES, "ffn_dim": 24, "word_embed_proj_dim": 16}, POSITIONS),
    "Mpt": ({"vocab_size": V, "d_model": 16, "n_layers": 1, "n_heads": 2,
             "max_seq_len": POSITIONS}, POSITIONS),
    "Bloom": ({"vocab_size": V, "hidden_size": 16, "n_layer": 1, "n_head": 2}, None),
    "Llama": ({**LLAMA_LIKE, "eos_token_id": [3, 9]}, None),
}  # fmt: skip
CASES = [
    *((name, "ForSequenceClassification", ([2], [3]), *row) for name, row in ENCODERS.items()),
    *((name, "ForCausalLM", ([], []), *row) for name, row in DECODERS.items()),
]


@pytest.mark.parametrize(("name", "head", "around", "keys", "longest"), CASES)
def test_positions(name, head, around, keys, longest):
    torch.manual_seed(4)
    config = getattr(transformers, f"{name}Config")(**keys)
    lm = getattr(transformers, name + head)(config).eval()
    if longest is None:
        trial.check_length(lm, 2 * POSITIONS + 5, "here", around)
        return
    trial.check_length(lm, longest, "here", around)
    for more in (1, 2, 9):
        words = f"model.length = {longest + more} is beyond the {longest} positions of here"
        with pytest.raises(UserError, match=words):
            trial.check_length(lm, longest + more, "here", around)
        with pytest.raises(UserError, match="with its prefix of 3 tokens is beyond the"):
            trial.check_length(lm, longest + more - 3, "here", around, n_before=3)


def test_a_length_beyond_the_settings_that_is_evaluated_is_noted(caplog):
    lm = LlamaForCausalLM(LlamaConfig(**LLAMA_LIKE)).eval()
    with caplog.at_level(logging.INFO):
        trial.check_length(lm, POSITIONS, "here")
        assert caplog.text == ""
        trial.check_length(lm, POSITIONS + 1, "here")
    assert "17 tokens, but max_position_embeddings of config.json is 16" in caplog.text


@pytest.mark.parametrize("error", [AssertionError(), RuntimeError("no"), KeyError("x")])
def test_whatever_a_model_raises_is_one_sentence(error):
    def fails(**_):
        raise error

    config = LlamaConfig(**LLAMA_LIKE)
    lm = type("Fails", (), {"__call__": lambda self, **_: fails(), "config": config,
                            "device": torch.device("cpu"), "dtype": torch.float32})()  # fmt: skip
    with pytest.raises(UserError, match="here: cannot evaluate 7 tokens"):
        trial.check_length(lm, 7, "here")
    head = SimpleNamespace(weight=torch.zeros(V, 16))
    lm.get_output_embeddings = lambda: head
    with pytest.raises(UserError, match="here: cannot evaluate two tokens"):
        trial.check_causal(lm, "here")


def test_an_input_that_does_not_fit_on_a_gpu_is_one_sentence():
    def full(**_):
        raise torch.OutOfMemoryError("CUDA out of memory")

    config = LlamaConfig(**LLAMA_LIKE)
    lm = type("Full", (), {"__call__": lambda self, **_: full(), "config": config,
                           "device": torch.device("cpu")})()  # fmt: skip
    with pytest.raises(UserError, match="one input of 7 tokens does not fit on cpu"):
        trial.check_length(lm, 7, "here")


def test_a_row_that_a_table_lacks_is_found_before_a_device_looks_it_up():
    table, rows = torch.arange(12.0).reshape(4, 3), torch.tensor([0, 3, 4])
    lookups = {
        "embedding": lambda i: torch.nn.functional.embedding(i, table),
        "index_select": lambda i: table.index_select(0, i),
        "index": lambda i: table[i],
        "two indices": lambda i: table[i, torch.zeros_like(i)],
        "gather": lambda i: table[:, 0].gather(0, i),
    }
    for name, lookup in lookups.items():
        with trial.CheckedLookups():
            assert torch.equal(lookup(rows[:2]).cpu(), lookup(rows[:2])), name
            with pytest.raises(IndexError, match="row 4 of a table with 4 rows"):
                lookup(rows)
        if "ind" not in name.replace("index_select", ""):
            with trial.CheckedLookups(), pytest.raises(IndexError, match="of a table with 4"):
                lookup(torch.tensor([-1, 2]))
    with trial.CheckedLookups():
        assert table[table > 5].numel() == 6  # a mask is not a row
        assert table[torch.tensor([-1]), :].tolist() == [[9.0, 10.0, 11.0]]


@pytest.mark.parametrize(("name", "head", "around", "keys", "longest"), CASES)
def test_checked_lookups_find_the_same_limit(name, head, around, keys, longest, monkeypatch):
    """As on a GPU, where a row that is not there would end the process's use of it."""
    monkeypatch.setattr(trial.contextlib, "nullcontext", trial.CheckedLookups)
    test_positions(name, head, around, keys, longest)
