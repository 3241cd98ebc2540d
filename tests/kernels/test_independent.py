"""Independent samplers draw from the distribution that they claim, whatever the model forbids."""

from dataclasses import replace
from functools import cache
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from exactness import exact_distribution
from language_folders import save_decoder
from launches import Counter, model_on_meta
from markov_model import DrawnModel, MarkovModel
from runs_in_progress import config_of

from omniinput_hpc import rng
from omniinput_hpc.config import CausalLm
from omniinput_hpc.errors import UserError
from omniinput_hpc.kernels import DeviceStream, independent
from omniinput_hpc.kernels.state import State
from omniinput_hpc.models.language import causal_lm
from omniinput_hpc.sampling import anchors
from omniinput_hpc.sampling.anchors import Anchors
from omniinput_hpc.tempering.ensembles import Canonical

W, MOVES = 500, 40


def model_of(forbidden=0):
    return MarkovModel(3, 4, forbidden)


def stream(seed=5):
    one, other = (rng.generator(seed, purpose, 0) for purpose in ("moves", "choices"))
    return DeviceStream(one, torch.device("cpu"), 1 << 16, other)


def drawn(kernel, beta, moves=MOVES):
    """Return the states after some moves."""
    x, numbers, states = torch.zeros((W, 3), dtype=torch.int64), stream(), []
    state = kernel.start(x, torch.zeros(W))
    for _ in range(moves):
        state, info = kernel.step(state, Canonical(beta), numbers)
        assert info.accepted.all()
        states.append(replace(state, cache=info.log_q))
    return states


def index_of(x, n_values=4):
    return (x * torch.tensor([n_values**2, n_values, 1])).sum(dim=1).numpy()


def sigmas(states, p):
    """Return how many sigmas chi-square is beyond its mean."""
    return sigmas_of_index([index_of(s.x) for s in states], p)


def sigmas_of_index(indices, p):
    """Return the same of inputs' numbers."""
    count = sum(np.bincount(index, minlength=len(p)) for index in indices)
    n = count.sum()
    common = n * p >= 5
    seen = np.append(count[common], count[~common].sum())
    expected = np.append(n * p[common], max(n * p[~common].sum(), 1e-9))
    chi_square = ((seen - expected) ** 2 / expected)[expected > 1e-6].sum()
    return (chi_square - common.sum()) / np.sqrt(2 * common.sum())


def test_uniform_draws_are_uniform():
    model = model_of()
    states = drawn(independent.UniformSampler(model, W), 0.0)
    assert abs(sigmas(states, exact_distribution(model, 0.0))) < 4
    assert torch.equal(states[-1].z, model.output(states[-1].x))


@pytest.mark.parametrize("forbidden", [0, 1, 3])
def test_autoregressive_draws_have_the_models_own_law(forbidden):
    model = model_of(forbidden)
    states = drawn(independent.AutoregressiveSampler(model, W), 2.0)
    assert abs(sigmas(states, exact_distribution(model, 2.0))) < 4


def test_renormalizing_row_by_row_would_fail():
    """With forbidden values, ancestral sampling at b = 1 misses the model's own distribution."""
    model = model_of(3)
    states = drawn(independent.AncestralSampler(model, W, [2.0]), 2.0)
    assert sigmas(states, exact_distribution(model, 2.0)) > 10


@pytest.mark.parametrize("forbidden", [0, 2])
@pytest.mark.parametrize("beta", [-1.5, 0.0, 1.0, 2.0, 3.5])
def test_ancestral_draws_know_their_own_probability(beta, forbidden):
    model, betas = model_of(forbidden), [-1.5, 0.0, 1.0, 2.0, 3.5]
    states = drawn(independent.AncestralSampler(model, W, betas), beta)
    x = torch.cat([s.x for s in states]).numpy()
    log_q = torch.cat([s.cache for s in states]).numpy()
    every = model.all_inputs()
    for j, b in enumerate(np.array(betas) / 2):
        scaled = (b * model.table.double()).log_softmax(dim=1)
        exact = scaled[every[:, 0], every[:, 1]] + scaled[every[:, 1], every[:, 2]] - np.log(4)
        q = exact.exp().numpy()
        assert q.sum() == pytest.approx(1.0)
        np.testing.assert_allclose(log_q[:, j], exact[index_of(torch.from_numpy(x))], atol=1e-6)
        assert (abs(sigmas(states, q)) < 4) == (betas[j] == beta)


