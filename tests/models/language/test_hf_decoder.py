"""Any decoder over kept keys and values: what fits is used, and what does not is found out.

That proposals are those of whole evaluations is shown in test_kv_cache.py.
"""

import logging
from types import SimpleNamespace

import pytest
import torch
from language_folders import DECODERS, LLAMA_LIKE, POSITIONS, V, save_decoder
from run_tools import assert_same
from transformers import (
    AutoModelForCausalLM,
    CohereConfig,
    DeepseekV3Config,
    Gemma2Config,
    GPT2Config,
    GraniteConfig,
    MistralConfig,
    MixtralConfig,
    OpenAIGPTConfig,
    RobertaConfig,
)

from omniinput_hpc.cli import run
from omniinput_hpc.config import CausalLm
from omniinput_hpc.models.language import causal_lm, hf_decoder
from omniinput_hpc.models.language.gpt2_decoder import Gpt2Decoder
from omniinput_hpc.models.language.hf_decoder import FixedCacheLayer, HfDecoder
from omniinput_hpc.models.language.kv_cache import KVCache
from omniinput_hpc.models.language.prefix_cache import cache_argument
from omniinput_hpc.models.language.shared_caches import SharedCaches
from omniinput_hpc.models.language.state_decoder import StateDecoder
from omniinput_hpc.sampling.walkers import Walkers

T = 12
FITS = {
    "a window of 4 tokens": MistralConfig(**LLAMA_LIKE, num_key_value_heads=2, sliding_window=4),
    "experts": MixtralConfig(**LLAMA_LIKE, num_key_value_heads=2, num_local_experts=4),
    "values smaller than keys": DeepseekV3Config(
        **LLAMA_LIKE, n_routed_experts=4, n_group=2, topk_group=1, num_experts_per_tok=2,
        kv_lora_rank=8, q_lora_rank=8, qk_rope_head_dim=4, qk_nope_head_dim=8, v_head_dim=4,
        moe_intermediate_size=8, first_k_dense_replace=1, n_shared_experts=1,
    ),
    "GPT-2 of another kind": GPT2Config(
        vocab_size=V, n_positions=POSITIONS, n_embd=16, n_layer=2, n_head=2,
        scale_attn_by_inverse_layer_idx=True, bos_token_id=None, eos_token_id=None,
    ),
}  # fmt: skip
CHANGED = {
    "capped logits": Gemma2Config(
        **LLAMA_LIKE, head_dim=4, num_key_value_heads=2, final_logit_softcapping=0.5
    ),
    "scaled logits": GraniteConfig(**LLAMA_LIKE, logits_scaling=2.0),
    "multiplied logits": CohereConfig(**LLAMA_LIKE),
}
FITS |= CHANGED


def random_model(config, dtype=torch.float32):
    """Return a model whose outputs are far from uniform."""
    torch.manual_seed(4)
    lm = AutoModelForCausalLM.from_config(config).to(dtype).eval().requires_grad_(False)
    for parameter in lm.parameters():
        parameter *= 3
    return lm


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("what", FITS)
def test_models_that_fit(what, dtype):
    decoder = hf_decoder.make(random_model(FITS[what], dtype), T)
    kv, hidden = decoder.allocate(5)
    assert kv.dtype == hidden.dtype == dtype and kv.shape[:3] == (2, 5, T)
    assert hidden.shape == (T, 5, 16)


@pytest.mark.parametrize("what", CHANGED)
def test_logits_are_the_models_own(what):
    lm = random_model(CHANGED[what])
    decoder, tokens = hf_decoder.make(lm, T), torch.arange(2 * T).view(T, 2) % V
    hidden = decoder.run(tokens, 0, decoder.allocate(2)[0])
    logits = decoder.head(hidden)
    torch.testing.assert_close(logits, lm(input_ids=tokens.T).logits.transpose(0, 1))
    torch.testing.assert_close(decoder.head(hidden[3]), logits[3])  # as `KVCache.row` asks for it
    assert (logits - lm.get_output_embeddings()(hidden)).abs().max() > 0.1


def test_logits_of_more_than_the_last_hidden_state_do_not_fit(caplog):
    lm = random_model(FITS["a window of 4 tokens"])

    def plus_the_tokens(module, args, kwargs, output):
        if kwargs.get("input_ids") is not None:
            output.logits = output.logits + kwargs["input_ids"][..., None]
        return output

    lm.register_forward_hook(plus_the_tokens, with_kwargs=True)
    with caplog.at_level(logging.INFO, "omniinput_hpc"):
        assert hf_decoder.make(lm, T) is None
    assert "depend on more than the last hidden state" in caplog.text


