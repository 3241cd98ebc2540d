"""Tracks: after any moves, what is kept is what a whole evaluation finds, to the bit."""

import pytest
import torch
from language_folders import save_decoder

from omniinput_hpc.config import CausalLm
from omniinput_hpc.models import causal_lm, trunks

D = 7
KEYS = [{}, {"prefix": [3, 7, 2]}, {"tokens": "no-special"}]


@pytest.fixture(params=["tiny heads", "large heads"])
def heads(request, monkeypatch):
    """Both ways of attending."""
    if request.param == "large heads":
        monkeypatch.setattr(trunks, "TINY_HEAD", 0)


def build(tmp_path, **keys):
    folder = save_decoder("gpt2", tmp_path)
    return causal_lm.build(CausalLm(kind="causal-lm", path=str(folder), length=D, **keys), "cpu")


def random(seed):
    return torch.Generator().manual_seed(seed)


def assert_rows(found, expected):
    """Rows [k, W, V] against l [W, k, V] of Hugging Face's own forward."""
    torch.testing.assert_close(found.transpose(0, 1), expected, atol=1e-5, rtol=0)


def own_rows(model, x):
    """Return l of predicted sites by Hugging Face's whole forward, [W, m, n_values]."""
    logits = model._logits(model._tokens(x))
    return logits.log_softmax(-1)[..., model.token_ids]


@pytest.mark.parametrize("keys", KEYS, ids=str)
@pytest.mark.parametrize("n_walkers", [1, 6])
def test_proposals_are_those_of_whole_evaluations(tmp_path, heads, keys, n_walkers):
    model, g = build(tmp_path, **keys), random(1)
    track, other = model.track(n_walkers), model.track(n_walkers)
    x = torch.randint(model.n_values, (n_walkers, D), generator=g)
    z = track.evaluate(x)
    first = model.predicted_from
    for _ in range(40):
        t = int(torch.randint(D, (1,), generator=g))
        y = x.clone()
        y[:, t:] = torch.randint(model.n_values, (n_walkers, D - t), generator=g)
        z_y = track.propose(y, t)
        assert torch.equal(z_y, other.evaluate(y))
        assert torch.equal(z_y, model.output(y))
        accepted = torch.rand(n_walkers, generator=g) < 0.5
        track.settle(accepted)
        x, z = torch.where(accepted[:, None], y, x), torch.where(accepted, z_y, z)
        kept = torch.cat(list(track.kept_rows(first, D)))
        other.load(x)
        assert torch.equal(kept, torch.cat(list(other.kept_rows(first, D))))
    assert_rows(kept, own_rows(model, x))
    log_p = own_rows(model, x).gather(2, x[:, first:, None]).squeeze(2)
    torch.testing.assert_close(z, -log_p.mean(dim=1), atol=1e-5, rtol=0)


@pytest.mark.parametrize("keys", KEYS, ids=str)
def test_token_by_token_is_as_all_at_once(tmp_path, heads, keys):
    model, g = build(tmp_path, **keys), random(2)
    track, other = model.track(5), model.track(5)
    x = torch.randint(model.n_values, (5, D), generator=g)
    track.load(x)
    for begin, end in ((2, 4), (1, 6), (5, 6), (3, 4), (1, 2)):
        y = x.clone()
        y[:, begin:end] = torch.randint(model.n_values, (5, end - begin), generator=g)
        other.load(y)
        expected = torch.cat(list(other.kept_rows(1, D)))  # of sites 1 to D - 1
        track.begin(begin)
        for t in range(begin, end):
            assert torch.equal(track.row(), expected[t - 1])
            if t + 1 < end:
                track.extend(y[:, t])
        found = torch.cat(list(track.rows_after(y[:, end - 1 : -1])))
        assert torch.equal(found, expected[end - 1 :])
        accepted = torch.arange(5) % 2 == begin % 2
        track.settle(accepted)
        x = torch.where(accepted[:, None], y, x)


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
    """The test above would notice: a track that forgets which positions differ."""
    model, g = build(tmp_path), random(1)
    track = model.track(4)
    x = torch.randint(model.n_values, (4, D), generator=g)
    track.evaluate(x)
    y = (x + 1) % model.n_values
    track.propose(torch.cat([x[:, :2], y[:, 2:]], dim=1), 2)
    track.settle(torch.zeros(4, dtype=torch.bool))
    track._same = D - 1  # wrong: from site 2 on they differ
    late = torch.cat([x[:, :5], y[:, 5:]], dim=1)
    assert not torch.equal(track.propose(late, 5), model.output(late))


def test_chunks_of_logits_change_nothing(tmp_path, monkeypatch):
    model, g = build(tmp_path), random(4)
    x = torch.randint(model.n_values, (6, D), generator=g)
    z, log_p = model.conditional_logits(x)
    monkeypatch.setattr("omniinput_hpc.models.track.CHUNK", 1)
    z_too, log_p_too = model.conditional_logits(x)
    assert torch.equal(z, z_too) and torch.equal(log_p, log_p_too)


def test_room_is_taken_once(tmp_path):
    model, g = build(tmp_path), random(5)
    track = model.track(6)
    x = torch.randint(model.n_values, (6, D), generator=g)
    track.evaluate(x)
    places = [t.data_ptr() for t in (*track._kept, *track._new)]
    for t in range(D):
        track.propose(x, t)
        track.settle(torch.arange(6) < 3)
    track.evaluate(x)
    assert places == [t.data_ptr() for t in (*track._kept, *track._new)]


def test_models_without_a_trunk_have_no_track(tmp_path):
    folder = save_decoder("llama", tmp_path)
    model = causal_lm.build(CausalLm(kind="causal-lm", path=str(folder), length=D), "cpu")
    assert model.track is None