@pytest.mark.parametrize("beta", [-1.5, 0.0, 2.0])
def test_forbidden_values_are_drawn_at_no_b(beta):
    """A row's -inf times b = 0 is no number, and times a negative b it would be drawn alone."""
    model, betas = model_of(), [-1.5, 0.0, 2.0]
    model.table[:, 2] = -torch.inf
    states = drawn(independent.AncestralSampler(model, W, betas), beta)
    x, log_q = (torch.cat([getattr(s, n) for s in states]) for n in ("x", "cache"))
    assert not (x[:, 1:] == 2).any()
    allowed = [0, 1, 3]
    for j, b in enumerate(np.array(betas) / 2):
        rows = (b * model.table[:, allowed].double()).log_softmax(dim=1)
        place = torch.tensor([0, 1, 0, 2])
        steps = [rows[x[:, t], place[x[:, t + 1]]] for t in range(2)]
        np.testing.assert_allclose(log_q[:, j], sum(steps) - np.log(4), atol=1e-6)


def test_cached_decoding_gives_the_same_draws():
    model = model_of()

    class Cached(MarkovModel):
        """The same, decoded step by step."""

        class Prefixes:
            def __init__(self, log_p):
                self.log_p = log_p

        def begin(self, prefix):
            return self.Prefixes(self.table[prefix[:, -1]])

        def extend(self, prefixes, values):
            return self.Prefixes(self.table[values])

    plain = drawn(independent.AncestralSampler(model, W, [1.0, 2.0]), 2.0, 3)
    cached = drawn(independent.AncestralSampler(Cached(3, 4), W, [1.0, 2.0]), 2.0, 3)
    for a, b in zip(plain, cached, strict=True):
        assert torch.equal(a.x, b.x) and torch.equal(a.cache, b.cache)


@pytest.mark.parametrize("forbidden", [0, 3])
def test_draws_by_a_kv_cache_have_the_models_own_law_and_its_outputs(forbidden):
    model = DrawnModel(3, 4, forbidden)
    states = drawn(independent.AutoregressiveSampler(model, W), 2.0)
    assert abs(sigmas(states, exact_distribution(model, 2.0))) < 4
    for state in states:
        torch.testing.assert_close(state.z, model.output(state.x), atol=1e-6, rtol=0)


KEYS = [{}, {"prefix": [3, 7, 2]}, {"tokens": "no-special"}]


@pytest.mark.parametrize("keys", KEYS, ids=str)
@pytest.mark.parametrize("kind", ["gpt2", "olmo"])
def test_language_models_draw_by_kv_cache_what_they_draw_by_prefixes(tmp_path, kind, keys):
    options = CausalLm(kind="causal-lm", path=str(save_decoder(kind, tmp_path)), length=6, **keys)
    model = causal_lm.build(options, "cpu")
    m = 6.0 - model.predicted_from
    samplers = {
        "autoregressive": independent.AutoregressiveSampler,
        "ancestral": lambda model, n: independent.AncestralSampler(model, n, [m, 2.0]),
    }
    for name, make in samplers.items():
        found = []
        for draws in (model.draws, None):
            sampler = make(model, 40)
            sampler._offers = replace(sampler._offers, draws=draws)
            x = torch.zeros((40, 6), dtype=torch.int64)
            moved, info = sampler.step(State(x, torch.zeros(40)), Canonical(m), stream())
            torch.testing.assert_close(moved.z, model.output(moved.x), atol=1e-5, rtol=0)
            found.append((moved, info))
        (by_cache, info), (by_prefixes, other) = found
        assert torch.equal(by_cache.x, by_prefixes.x)
        assert len(by_cache.x.unique(dim=0)) > 30
        if name == "ancestral":  # at beta = m the probability is exp(-m z), to rounding
            torch.testing.assert_close(info.log_q, other.log_q, atol=1e-4, rtol=0)
            first = model.predicted_from * np.log(model.n_values)
            if "tokens" not in keys:
                expected = -m * by_cache.z.double() - first
                torch.testing.assert_close(info.log_q[:, 0], expected, atol=1e-5, rtol=0)


