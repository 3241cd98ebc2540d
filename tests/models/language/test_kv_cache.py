"""KV caches: after any moves, what is kept is what a whole evaluation finds.

To the bit for GPT-2, whose decoder is our own; within rounding for others, 1e-5 of z.
"""

import pytest
import torch
from language_folders import DECODERS, STATES, save_decoder

from omniinput_hpc.config import CausalLm
from omniinput_hpc.models.language import causal_lm, gpt2_decoder
from omniinput_hpc.models.language.kv_cache import KVCache

D = 7
KEYS = [{}, {"prefix": [3, 7, 2]}, {"tokens": "no-special"}]


@pytest.fixture
def heads(request, monkeypatch):
    """A decoder, GPT-2 with both ways of attending, and how close it must be."""
    if request.param == "gpt2, large heads":
        monkeypatch.setattr(gpt2_decoder, "MAX_TINY_HEAD", 0)
    return request.param.partition(",")[0]


GPT2 = ["gpt2, tiny heads", "gpt2, large heads"]
OTHERS = [kind for kind in (*DECODERS, *STATES) if kind != "gpt2"]
ours = pytest.mark.parametrize("heads", GPT2, indirect=True)
any_decoder = pytest.mark.parametrize("heads", [*GPT2, *OTHERS], indirect=True)


def build(tmp_path, kind="gpt2", **keys):
    folder = save_decoder(kind, tmp_path)
    return causal_lm.build(CausalLm(kind="causal-lm", path=str(folder), length=D, **keys), "cpu")


def kv_cache_of(model, n_walkers):
    """Return a KV cache that nobody shares."""
    return KVCache(model._decoder, model.token_ids, model._before, D, n_walkers)


def assert_alike(found, expected, kind):
    """Assert that z, or rows, agree: to the bit where the decoder is our own."""
    atol = 0.0 if kind == "gpt2" else 1e-5 if found.dim() == 1 else 2e-5
    torch.testing.assert_close(found, expected, atol=atol, rtol=atol / 4)


def random(seed):
    return torch.Generator().manual_seed(seed)


def assert_rows(found, expected):
    """Rows [k, W, V] against l [W, k, V] of Hugging Face's own forward."""
    torch.testing.assert_close(found.transpose(0, 1), expected, atol=2e-5, rtol=5e-6)


def own_rows(model, x):
    """Return l of predicted sites by Hugging Face's whole forward, [W, m, n_values]."""
    logits = model._logits(model._tokens(x))
    return logits.log_softmax(-1)[..., model.token_ids]


@pytest.mark.slow
@any_decoder
@pytest.mark.parametrize("keys", KEYS, ids=str)
@pytest.mark.parametrize("n_walkers", [1, 6])
def test_proposals_are_those_of_whole_evaluations(tmp_path, heads, keys, n_walkers):
    model, g = build(tmp_path, heads, **keys), random(1)
    kv_cache, other = kv_cache_of(model, n_walkers), kv_cache_of(model, n_walkers)
    x = torch.randint(model.n_values, (n_walkers, D), generator=g)
    z = kv_cache.evaluate(x)
    first = model.predicted_from
    for _ in range(25):
        t = int(torch.randint(D, (1,), generator=g))
        y = x.clone()
        y[:, t:] = torch.randint(model.n_values, (n_walkers, D - t), generator=g)
        z_y = kv_cache.propose(y, t)
        assert_alike(z_y, other.evaluate(y), heads)
        assert_alike(z_y, model.output(y), heads)
        accepted = torch.rand(n_walkers, generator=g) < 0.5
        kv_cache.accept(accepted)
        x, z = torch.where(accepted[:, None], y, x), torch.where(accepted, z_y, z)
        kept = torch.cat(list(kv_cache.current_rows(first, D)))
        other.load(x)
        assert_alike(kept, torch.cat(list(other.current_rows(first, D))), heads)
    assert_rows(kept, own_rows(model, x))
    log_p = own_rows(model, x).gather(2, x[:, first:, None]).squeeze(2)
    torch.testing.assert_close(z, -log_p.mean(dim=1), atol=1e-5, rtol=0)


