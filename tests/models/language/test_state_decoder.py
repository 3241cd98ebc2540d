"""Decoders whose layers carry states: what goes on from them is what whole inputs give.

That proposals are those of whole evaluations is shown in test_kv_cache.py.
"""

import itertools
import logging

import pytest
import torch
from language_folders import LLAMA_LIKE, STATES, V, save_decoder
from run_tools import assert_same, run
from transformers import (
    AutoModelForCausalLM,
    BartConfig,
    Llama4TextConfig,
    RemBertConfig,
    RobertaConfig,
)
from transformers.cache_utils import LinearAttentionLayer

from omniinput_hpc.config import CausalLm
from omniinput_hpc.models.language import causal_lm, hf_decoder
from omniinput_hpc.models.language.hf_decoder import HfDecoder
from omniinput_hpc.models.language.kv_cache import KVCache
from omniinput_hpc.models.language.prefix_cache import PrefixDecoder, WholePrefixes
from omniinput_hpc.models.language.state_decoder import StateDecoder

T = 12
BEFORE = torch.tensor([3, 7, 2])


def model_of(config, scale=3.0):
    """Return a model whose outputs are far from uniform."""
    torch.manual_seed(4)
    lm = config() if callable(config) else AutoModelForCausalLM.from_config(config)
    for parameter in lm.eval().requires_grad_(False).parameters():
        parameter *= scale
    return lm


@pytest.mark.parametrize("before", [BEFORE[:0], BEFORE], ids=["", "prefix"])
@pytest.mark.parametrize("kind", STATES)
def test_recurrent_layers_fit(kind, before, caplog):
    with caplog.at_level(logging.INFO, "omniinput_hpc"):
        decoder = hf_decoder.make(model_of(STATES[kind]), T, before=before)
    assert isinstance(decoder, StateDecoder)
    assert "the sites before a proposal are evaluated again: a layer caches" in caplog.text


def of_the_last_inputs(self, begin, n_walkers):
    return begin, self._cache


def not_kept(self, conv_states, state_idx=0, **_):
    """Return the window of a convolution as it is at the begin of every input."""
    size = self.conv_states[state_idx].shape[-1] if self.conv_states[state_idx] is not None else 4
    return torch.nn.functional.pad(conv_states, (size - 1, 0))


WRONG = [
    (StateDecoder, "_restart", of_the_last_inputs),
    (LinearAttentionLayer, "update_recurrent_state", lambda self, states, *_, **__: states),
    (LinearAttentionLayer, "update_conv_state", not_kept),
]


@pytest.mark.parametrize(("owner", "name", "wrong"), WRONG, ids=[name for _, name, _ in WRONG])
@pytest.mark.parametrize("kind", ["mamba2", "qwen3-next"])
def test_states_that_are_wrong_are_found_out(monkeypatch, caplog, owner, name, wrong, kind):
    """States of other sequences, and states that are not kept."""
    monkeypatch.setattr(owner, name, wrong)
    with caplog.at_level(logging.INFO, "omniinput_hpc"):
        assert hf_decoder.make(model_of(STATES[kind]), T) is None
    assert "whole inputs are evaluated in every move" in caplog.text


def left_out(self, beam_idx):
    """Reorder the convolution's state, and leave the recurrent one out."""
    self.conv_states[0] = self.conv_states[0].index_select(0, beam_idx)


def build(folder, kind, **keys):
    save_decoder(kind, folder)
    return causal_lm.build(CausalLm(kind="causal-lm", path=str(folder), length=7, **keys), "cpu")


@pytest.mark.parametrize("kind", STATES)
def test_prefixes_are_reordered_with_all_their_states(tmp_path, monkeypatch, kind):
    x = torch.randint(V, (3, 7), generator=torch.Generator().manual_seed(1))
    model = build(tmp_path, kind)
    assert isinstance(model._prefixes, PrefixDecoder)
    branches = model.branch(model.begin(x[:, :3]))
    some = model.select(branches, torch.arange(3) * V + x[:, 3])
    torch.testing.assert_close(
        model.extend(some, x[:, 4]).log_p, model.conditional_logits(x)[1][:, 5]
    )
    monkeypatch.setattr(LinearAttentionLayer, "reorder_cache", left_out)
    del model.__dict__["_prefixes"]
    assert isinstance(model._prefixes, WholePrefixes)