class OneForAll(independent.AutoregressiveSampler):
    """A wrong variant: the segments get one draw."""

    def draw(self, like, stream):
        return super().draw(like, stream)[:1] * self.n_ahead


@pytest.mark.parametrize("forbidden", [0, 3])
@pytest.mark.parametrize(("kind", "right"), [(None, True), (OneForAll, False)])
def test_draws_of_several_segments_are_independent(kind, right, forbidden):
    """Pairs of inputs, of one walker in two segments, have the product of the model's law."""
    model, numbers = DrawnModel(2, 3, forbidden, together=4 * W), stream()
    sampler = (kind or independent.AutoregressiveSampler)(model, W, 4)
    assert sampler.n_ahead == 4
    pairs = []
    for _ in range(MOVES):
        batches = sampler.draw(torch.zeros((W, 2), dtype=torch.int64), numbers)
        assert [len(batch.z) for batch in batches] == [W] * 4
        i_sw = np.stack([(batch.x[:, 0] * 3 + batch.x[:, 1]).numpy() for batch in batches])
        pairs += [9 * i_sw[one] + i_sw[other] for one, other in ((0, 1), (0, 3), (2, 1))]
    p = exact_distribution(model, 1.0)
    apart = sigmas_of_index(pairs, np.outer(p, p).ravel())
    assert (abs(apart) < 4) if right else (apart > 10)


@pytest.mark.parametrize(("n_walkers", "n_segments", "together", "expected"), [
    (64, 20, 320, 5), (128, 20, 320, 2), (256, 20, 320, 1), (64, 7, 320, 1), (64, 3, 320, 3),
    (64, 20, 0, 1), (8, 20, 320, 20),
])  # fmt: skip
def test_as_many_segments_are_drawn_at_once_as_fit_and_divide_a_round(
    n_walkers, n_segments, together, expected
):
    model = DrawnModel(3, 4, together=together)
    sampler = independent.AutoregressiveSampler(model, n_walkers, n_segments)
    assert sampler.n_ahead == expected


@cache
def work_of_draws(n_layers, draws=True, n_segments=1):
    """Count what a GPU is given for a draw of 64 inputs, of a shape with so many layers."""
    model = model_on_meta(n_layers)
    sampler = independent.AutoregressiveSampler(model, 64, n_segments)
    sampler._all_drawn = lambda *_: True
    if not draws:
        sampler._offers = replace(sampler._offers, draws=None)
    like = torch.zeros((64, 6), dtype=torch.int64, device="meta")
    numbers, counter = DeviceStream(rng.generator(1, "moves"), like.device, 1 << 20), Counter()
    counter.record(model.draws.kv_cache(64 * sampler.n_ahead))
    with torch.no_grad():
        sampler.draw(like, numbers)  # recorded at the second use
        with counter:
            sampler.draw(like, numbers)
    return counter.work


def test_a_draw_launches_what_is_no_graph_once_a_token_and_no_layer():
    """By prefixes each token launched the kernels of all layers."""
    by_prefixes, by_cache = ([work_of_draws(n, draws) for n in (1, 2)] for draws in (False, True))
    assert by_prefixes[1].launches - by_prefixes[0].launches > 5 * 30  # tokens
    assert by_cache[0].launches == by_cache[1].launches < 5 * 30
    assert by_cache[1].kernels > by_prefixes[1].kernels / 2  # they are in the graphs
    assert by_cache[1].launches < by_cache[1].kernels / 4
    together = work_of_draws(1, n_segments=5)
    assert together.launches <= by_cache[0].launches + 5
    assert together.kernels <= by_cache[0].kernels + 5


def test_what_is_counted_is_linear_in_the_layers():
    """The benchmark of a run's pace counts models of few layers."""
    one, two, four = (np.array(work_of_draws(n).numbers()) for n in (1, 2, 4))
    np.testing.assert_allclose(one + 3 * (two - one), four, rtol=1e-9)


def anchors_of(model, with_anchors=True):
    like = torch.zeros((W, model.n_sites), dtype=torch.int64)
    return Anchors(model, like, with_anchors, independent.try_rows(model, W, "cpu"), None)


def test_who_gets_an_anchor():
    found = anchors_of(model_of())
    assert found.model_beta == 2.0
    assert isinstance(found.of(Canonical(0.0))[0], independent.UniformSampler)
    kernel, always = found.of(Canonical(2.0))
    assert isinstance(kernel, independent.AutoregressiveSampler) and not always
    assert found.of(Canonical(1.0)) == (None, False)
    assert anchors_of(model_of(), with_anchors=False).of(Canonical(0.0)) == (None, False)