@pytest.mark.slow
@any_decoder
@pytest.mark.parametrize("keys", KEYS, ids=str)
def test_token_by_token_is_as_all_at_once(tmp_path, heads, keys):
    model, g = build(tmp_path, heads, **keys), random(2)
    kv_cache, other = kv_cache_of(model, 5), kv_cache_of(model, 5)
    x = torch.randint(model.n_values, (5, D), generator=g)
    kv_cache.load(x)
    for begin, end in ((2, 4), (1, 6), (5, 6), (3, 4), (1, 2)):
        y = x.clone()
        y[:, begin:end] = torch.randint(model.n_values, (5, end - begin), generator=g)
        other.load(y)
        expected = torch.cat(list(other.current_rows(1, D)))  # of sites 1 to D - 1
        kv_cache.begin(begin)
        for t in range(begin, end):
            assert_alike(kv_cache.row(), expected[t - 1], heads)
            if t + 1 < end:
                kv_cache.extend(y[:, t])
        found = torch.cat(list(kv_cache.rows_after(y[:, end - 1 : -1])))
        assert_alike(found, expected[end - 1 :], heads)
        accepted = torch.arange(5) % 2 == begin % 2
        kv_cache.accept(accepted)
        x = torch.where(accepted[:, None], y, x)


@pytest.mark.parametrize("heads", [*GPT2, "llama", "mamba2", "qwen3-next"], indirect=True)
@pytest.mark.parametrize("keys", KEYS, ids=str)
@pytest.mark.parametrize("loaded", [False, True])
def test_inputs_begun_anew_share_nothing_with_the_current_ones(tmp_path, heads, keys, loaded):
    model, g = build(tmp_path, heads, **keys), random(7)
    kv_cache, other = kv_cache_of(model, 5), kv_cache_of(model, 5)
    x, y = torch.randint(model.n_values, (2, 5, D), generator=g)
    if loaded:
        kv_cache.load(x)
    kv_cache.begin_anew()
    rows = []
    for t in range(D):
        if t >= model.predicted_from:
            rows.append(kv_cache.row())
        if t + 1 < D:
            kv_cache.extend(y[:, t])
    assert_rows(torch.stack(rows), own_rows(model, y))
    if not loaded:
        kv_cache.load(x)
    other.load(x)
    late = torch.cat([x[:, :4], y[:, 4:]], dim=1)
    kv_cache.begin(4), other.begin(4)  # what is current has stayed
    assert_alike(kv_cache.row(), other.row(), heads)
    found, expected = (next(iter(one.rows_after(late[:, 4:-1]))) for one in (kv_cache, other))
    assert_alike(found, expected, heads)


def test_inputs_begun_anew_without_their_prefix_have_other_rows(tmp_path):
    """The test above would notice."""
    model, y = build(tmp_path, prefix=[3, 7, 2]), torch.zeros((5, D), dtype=torch.int64)
    kv_cache = kv_cache_of(model, 5)
    kv_cache.begin(0)  # the prefix was never evaluated
    with pytest.raises(AssertionError, match="close"):
        assert_rows(kv_cache.row()[None], own_rows(model, y)[:, :1])


def test_draws_take_a_cache_that_is_there_or_one_of_their_own(tmp_path):
    model = build(tmp_path)
    shared = model.kv_cache(6)
    assert model.draws.kv_cache(6) is shared
    before, more = model.cache_bytes, model.draws.kv_cache(18)
    assert model.draws.kv_cache(18) is more is not shared
    assert model.cache_bytes == before + more.n_bytes
    assert more.n_bytes == 3 * before // 2  # proposals alone
    assert model.kv_cache(6) is shared
    assert model.draws.kv_cache(12) is not more
    assert model.draws.n_together == 0  # on a CPU


@ours
def test_a_walker_does_not_depend_on_the_others(tmp_path, heads):
    model, g = build(tmp_path), random(3)
    x, others = torch.randint(model.n_values, (2, 6, D), generator=g)
    z = model.output(x)
    for w in range(6):
        mixed = others.clone()
        mixed[w] = x[w]
        assert torch.equal(model.output(mixed)[w], z[w])
        assert not torch.equal(model.output(mixed), z)