def test_memory_holds_the_states(tmp_path):
    model = build(tmp_path, "mamba2")
    allocated = sum(tensor.nbytes for tensor in model._decoder.allocate(5))
    scores = 2 * 6 * 5 * 4
    # two layers: 4 heads of 8 x 4 numbers, and 4 positions of 32 + 2 * 4 numbers
    assert model._decoder.state_bytes == 2 * 4 * (4 * 8 * 4 + 4 * 40)
    shared = model.kv_cache(5)
    assert shared.n_bytes == 2 * (allocated + scores) + 5 * model._decoder.state_bytes


def test_padding_has_no_position():
    """As RoBERTa counts; another try without the model's own count fails."""
    sizes = {k: v for k, v in LLAMA_LIKE.items() if k not in ("vocab_size", "pad_token_id")}
    config = RobertaConfig(**sizes, vocab_size=V, pad_token_id=1, is_decoder=True)
    lm = model_of(config)
    assert isinstance(hf_decoder.make(lm, T, special=[1]), StateDecoder)
    decoder = StateDecoder(lm, T, BEFORE[:0], [1], numbered=False)
    with pytest.raises(hf_decoder.UnsupportedDecoder, match="different outputs"):
        hf_decoder.try_out(decoder, lm, BEFORE[:0])


@pytest.mark.parametrize("config", [
    Llama4TextConfig(**LLAMA_LIKE, num_key_value_heads=2, head_dim=4, intermediate_size_mlp=24,
                     num_local_experts=2),
    BartConfig(vocab_size=V, d_model=16, encoder_layers=2, decoder_layers=2,
               decoder_attention_heads=2, decoder_ffn_dim=24, max_position_embeddings=16),
    RemBertConfig(vocab_size=V, hidden_size=16, num_hidden_layers=2, num_attention_heads=2,
                  intermediate_size=24, input_embedding_size=8, output_embedding_size=12,
                  is_decoder=True),
], ids=lambda config: config.model_type)  # fmt: skip
def test_a_body_in_another_place_and_a_head_of_another_size(config):
    assert isinstance(hf_decoder.make(model_of(config), T), HfDecoder)


@pytest.mark.parametrize("n_sites", range(2, 9))
@pytest.mark.parametrize("n_before", [0, 1, 3])
@pytest.mark.parametrize("kind", ["mamba", "mamba2"])
def test_inputs_of_any_length(kind, n_before, n_sites):
    """Mamba ignores its state when several tokens follow, which a short trial might not show."""
    lm, before = model_of(STATES[kind]), BEFORE[:n_before]
    decoder = hf_decoder.make(lm, n_before + n_sites - 1, before=before)
    x = torch.randint(V, (2, n_sites), generator=torch.Generator().manual_seed(1))
    cache = KVCache(decoder, torch.arange(V), before, n_sites, 2)
    whole = cache.output(x).clone()
    for singly, middle in itertools.product(range(n_sites - 1), range(n_sites)):
        cache.load(x.roll(1, 0))
        cache.begin(0)
        for t in range(singly):
            cache.extend(x[:, t])
        for begin, end in itertools.pairwise(sorted({singly, max(singly, middle), n_sites - 1})):
            list(cache.rows_after(x[:, begin:end]))
        cache._score(x, 0)
        torch.testing.assert_close(cache._z(), whole, atol=1e-4, rtol=0)


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    ("kind", "kernel"), [("mamba", "metropolis"), ("qwen3-next", "lm-conditional")]
)
def test_bits_do_not_depend_on_ranks_or_stops(tmp_path, kind, kernel):
    save_decoder(kind, tmp_path)
    whole, two, stopped = (tmp_path / f"{name}.h5" for name in ("whole", "two", "stopped"))
    sample(tmp_path, whole, kernel, 2)
    sample(tmp_path, two, kernel, 2, ranks=2)
    for rounds in (1, 2):
        sample(tmp_path, stopped, kernel, rounds)
    assert_same(whole, two)
    assert_same(whole, stopped)


def sample(folder, path, kernel, rounds, ranks=1):
    """Run, or go on with a run, until so many rounds are there."""
    file = path.with_suffix(".toml")
    file.write_text(RUN.format(folder=folder, output=path, kernel=kernel))
    done = run(file, "--set", f"run.rounds={rounds}", ranks=ranks)
    assert done.returncode == 0, done.stderr


RUN = """
[run]
output = "{output}"
seed = 3
rounds = 2
[model]
kind = "causal-lm"
path = "{folder}"
length = 7
[sampler]
walkers = 6
steps = 8
exchanges = 2
[ladder]
betas = [0.0, 2.0, 4.0, 6.0]
[kernel]
name = "{kernel}"
[bins]
lower = 0.0
upper = 12.0
width = 0.5
[samples]
every = 4
"""