@pytest.mark.parametrize("kind", ["llama", "olmo", "olmo2", "gpt-neox"])
def test_the_device_is_asked_for_nothing(kind, monkeypatch):
    """On a device that has no numbers: whoever waited for one would fail."""
    lm = DECODERS[kind]().eval().requires_grad_(False).to("meta")
    with torch.no_grad():
        decoder = HfDecoder(lm, 6)
    none = torch.zeros(0, dtype=torch.int64, device="meta")
    x = torch.zeros((5, 7), dtype=torch.int64, device="meta")
    accepted = torch.zeros(5, dtype=torch.bool, device="meta")
    kv_cache = KVCache(decoder, torch.arange(V, device="meta"), none, 7, 5)

    def move():
        kv_cache.propose(x, 3)
        kv_cache.accept(accepted)
        kv_cache.begin(2)
        kv_cache.row()
        kv_cache.extend(x[:, 2])
        list(kv_cache.rows_after(x[:, 3:-1]))
        kv_cache.accept(accepted)

    kv_cache.evaluate(x)
    move()
    monkeypatch.setattr(FixedCacheLayer, "truncate", lambda self, seen: bool(self.keys.any()))
    with pytest.raises(RuntimeError, match=r"(?i)meta"):  # nothing is there to be asked for
        move()


def test_models_that_do_not_fit_say_so(caplog):
    config = OpenAIGPTConfig(vocab_size=V, n_positions=POSITIONS, n_embd=16, n_layer=2, n_head=2)
    with caplog.at_level(logging.INFO, "omniinput_hpc"):
        assert hf_decoder.make(random_model(config), T) is None
    (record,) = [r for r in caplog.records if r.name == "omniinput_hpc"]
    assert "whole inputs are evaluated in every move" in record.message
    assert "takes no keys and values" in record.message and record.levelno == logging.INFO


@pytest.mark.parametrize(
    "error", [TypeError("got an unexpected keyword"), RuntimeError("sizes"), AssertionError("no")]
)
def test_an_error_of_the_models_own_is_a_warning(monkeypatch, caplog, error):
    """As a library's change would be: nothing is wrong with the outputs, but runs get slower."""

    def changed(self, *_):
        raise error

    monkeypatch.setattr(HfDecoder, "run", changed)
    with caplog.at_level(logging.INFO, "omniinput_hpc"):
        decoder = hf_decoder.make(random_model(FITS["experts"]), T)
    assert isinstance(decoder, StateDecoder)
    (record,) = [r for r in caplog.records if r.name == "omniinput_hpc"]
    assert str(error) in record.message and record.levelno == logging.WARNING


@pytest.mark.parametrize(
    ("where", "error"),
    [("run", torch.OutOfMemoryError("CUDA")), ("allocate", RuntimeError("a fault of ours"))],
)
def test_a_lack_of_memory_and_our_own_faults_are_not_swallowed(monkeypatch, where, error):
    def fails(self, *_):
        raise error

    monkeypatch.setattr(HfDecoder, where, fails)
    with pytest.raises(type(error), match=str(error)):
        hf_decoder.make(random_model(FITS["experts"]), T)


def test_special_tokens_are_in_the_trial(caplog):
    """One that a model counts no position for shows only where it stands."""
    sizes = {k: v for k, v in LLAMA_LIKE.items() if k not in ("vocab_size", "pad_token_id")}
    config = RobertaConfig(**sizes, vocab_size=4000, pad_token_id=1, is_decoder=True)
    lm = AutoModelForCausalLM.from_config(config).eval()
    for parameter in lm.parameters():
        parameter.data *= 3
    assert isinstance(hf_decoder.make(lm, T), HfDecoder)  # which is wrong
    with caplog.at_level(logging.INFO, "omniinput_hpc"):
        assert isinstance(hf_decoder.make(lm, T, special=[1]), StateDecoder)
    assert "different outputs" in caplog.text


def test_keys_and_values_go_by_the_name_that_a_model_has_for_them():
    def new(input_ids, cache=None): ...

    def old(input_ids, past_key_values=None): ...

    assert cache_argument(SimpleNamespace(forward=new)) == "cache"
    assert cache_argument(SimpleNamespace(forward=old)) == "past_key_values"


def test_models_that_do_not_fit_have_no_kv_cache(tmp_path, monkeypatch):
    monkeypatch.setattr(hf_decoder, "MAX_DISTANCE", {torch.float32: -1.0})
    model = build(tmp_path, "llama")
    assert model.kv_cache is None
    assert model.output(torch.zeros((2, 7)).long()).isfinite().all()


def build(folder, kind, **keys):
    folder = save_decoder(kind, folder)
    return causal_lm.build(CausalLm(kind="causal-lm", path=str(folder), length=7, **keys), "cpu")


def test_gpt2_keeps_its_own(tmp_path):
    assert isinstance(build(tmp_path, "gpt2")._decoder, Gpt2Decoder)


def from_0_in_each_piece(self):
    return 0


def never_written(self, key_states, value_states, *args, **kwargs):
    end = self._seen + key_states.shape[2]
    if self._seen == 0:
        self.keys[:, :, :end], self.values[:, :, :end] = key_states, value_states
    self._seen = end
    return self.keys[:, :, :end], self.values[:, :, :end]


def one_layer_late(self, seen):
    self._seen = max(seen - 1, 0)