def test_what_was_rejected_leaves_a_trace_where_it_is_not_copied_back(tmp_path):
    """The test above would notice: a KV cache that forgets which positions differ."""
    model, g = build(tmp_path), random(1)
    kv_cache = kv_cache_of(model, 4)
    x = torch.randint(model.n_values, (4, D), generator=g)
    kv_cache.evaluate(x)
    y = (x + 1) % model.n_values
    kv_cache.propose(torch.cat([x[:, :2], y[:, 2:]], dim=1), 2)
    kv_cache.accept(torch.zeros(4, dtype=torch.bool))
    kv_cache._n_shared = D - 1  # wrong: from site 2 on they differ
    late = torch.cat([x[:, :5], y[:, 5:]], dim=1)
    assert not torch.equal(kv_cache.propose(late, 5), model.output(late))


def test_chunks_of_logits_change_nothing(tmp_path, monkeypatch):
    model, g = build(tmp_path), random(4)
    x = torch.randint(model.n_values, (6, D), generator=g)
    z, log_p = model.conditional_logits(x)
    monkeypatch.setattr("omniinput_hpc.models.language.kv_cache.CPU_CHUNK_LOGITS", 1)
    z_too, log_p_too = model.conditional_logits(x)
    assert torch.equal(z, z_too) and torch.equal(log_p, log_p_too)


def test_room_is_taken_once(tmp_path):
    model, g = build(tmp_path), random(5)
    kv_cache = kv_cache_of(model, 6)
    x = torch.randint(model.n_values, (6, D), generator=g)
    kv_cache.evaluate(x)
    places = [t.data_ptr() for t in (*kv_cache._current, *kv_cache._proposed)]
    for t in range(D):
        kv_cache.propose(x, t)
        kv_cache.accept(torch.arange(6) < 3)
    kv_cache.evaluate(x)
    assert places == [t.data_ptr() for t in (*kv_cache._current, *kv_cache._proposed)]


@pytest.mark.parametrize("heads", ["gpt2, tiny heads", "llama", "mamba2"], indirect=True)
def test_whole_inputs_may_be_evaluated_between_moves_on_the_same_room(tmp_path, heads):
    model, g = build(tmp_path, heads), random(6)
    kv_cache, alone = model.kv_cache(5), kv_cache_of(model, 5)
    assert model.kv_cache(5) is kv_cache and model.cache_bytes == kv_cache.n_bytes > 0
    x, other = torch.randint(model.n_values, (2, 5, D), generator=g)
    assert torch.equal(kv_cache.evaluate(x), alone.evaluate(x))
    version = kv_cache.version
    for t in (4, 2, 5):
        model.output(other)
        y = torch.cat([x[:, :t], other[:, t:]], dim=1)
        assert torch.equal(kv_cache.propose(y, t), alone.propose(y, t))
        for one in (kv_cache, alone):
            one.accept(torch.arange(5) < t)
        x = torch.where(torch.arange(5)[:, None] < t, y, x)
    assert kv_cache.version == version + 3  # whoever moved elsewhere meanwhile would see it


def test_bytes_are_those_of_what_is_there(tmp_path):
    model, x = build(tmp_path), torch.zeros((6, D), dtype=torch.int64)
    assert model.cache_bytes == 0
    model.output(x)  # on a cache of its own, of proposals alone
    before = model.cache_bytes
    assert before > 0
    kv_cache = model.kv_cache(6)
    assert model.cache_bytes == kv_cache.n_bytes == 2 * before
    held = (*kv_cache._current, *kv_cache._proposed)
    assert kv_cache.n_bytes == sum(tensor.nbytes for tensor in held)


@pytest.mark.parametrize(("alike_from", "expected"), [(1, 1), (30, 30), (128, 128), (140, 150)])
def test_rows_that_are_rounded_alike_are_measured(monkeypatch, alike_from, expected):
    """Where 128 rows are not enough, all 150 are taken."""
    like, exact, n_rows = torch.zeros(0), torch.baddbmm, []
    alone = gpt2_decoder.min_rows(150, 8, like)

    def rounded(mask, q, k, alpha):
        n_rows.append(q.shape[1])
        return exact(mask, q, k, alpha=alpha) + 1e-3 * (q.shape[1] < alike_from)

    monkeypatch.setattr(torch, "baddbmm", rounded)
    assert gpt2_decoder.min_rows(150, 8, like) == max(alone, expected)
    assert n_rows[:2] == [150, 128]
