"""Masks that are made once: what they let each position see, and for which models they are used."""

import pytest
import torch
from language_folders import DECODERS, LLAMA_LIKE
from transformers import Gemma2Config, MistralConfig, OPTConfig, OPTForCausalLM
from transformers.models.auto import AutoModelForCausalLM

from omniinput_hpc.models.language import hf_decoder
from omniinput_hpc.models.language.attention_masks import (
    ALIGNMENT,
    CausalMasks,
    narrowest_window,
)

T = 11


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_each_position_sees_itself_and_those_before_it(dtype):
    masks = CausalMasks(T, torch.zeros(1, dtype=dtype))
    for begin in range(T):
        for n in range(1, T - begin + 1):
            mask = masks.of(begin, n)
            assert mask.dtype == dtype and mask.shape == (1, 1, n, begin + n)
            position, key = torch.arange(begin, begin + n)[:, None], torch.arange(begin + n)
            assert torch.equal(mask[0, 0] == 0, key <= position)
            assert torch.equal(mask.softmax(-1) > 0, (key <= position)[None, None])


def test_all_are_views_of_one_tensor_with_aligned_rows():
    masks = CausalMasks(T, torch.zeros(1))
    whole = masks.of(0, T)
    for begin, n in ((0, 1), (3, 1), (3, T - 3), (0, T)):
        mask = masks.of(begin, n)
        assert mask.untyped_storage().data_ptr() == whole.untyped_storage().data_ptr()
        assert mask.stride(-1) == 1 and mask.stride(-2) % ALIGNMENT == 0
        assert mask.storage_offset() % ALIGNMENT == 0


def random_model(config):
    torch.manual_seed(4)
    return AutoModelForCausalLM.from_config(config).eval().requires_grad_(False)


@pytest.mark.parametrize(
    ("config", "window"),
    [
        (MistralConfig(**LLAMA_LIKE, num_key_value_heads=2, sliding_window=4), 4),
        (Gemma2Config(**LLAMA_LIKE, head_dim=4, num_key_value_heads=2, sliding_window=6), 6),
        (Gemma2Config(**LLAMA_LIKE, head_dim=4, num_key_value_heads=2, sliding_window=T), T),
        (MistralConfig(**LLAMA_LIKE, num_key_value_heads=2, sliding_window=None), None),
    ],
)
def test_a_window_of_fewer_positions_is_the_models_own_business(config, window):
    """Else more would be seen than the model's own passes see."""
    lm = random_model(config)
    with torch.no_grad():
        assert hf_decoder.probe(lm)[-1] == window
    decoder = hf_decoder.make(lm, T)
    assert decoder is not None
    assert (decoder.masks is None) == (window is not None and window < T)


def test_windows_are_those_of_the_caches_layers():
    class Layer:
        sliding_window = 8

    assert narrowest_window([object(), Layer()]) == 8
    assert narrowest_window([object()]) is None


@pytest.mark.parametrize("kind", sorted(set(DECODERS) - {"gpt2"}))
def test_known_architectures_take_the_masks(kind):
    decoder = hf_decoder.make(DECODERS[kind]().eval().requires_grad_(False), T)
    assert decoder is not None and decoder.masks is not None


def test_a_model_that_takes_its_positions_from_a_mask_makes_its_own():
    config = OPTConfig(
        vocab_size=29, hidden_size=16, ffn_dim=24, num_hidden_layers=2, num_attention_heads=4,
        max_position_embeddings=16, word_embed_proj_dim=16, bos_token_id=None, eos_token_id=None,
    )  # fmt: skip
    torch.manual_seed(4)
    lm = OPTForCausalLM(config).eval().requires_grad_(False)
    for parameter in lm.parameters():
        parameter *= 3
    decoder = hf_decoder.make(lm, T)
    assert decoder is not None and decoder.masks is None


@pytest.mark.parametrize(
    ("error", "raised"), [(RuntimeError, False), (torch.OutOfMemoryError, True)]
)
def test_a_model_that_cannot_add_a_mask_makes_its_own(monkeypatch, error, raised):
    """But memory that ends is said as that."""

    def fails(self, begin, n):
        raise error("the sizes do not fit")

    monkeypatch.setattr(CausalMasks, "of", fails)
    lm = DECODERS["llama"]().eval().requires_grad_(False)
    if raised:
        with pytest.raises(torch.OutOfMemoryError):
            hf_decoder.make(lm, T)
    else:
        decoder = hf_decoder.make(lm, T)
        assert decoder is not None and decoder.masks is None
