"""Texts that are drawn to be learned from: a passage that is hardly ever begun is found."""

import numpy as np
import torch
from planted_passages import planted_passages

from omniinput_hpc import rng
from omniinput_hpc.kernels.look_ahead.exploration import N_BATCHES, N_KINDS, Explorer
from omniinput_hpc.kernels.parts import conditionals
from omniinput_hpc.kernels.parts.device_rng import DeviceStream
from omniinput_hpc.models import offers_of

B, W = 1.3, 32
MODEL = planted_passages("cpu", n_sites=9, n_values=24, n_passages=3, enter_bits=20)


def explorer(seed=1):
    def begin(x):
        return conditionals.begin(MODEL.conditional_logits, MODEL.kv_cache(W), x, 0)

    stream = DeviceStream(rng.generator(seed, "look-ahead"), torch.device("cpu"), 1000)
    assert offers_of(MODEL).predicted_from == 1
    return Explorer(begin, torch.zeros((W, 9), dtype=torch.int64), 24, 1, B, stream)


def test_texts_come_with_what_the_model_says_of_them():
    texts = explorer().texts()
    assert texts.x.shape == (N_BATCHES * W, 9)
    rows = MODEL.conditional_logits(torch.from_numpy(texts.x))[1].double()
    log_p = rows.gather(2, torch.from_numpy(texts.x)[..., None])[..., 0]
    np.testing.assert_allclose(texts.log_p[:, 1:], log_p[:, 1:], atol=1e-6)
    np.testing.assert_allclose(texts.log_z[:, 1:], (B * rows).logsumexp(2)[:, 1:], atol=1e-5)
    assert texts.tempered.sum() == N_BATCHES * W / N_KINDS
    assert len(np.unique(texts.x[:, 0])) == 24, "every first value"


def test_passages_begun_once_in_a_million_are_found():
    surest = explorer().surest()
    ways = {tuple(row) for row in surest.tolist()}
    assert {tuple(p[:4]) for p in MODEL.passages.tolist()} <= ways
