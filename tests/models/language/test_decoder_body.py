"""A decoder's body and head together give the model's own logits."""

import pytest
import torch
from language_folders import DECODERS, LLAMA_LIKE, STATES, V
from transformers import AutoModelForCausalLM, BartConfig, BartForCausalLM, GraniteConfig

from omniinput_hpc.models.language.decoder_body import BodyAndHead, FullHead, body_of, takes_a_cache

BART = BartConfig(
    vocab_size=V, d_model=16, decoder_layers=1, decoder_attention_heads=2, decoder_ffn_dim=16,
    encoder_layers=1, encoder_attention_heads=2, encoder_ffn_dim=16, is_decoder=True,
    is_encoder_decoder=False,
)  # fmt: skip
MODELS = {
    **{kind: DECODERS[kind] for kind in ("gpt2", "llama")},
    **{kind: STATES[kind] for kind in ("mamba", "qwen3-next")},
    "bart": lambda: BartForCausalLM(BART),
    "granite": lambda: AutoModelForCausalLM.from_config(
        GraniteConfig(**LLAMA_LIKE, logits_scaling=2.0)
    ),
}


@pytest.fixture(params=MODELS)
def lm(request):
    torch.manual_seed(4)
    return MODELS[request.param]().eval().requires_grad_(False)


def test_body_and_head_are_the_model(lm):
    parts, tokens = BodyAndHead(lm), torch.arange(10).view(2, 5) % V
    logits = lm(input_ids=tokens).logits
    parts.head = FullHead(lm, parts.body)
    hidden = parts.body(input_ids=tokens, use_cache=False).last_hidden_state
    torch.testing.assert_close(parts.head(hidden), logits)
    torch.testing.assert_close(parts.head(hidden[:, 3]), logits[:, 3])
    assert parts.n_vocab == V and takes_a_cache(parts.body)
    assert torch.equal(lm(input_ids=tokens).logits, logits), "the model itself has changed"


def test_the_output_layer_alone_is_not_all_of_a_head():
    lm = MODELS["granite"]().eval()
    parts, tokens = BodyAndHead(lm), torch.arange(5)[None]
    hidden = parts.body(input_ids=tokens, use_cache=False).last_hidden_state
    assert not torch.allclose(parts.head(hidden), lm(input_ids=tokens).logits)


def test_a_wrapper_is_not_a_body():
    lm = MODELS["bart"]()
    assert body_of(lm) is lm.get_decoder() and body_of(lm) is not lm.base_model
