"""Trials of a model's own code: what it raises becomes one kind of error, and special tokens."""

import pytest
import torch
from language_folders import V, save_decoder
from transformers import RobertaConfig, RobertaForCausalLM

from omniinput_hpc.errors import UserError
from omniinput_hpc.models.language import tokenizer
from omniinput_hpc.models.language.foreign_code import (
    N_TRIAL_INPUTS,
    ForeignError,
    as_close,
    foreign_code,
    special_tokens,
    trial_inputs,
)


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (RuntimeError("sizes differ\nat 3"), "RuntimeError: sizes differ"),
        (AssertionError(), "AssertionError: without a message"),
        (KeyError("lang"), "KeyError: lang"),
        (ZeroDivisionError("by zero"), "ZeroDivisionError: by zero"),
    ],
)
def test_whatever_is_raised_is_one_error(error, said):
    with pytest.raises(ForeignError) as caught, foreign_code():
        raise error
    assert str(caught.value) == said and caught.value.__cause__ is error


@pytest.mark.parametrize(
    "error",
    [
        torch.OutOfMemoryError("CUDA"), MemoryError(), UserError("x"), KeyboardInterrupt(),
        RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 9 bytes"),
    ],
)  # fmt: skip
def test_these_pass(error):
    with pytest.raises(type(error)) as caught, foreign_code():
        raise error
    assert caught.value is error


def test_special_tokens_are_those_of_settings_tables_and_vocabulary(tmp_path):
    settings = {"vocab_size": V, "pad_token_id": 7, "bos_token_id": None, "eos_token_id": [3, 9]}
    config = RobertaConfig(
        **settings, hidden_size=16, num_hidden_layers=1, num_attention_heads=2, is_decoder=True
    )
    config.image_token_id = 20
    lm = RobertaForCausalLM(config)
    assert special_tokens(lm, None) == [3, 7, 9, 20]
    lm.roberta.embeddings.word_embeddings.padding_idx = 5
    words = tokenizer.read(save_decoder("gpt2", tmp_path))
    assert special_tokens(lm, words) == [0, 1, 3, 5, 7, 9, 20]


@pytest.mark.parametrize("n_sites", [1, 2, 7])
@pytest.mark.parametrize("n_special", [0, 1, 5, 300])
def test_every_special_value_is_tried_between_others(n_sites, n_special):
    special = list(range(3, 3 + n_special))
    batches = trial_inputs([*special, 9999], torch.arange(1000), n_sites)
    x = torch.cat(batches)
    assert {len(batch) for batch in batches} == {N_TRIAL_INPUTS} and x.shape[1] == n_sites
    assert set(special) <= set(x.flatten().tolist()) and int(x.max()) < 1000
    for batch in batches:  # a last one with none, and others beside them
        assert not set(special) & set(batch[-1].tolist())
        if n_sites == 7 and special:
            assert ((batch < 3) | (batch >= 3 + n_special)).any(1).all()


def test_inputs_of_special_values_only():
    x = torch.cat(trial_inputs([0, 1, 2], torch.arange(3), 5))
    assert set(x.flatten().tolist()) == {0, 1, 2}


def test_inputs_differ_in_how_many_of_a_value_they_hold():
    """Some heads require as many </s> in each input of a batch."""
    for special in ([0, 1, 2, 3], [5], [1, 2]):
        x = torch.cat(trial_inputs(special, torch.arange(30), 8))
        assert all(len(set((x == value).sum(1).tolist())) > 1 for value in special)


def test_nothing_is_tried_where_nothing_is_computed():
    assert trial_inputs([1], torch.arange(10, device="meta"), 3) == []


def test_rounding():
    one = torch.tensor([1.0, torch.nan, torch.inf])
    assert as_close(one, one + 5e-5, torch.float32)
    assert not as_close(one, one + 5e-3, torch.float32)
    assert as_close(one, one + 5e-3, torch.bfloat16)


@pytest.mark.parametrize("special", [[0], list(range(6)), list(range(40))])
def test_every_special_value_is_in_the_first_third_of_an_input(special):
    """There a decoder's cached positions go wrong where it counts padding (RoBERTa)."""
    x = torch.cat(trial_inputs(special, torch.arange(64), 10))
    assert set(special) <= set(x[:, :3].unique().tolist())
    assert (x >= len(special)).any()
