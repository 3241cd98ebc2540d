"""Packed weights give a decoder the same outputs within rounding, and leave the model as it is."""

import copy
import logging

import pytest
import torch
from language_folders import DECODERS, save_classifier, save_decoder
from torch import nn
from transformers import AutoModelForCausalLM

from omniinput_hpc.config import CausalLm, SequenceClassifier
from omniinput_hpc.models import offers_of
from omniinput_hpc.models.language import causal_lm, packed, sequence_classifier
from omniinput_hpc.models.language.foreign_code import ForeignError
from omniinput_hpc.models.language.hf_decoder import HfDecoder

D, W = 7, 5


def build(folder, dtype="float32"):
    options = CausalLm(kind="causal-lm", path=str(folder), length=D, dtype=dtype)
    return causal_lm.build(options, "cpu")


@pytest.mark.parametrize("kind", sorted(set(DECODERS) - {"gpt2"}))
def test_a_decoder_with_packed_weights_gives_the_outputs_of_its_model(kind, tmp_path):
    folder = save_decoder(kind, tmp_path)
    model, lm = build(folder), AutoModelForCausalLM.from_pretrained(folder)
    assert isinstance(model._decoder, HfDecoder)
    assert model._decoder._packed is not model._decoder.body
    x = torch.randint(model.n_values, (W, D), generator=torch.Generator().manual_seed(1))
    for x_w, z in zip(x, model.output(x), strict=True):
        tokens = model._tokens(x_w[None])
        expected = lm(input_ids=tokens, labels=tokens).loss
        torch.testing.assert_close(z, expected, atol=2e-5, rtol=2e-5)
    linear = [m for m in model._decoder.body.modules() if type(m) is nn.Linear]
    n_bytes = sum(layer.weight.nbytes for layer in linear)
    assert packed.packed_bytes(model._decoder._packed) == n_bytes > 0
    assert model.packed_bytes >= n_bytes
    assert offers_of(model).cache_bytes() == model.packed_bytes + model.cache_bytes


def test_a_wrong_packed_weight_is_noticed(tmp_path, monkeypatch, caplog):
    """The trial compares every decoder with the model; whole inputs are then evaluated."""
    reorder = torch.ops.mkldnn._reorder_linear_weight
    monkeypatch.setattr(
        torch.ops.mkldnn, "_reorder_linear_weight", lambda w, n: reorder(1.01 * w, n)
    )
    with caplog.at_level(logging.INFO, "omniinput_hpc"):
        assert build(save_decoder("llama", tmp_path))._decoder is None
    assert "it gives different outputs" in caplog.text


def test_encoders_are_packed_if_that_changes_nothing(tmp_path, monkeypatch):
    """Their gradients are those of the model itself."""
    folder = save_classifier(tmp_path)
    options = SequenceClassifier(
        kind="sequence-classifier", path=str(folder), length=8, target=1
    )  # fmt: skip
    model = sequence_classifier.build(options, "cpu")
    linear = [m for m in model.lm.modules() if type(m) is nn.Linear]
    assert model.packed_bytes == sum(layer.weight.nbytes for layer in linear) > 0
    x = torch.randint(
        model.n_values, (W, model.n_sites), generator=torch.Generator().manual_seed(1)
    )
    torch.testing.assert_close(
        model.output(x), model.output_and_gradient(x)[0], atol=2e-5, rtol=2e-5
    )
    reorder = torch.ops.mkldnn._reorder_linear_weight
    monkeypatch.setattr(
        torch.ops.mkldnn, "_reorder_linear_weight", lambda w, n: reorder(1.01 * w, n)
    )
    assert sequence_classifier.build(options, "cpu").packed_bytes == 0


def test_a_model_that_fails_as_a_copy_is_evaluated_as_it_is():
    body = Shared()

    def evaluate(module):
        if module is not body:
            raise ForeignError("it fails")
        return [module(torch.ones(1, 8))]

    assert packed.packed_if_same(body, evaluate) is body


class Shared(nn.Module):
    """Two names of one layer, a layer that is read and not called, and nested layers."""

    def __init__(self):
        super().__init__()
        self.one = nn.Linear(8, 8)
        self.same = self.one
        self.read = nn.Linear(8, 8)
        self.nested = nn.ModuleList([nn.Sequential(nn.Linear(8, 4, bias=False)), None])

    def forward(self, x):
        return self.nested[0](self.same(self.one(x)) @ self.read.weight)


def test_the_copy_shares_all_but_the_packed_layers():
    body, x = Shared(), torch.randn(3, 2, 8)
    before, state = body(x), copy.deepcopy(body.state_dict())
    other = packed.packed_body(body)
    torch.testing.assert_close(other(x), before, atol=1e-5, rtol=1e-5)
    assert other.one is other.same is not body.one
    assert all(p is q for p, q in zip(other.parameters(), body.parameters(), strict=True))
    assert packed.packed_bytes(body) == 0 and torch.equal(body(x), before)
    assert all(torch.equal(state[name], value) for name, value in body.state_dict().items())
    body(x).sum().backward()  # the module itself still has gradients
    assert body.one.weight.grad is not None


def test_large_models_keep_one_copy_of_their_weights(monkeypatch):
    body = Shared()
    monkeypatch.setattr(packed, "MAX_BYTES", 4 * (2 * 64 + 32) - 1)
    assert packed.packed_body(body) is body
    monkeypatch.setattr(packed, "MAX_BYTES", 4 * (2 * 64 + 32))
    assert packed.packed_body(body) is not body


def test_half_precision_without_kernels_is_not_packed(monkeypatch):
    body = Shared().half()
    assert packed.packed_body(body) is body
    monkeypatch.setattr(torch.ops.mkldnn, "_is_mkldnn_bf16_supported", lambda: False)
    body = Shared().bfloat16()
    assert packed.packed_body(body) is body
