"""The search of burn-in: passages that are hardly ever begun are found at any site, and learned."""

import numpy as np
import torch
from planted_passages import planted_passages

from omniinput_hpc import kernels, rng
from omniinput_hpc.config.kernels import LmConditional, Mixture
from omniinput_hpc.kernels.look_ahead import search as search_module
from omniinput_hpc.kernels.look_ahead.continuations import NOTHING, Texts, learn
from omniinput_hpc.kernels.look_ahead.exploration import N_BATCHES, N_KINDS
from omniinput_hpc.kernels.look_ahead.search import Search, _aligned, batch_size, likeliest
from omniinput_hpc.kernels.parts import conditionals
from omniinput_hpc.kernels.parts.device_rng import DeviceStream
from omniinput_hpc.kernels.state import SearchBudget, Target
from omniinput_hpc.models import offers_of
from omniinput_hpc.tempering.ensembles import Canonical

B, W = 1.3, 32
MODEL = planted_passages("cpu", n_sites=9, n_values=24, n_passages=3, enter_bits=20)


def stream(seed):
    return DeviceStream(rng.generator(seed, "look-ahead"), torch.device("cpu"), 1000)


def search(seed=1, model=MODEL):
    def begin(x):
        return conditionals.begin(model.conditional_logits, model.kv_cache(W), x, 0)

    assert offers_of(model).predicted_from == 1
    x = torch.zeros((W, model.n_sites), dtype=torch.int64)
    return Search(begin, x, model.n_values, 1, B, stream(seed))


def test_texts_come_with_what_the_model_says_of_them():
    texts = search().found(None, SearchBudget(16))
    assert texts.x.shape == (N_BATCHES * W, 9)
    rows = MODEL.conditional_logits(torch.from_numpy(texts.x))[1].double()
    log_p = rows.gather(2, torch.from_numpy(texts.x)[..., None])[..., 0]
    np.testing.assert_allclose(texts.log_p[:, 1:], log_p[:, 1:], atol=1e-6)
    np.testing.assert_allclose(texts.log_z[:, 1:], (B * rows).logsumexp(2)[:, 1:], atol=1e-5)
    assert texts.tempered.sum() == N_BATCHES * W / N_KINDS
    assert len(np.unique(texts.x[:, 0])) == 24, "every first value"


def test_passages_begun_once_in_a_million_are_found_and_learned():
    surest = search().surest_contexts(None, SearchBudget(32))
    pairs = np.pad(MODEL.passages[:, :2], ((0, 0), (2, 0)), constant_values=NOTHING)
    assert {tuple(p) for p in pairs.tolist()} <= {tuple(row) for row in surest[:8].tolist()}
    known = None
    for seed in range(3):
        known = learn(known, search(seed).found(known, SearchBudget(16)), B, 24, 1)
    index = known.index_of(pairs)
    assert (known.length[index] == 2).all()
    assert (known.gains(9)[7, index] > 3).all()
    assert not {tuple(p) for p in pairs.tolist()} & {
        tuple(row) for row in search(4).surest_contexts(known, SearchBudget(16)).tolist()
    }, "what is known is not searched for again"


def test_two_rare_steps_in_a_row_are_found_from_any_site():
    """The third value is told by hot texts at every site; beginnings alone would be too few."""
    model = planted_passages("cpu", 9, 24, n_passages=3, enter_bits=8, n_rare=2)
    surest = search(2, model).surest_contexts(None, SearchBudget(400))
    threes = np.pad(model.passages[:, :3], ((0, 0), (1, 0)), constant_values=NOTHING)
    found = {tuple(p) for p in threes.tolist()} & {tuple(row) for row in surest.tolist()}
    assert len(found) == 3


def test_a_search_for_another_rung_starts_from_what_that_rung_knows():
    """The kernel that searches may be a hot rung's, which knows nothing."""
    ahead = LmConditional(name="lm-conditional", look_ahead=True)
    parts = [{"name": "metropolis"}, ahead.model_dump()]
    mixture = Mixture.model_validate({"name": "mixture", "parts": parts})
    known = learn(None, search(0).found(None, SearchBudget(16)), B, 24, 1).numbers()
    x = torch.zeros((W, 9), dtype=torch.int64)

    def found(options, tuned):
        kernel = kernels.build(options, MODEL, W)
        return kernel.search(Target(Canonical(8 * B), tuned, SearchBudget(4)), x, stream(1)).x

    texts = found(ahead, known)
    np.testing.assert_array_equal(found(mixture, known), texts)
    assert (found(ahead, np.zeros_like(known)) != texts).any()


def test_a_share_of_a_search_is_a_share_of_its_work():
    found = search().found(None, SearchBudget(4, share=0.25))
    assert found.x.shape == (N_BATCHES // 4 * W, 9)
    surest = search().surest_contexts(None, SearchBudget(4, share=0.25))
    assert len(surest) == W // 4


def passages_found(model, n_batches):
    fours = {tuple(p) for p in model.passages[:, :4].tolist()}
    surest = search(2, model).surest_contexts(None, SearchBudget(n_batches))
    return len(fours & {tuple(row) for row in surest.tolist()})


def test_three_rare_steps_that_are_the_likeliest_of_their_rows_are_found(monkeypatch):
    """Steps of 1 / 32 among 200 values: cold texts take them, once they have begun anew."""
    model = planted_passages("cpu", 9, 200, n_passages=6, enter_bits=5, n_rare=3)
    assert passages_found(model, n_batches=600) >= 5
    monkeypatch.setattr(search_module, "RESTART", 1.0)  # uniform values in place of cold texts
    assert passages_found(model, n_batches=600) == 0


def test_small_vocabularies_are_searched_in_larger_batches():
    assert batch_size(32, 25, 64) == 256
    assert batch_size(200, 25, 64) == 200, "not twice as many"
    assert batch_size(32, 25, 49_152) == 32


def test_contexts_are_aligned():
    contexts = np.resize([[NOTHING, NOTHING, 5, 6], [1, 2, 3, 4], [NOTHING] * 4], (W, 4))
    length, values = _aligned(torch.from_numpy(contexts))
    assert length[:3].tolist() == [2, 4, 0]
    assert values[0, :2].tolist() == [5, 6]
    assert values[1].tolist() == [1, 2, 3, 4]


def test_the_likeliest_texts_of_different_beginnings_are_offered():
    x = np.array([[1, 2, 3, 4, 5], [1, 2, 3, 4, 6], [2, 2, 3, 4, 5], [7, 7, 7, 7, 7]])
    log_p = -np.array([[1.0], [0.5], [3.0], [0.1]]) * np.ones((4, 5))
    texts = Texts(x, log_p, log_p, np.zeros(4, dtype=bool))
    assert likeliest(texts, 2).tolist() == [x[3].tolist(), x[1].tolist()]
    assert likeliest(texts, 5)[:, 0].tolist() == [7, 1, 2, 7, 1]