@pytest.mark.slow
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize(
    ("name", "wrong"),
    [
        ("get_seq_length", from_0_in_each_piece),
        ("update", never_written),
        ("truncate", one_layer_late),
    ],
)
@pytest.mark.parametrize("kind", ["llama", "olmo2", "gpt-neox"])
def test_what_is_wrong_is_found_out(tmp_path, monkeypatch, caplog, kind, name, wrong, dtype):
    """Positions from 0 in each piece, stale keys, and keys in the wrong place."""
    monkeypatch.setattr(FixedCacheLayer, name, wrong)
    lm = build(tmp_path, kind, dtype=str(dtype).removeprefix("torch.")).lm
    with caplog.at_level(logging.INFO, "omniinput_hpc"):
        assert not isinstance(hf_decoder.make(lm, T), HfDecoder)
    assert "different outputs" in caplog.text


@pytest.mark.slow
def test_nothing_grows_and_nothing_is_copied(tmp_path):
    model = build(tmp_path, "llama")
    decoder = model._decoder
    assert isinstance(decoder, HfDecoder)
    kv, _ = decoder.allocate(3)
    tokens = torch.randint(V, (6, 3))
    decoder.run(tokens, 0, kv)
    before = kv.clone()
    decoder.run(tokens[4:], 4, kv)
    for layer, room in zip(decoder._layers, kv, strict=True):
        keys, values = layer.update(torch.zeros(3, 2, 0, 4), torch.zeros(3, 2, 0, 4))
        assert keys.shape == values.shape == (3, 2, 6, 4)
        inside = range(room.data_ptr(), room.data_ptr() + 4 * room.numel())
        assert keys.data_ptr() in inside and values.data_ptr() in inside
    torch.testing.assert_close(kv, before, atol=1e-5, rtol=0)
    assert kv.shape == (2, 3, 6, 2 * 2 * 4)


RUN = """
[run]
output = "{folder}/{name}.h5"
seed = 3
rounds = 4
burn_in = 1
[model]
kind = "causal-lm"
path = "{folder}"
length = 7
[sampler]
walkers = 16
steps = 20
exchanges = 1
[ladder]
betas = [0.0, 2.0, 4.0]
[kernel]
name = "{kernel}"
[bins]
lower = 0.0
upper = 12.0
width = 0.5
[samples]
every = 5
"""


def sample(folder, name, kernel, rounds):
    """Run, or go on with a run, until so many rounds are there."""
    file = folder / f"{name}.toml"
    file.write_text(RUN.format(folder=folder, name=name, kernel=kernel))
    assert run.main([str(file), "--set", f"run.rounds={rounds}"]) == 0
    return folder / f"{name}.h5"


@pytest.fixture
def wide(monkeypatch):
    """Models so wide that sums are rounded otherwise where fewer positions are evaluated."""
    monkeypatch.setitem(LLAMA_LIKE, "hidden_size", 64)


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "kernel"), [
    ("llama", "metropolis"), ("olmo2", "lm-conditional"),
    *(pytest.param(*case, marks=pytest.mark.release) for case in
      [("llama", "lm-conditional"), ("olmo2", "metropolis"),
       ("gpt-neox", "lm-conditional"), ("gpt-neox", "metropolis")]),
])  # fmt: skip
def test_a_run_that_went_on_is_the_same_as_one_at_once(tmp_path, wide, kind, kernel):
    save_decoder(kind, tmp_path)
    for rounds in (1, 2, 3):
        path = sample(tmp_path, "stopped", kernel, rounds)
    assert_same(path, sample(tmp_path, "whole", kernel, 3))


def alone(self, n_walkers):
    """Return a KV cache that no other rung shares."""
    return self._make(n_walkers)


@pytest.mark.slow
@pytest.mark.parametrize("kernel", ["metropolis", "lm-conditional"])
def test_what_outlives_an_exchange_would_show(tmp_path, wide, monkeypatch, kernel):
    """Bits depend on how a proposal was come by, so that every segment must begin alike."""
    save_decoder("olmo2", tmp_path)
    place, run_decoder = Walkers.place, HfDecoder.run

    def rounded_otherwise(self, tokens, begin, *arguments):
        """A processor whose products of few rows are rounded otherwise; some do not show it."""
        hidden = run_decoder(self, tokens, begin, *arguments)
        return hidden * (1 + 1e-6) if begin else hidden

    monkeypatch.setattr(HfDecoder, "run", rounded_otherwise)

    def placed_unless_there(self, x_wd, z_w):
        state = self._placed
        if state is None or (state.x.numpy() != x_wd).any():
            place(self, x_wd, z_w)

    monkeypatch.setattr(Walkers, "place", placed_unless_there)
    monkeypatch.setattr(SharedCaches, "shared", alone)  # else other rungs' moves show
    for rounds in (1, 2, 3):
        path = sample(tmp_path, "stopped", kernel, rounds)
    with pytest.raises(AssertionError, match="differ in"):
        assert_same(path, sample(tmp_path, "whole", kernel, 3))
