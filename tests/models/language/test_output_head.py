"""Logits in float32 from weights of half precision, as a GPU multiplies them, shown on a CPU."""

import pytest
import torch
from language_folders import DECODERS, save_decoder

from omniinput_hpc.config import CausalLm
from omniinput_hpc.models.language import causal_lm, output_head

D, W = 7, 9


@pytest.fixture
def products(monkeypatch):
    """Let the CPU multiply as a GPU does, and count how often it is asked to."""
    calls, mm = [], torch.mm

    def multiply(a, b, *, out_dtype=None):
        if out_dtype is None:
            return mm(a, b)
        assert a.dtype == b.dtype == torch.bfloat16 and out_dtype == torch.float32
        calls.append(a.shape)
        return mm(a.float(), b.float())

    monkeypatch.setattr(torch, "mm", multiply)
    monkeypatch.setattr(output_head, "on_cuda", lambda weight: True)
    return calls


def build(folder, dtype="bfloat16"):
    options = CausalLm(kind="causal-lm", path=str(folder), length=D, dtype=dtype)
    return causal_lm.build(options, "cpu")


@pytest.fixture(params=DECODERS)
def folder(request, tmp_path):
    return save_decoder(request.param, tmp_path)


def test_logits_are_never_rounded_to_half_precision(folder, products):
    model = build(folder)
    hidden = torch.randn((3, W, 16), generator=torch.Generator().manual_seed(1)).bfloat16()
    exact = hidden.float() @ model.lm.get_output_embeddings().weight.float().T
    logits = model._decoder.head(hidden)
    assert logits.dtype == torch.float32
    torch.testing.assert_close(logits, exact, atol=1e-5, rtol=1e-6)
    rounded = model.lm.get_output_embeddings()(hidden).float()
    assert (rounded - exact).abs().max() > 1e-3  # what the model's own layer does to them


def test_everything_that_z_is_made_of_takes_them(folder, products):
    model = build(folder)
    x = torch.randint(model.n_values, (W, D), generator=torch.Generator().manual_seed(1))
    seen = len(products)

    def asked():
        nonlocal seen
        before, seen = seen, len(products)
        return seen > before

    z = model.output(x)
    assert asked()
    z_too, log_p = model.conditional_logits(x)
    assert asked() and torch.equal(z, z_too)
    chosen = log_p[:, 1:].gather(2, x[:, 1:, None])[..., 0]
    torch.testing.assert_close(-chosen.mean(1), z, atol=1e-5, rtol=0)
    z_of_factors, _, rest = model.output_and_factors(x)
    assert asked()
    torch.testing.assert_close(z_of_factors, z, atol=0.05, rtol=0)  # hidden states are rounded
    model.target_rows(rest, torch.full((W,), 2))
    assert asked()
    cache = model.kv_cache(W)
    cache.load(x)
    cache.begin(3)
    assert cache.row().dtype == torch.float32 and asked()


def test_a_bias_is_added_in_float32(products):
    layer = torch.nn.Linear(8, 5, dtype=torch.bfloat16).requires_grad_(False)
    hidden = torch.randn((2, 3, 8), generator=torch.Generator().manual_seed(1)).bfloat16()
    found = output_head.Float32Head(layer.weight, layer.bias)(hidden)
    exact = hidden.float() @ layer.weight.float().T + layer.bias.float()
    torch.testing.assert_close(found, exact, atol=1e-6, rtol=1e-6)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_a_cpu_and_float32_keep_the_models_own_layer(tmp_path, dtype, monkeypatch):
    model = build(save_decoder("olmo", tmp_path), dtype)
    assert output_head.head_of(model.lm) is model.lm.get_output_embeddings()
    monkeypatch.setattr(output_head, "on_cuda", lambda weight: True)
    own = output_head.head_of(model.lm) is model.lm.get_output_embeddings()
    assert own == (dtype == "float32")