def unnormalized(forbidden=0, shift=1.0):
    """A model whose rows are log-weights: the contract allows it."""
    model = model_of(forbidden)
    model.table = model.table + shift * torch.arange(4.0)[:, None]  # the first row stays
    return model


def test_rows_that_are_no_probabilities_are_not_drawn_from():
    """Zeros alone do not show it: the row that follows a 0 is normalized."""
    model = unnormalized()
    found = independent.try_rows(model, W, "cpu")
    assert found.largest == pytest.approx(np.exp(3.0))
    assert found.problem == "a row of the model's conditional_logits sums to 20.09, not to 1"
    allowed = anchors_of(model)
    assert allowed.model_beta is None and allowed.of(Canonical(2.0)) == (None, False)
    assert isinstance(allowed.of(Canonical(0.0))[0], independent.UniformSampler)
    with pytest.raises(RuntimeError, match="not log-probabilities"):
        drawn(independent.AutoregressiveSampler(model, W), 2.0, 1)


@pytest.mark.parametrize("batch", [1, 5, 64])
def test_the_share_of_allowed_sequences_is_found_before_it_is_too_small(batch):
    for forbidden in (0, 1, 3):
        model = model_of(forbidden)
        p = (-2.0 * model.output(model.all_inputs()).double()).exp().sum() / 4  # first site
        found = independent.try_rows(model, batch, "cpu")
        assert found.problem == "" and found.largest < 1.0 + 1e-6
        assert found.whole == pytest.approx(float(p), rel=0.3)
    tiny = unnormalized(shift=0.0)
    tiny.table = tiny.table - 5.0
    assert (
        "only a share of 4.5e-05 of the sequences"
        in independent.try_rows(tiny, batch, "cpu").problem
    )
    tiny.table[2] = torch.nan
    assert independent.try_rows(tiny, batch, "cpu").largest == np.inf


def test_a_lack_of_memory_for_the_rows_is_told(tmp_path, monkeypatch):
    def out_of_memory(*arguments):
        raise torch.OutOfMemoryError

    monkeypatch.setattr(anchors, "try_rows", out_of_memory)
    words = ["ladder.anchors=true", "model.factory=markov_model:markov"]
    with pytest.raises(UserError, match=r"smaller sampler\.walkers, or ladder\.anchors = false"):
        anchors.rows_of(config_of(tmp_path, *words), model_of(), W, "cpu")
    without = config_of(tmp_path, "ladder.anchors=false")
    assert anchors.rows_of(without, model_of(), W, "cpu") is None


def test_rows_that_draws_are_made_by_are_those_that_are_judged():
    """A model whose cached rows differ from its conditional_logits is drawn by the cached ones."""

    class Cached(MarkovModel):
        def begin(self, prefix):
            return SimpleNamespace(log_p=self.table[prefix[:, -1]] + 1.0)

        def extend(self, prefixes, values):
            return SimpleNamespace(log_p=self.table[values])

    assert independent.try_rows(Cached(3, 4), W, "cpu").largest == pytest.approx(np.e)


@pytest.mark.parametrize("beta", [0.0, 1.0, 2.0])
def test_ancestral_draws_need_no_probabilities(beta):
    """Their own normalization makes the rows probabilities, at any b."""
    model = unnormalized()
    states = drawn(independent.AncestralSampler(model, W, [beta]), beta)
    scaled = (beta / 2 * model.table.double()).log_softmax(dim=1)
    every = model.all_inputs()
    exact = scaled[every[:, 0], every[:, 1]] + scaled[every[:, 1], every[:, 2]] - np.log(4)
    assert abs(sigmas(states, exact.exp().numpy())) < 4
    x, log_q = torch.cat([s.x for s in states]), torch.cat([s.cache for s in states])
    np.testing.assert_allclose(log_q[:, 0], exact[index_of(x)], atol=1e-6)


def test_a_model_without_conditionals_is_refused():
    class Bare:
        n_sites, n_values = 3, 4

    with pytest.raises(UserError, match="conditional_logits"):
        independent.AncestralSampler(Bare(), W, [1.0])
