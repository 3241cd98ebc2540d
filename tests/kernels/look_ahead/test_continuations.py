"""What is learned of continuations: exact where all are known, found again in the run file."""

from dataclasses import fields, replace

import numpy as np
import pytest
import torch

from omniinput_hpc import rng
from omniinput_hpc.config.kernels import MAX_CONTEXTS, LmConditional
from omniinput_hpc.kernels.look_ahead.continuations import (
    Continuations,
    Texts,
    contexts_of,
    keys_of,
    learn,
    of_numbers,
)

B = 1.3
N_VALUES, N_SITES = 4, 16


def markov_table():
    """Return log-probabilities: value 0 is rare and hard to leave, other rows near uniform."""
    p = np.random.default_rng(3).dirichlet([5.0] * N_VALUES, size=N_VALUES)
    p[0], p[1:, 0] = (0.97, 0.01, 0.01, 0.01), 1e-3
    p /= p.sum(axis=1, keepdims=True)
    return np.log(p)


def of_table(log_p):
    """Return all that can be known of a Markov chain."""
    alone = np.array([[-1, -1, -1, v] for v in range(N_VALUES)])
    alone = alone[np.argsort(keys_of(alone))]
    rows = log_p[alone[:, -1]]
    z = np.log(np.exp(B * rows).sum(axis=1))
    index, value = np.indices(rows.shape).reshape(2, -1)
    one = np.ones(rows.size)
    return Continuations(
        B, -0.4, alone, z, np.ones(N_VALUES), np.zeros(N_VALUES), index, value, rows.ravel(), one
    )


def exact_log_sums(log_p):
    """Return V with 0 to D - 1 sites to come, [D, N_VALUES]."""
    sums = [np.zeros(N_VALUES)]
    for _ in range(N_SITES - 1):
        sums.append(np.logaddexp.reduce(B * log_p + sums[-1], axis=1))
    return np.array(sums)


def drawn_texts(log_p, n, seed=1, b=B):
    """Return tempered draws of the chain."""
    random = np.random.default_rng(seed)
    x = np.zeros((n, N_SITES), dtype=np.int64)
    p = np.exp(b * log_p) / np.exp(b * log_p).sum(axis=1, keepdims=True)
    x[:, 0] = random.integers(N_VALUES, size=n)
    for t in range(1, N_SITES):
        u = random.random(n)[:, None]
        x[:, t] = (u > p[x[:, t - 1]].cumsum(axis=1)).sum(axis=1).clip(max=N_VALUES - 1)
    log_z = np.log(np.exp(b * log_p).sum(axis=1))
    at_x, z = np.zeros(x.shape), np.zeros(x.shape)
    at_x[:, 1:], z[:, 1:] = log_p[x[:, :-1], x[:, 1:]], log_z[x[:, :-1]]
    return Texts(x, at_x, z, np.ones(n, dtype=bool))


def test_contexts_are_the_last_values():
    found = contexts_of(np.array([[5, 6, 7, 8, 9, 1]]))[0]
    assert found.tolist() == [
        [-1, -1, -1, 5], [-1, -1, 5, 6], [-1, 5, 6, 7], [5, 6, 7, 8], [6, 7, 8, 9],
    ]  # fmt: skip
    assert len(np.unique(keys_of(found))) == len(found)


def test_where_all_is_known_the_sums_are_exact():
    log_p = markov_table()
    known = of_table(log_p)
    gain_nc = known.gains(N_SITES)
    growth = known.growth * np.arange(N_SITES)[:, None]
    values = known.values[:, -1]
    np.testing.assert_allclose(gain_nc + growth, exact_log_sums(log_p)[:, values], atol=1e-5)


def test_the_longest_ending_that_is_kept_is_found():
    values = np.array([[-1, -1, -1, 3], [-1, -1, 2, 3], [1, 1, 2, 3]])
    values = values[np.argsort(keys_of(values))]
    one = np.ones(3)
    empty = np.zeros(0, dtype=np.int64)
    known = Continuations(B, 0.0, values, one, one, one, empty, empty, np.zeros(0), np.zeros(0))

    def found(*context, **options):
        index = known.index_of(np.array(context), **options)
        return values[index].tolist() if index >= 0 else None

    assert found(1, 1, 2, 3) == [1, 1, 2, 3]
    assert found(0, 1, 2, 3) == [-1, -1, 2, 3] == found(-1, 1, 2, 3)
    assert found(0, 1, 0, 3) == [-1, -1, -1, 3] == found(-1, -1, -1, 3)
    assert found(0, 1, 0, 2) is None
    assert found(1, 1, 2, 3, shortened=True) == [-1, -1, 2, 3]
    assert found(-1, -1, 2, 3, shortened=True) == [-1, -1, -1, 3]
    assert found(-1, -1, -1, 3, shortened=True) is None


def test_what_is_learned_approaches_the_exact_sums():
    log_p = markov_table()
    known = None
    for seed in range(4):
        known = learn(known, drawn_texts(log_p, 400, seed), B, N_VALUES, 1)
    sums = exact_log_sums(log_p)
    index = known.index_of(np.array([-1, -1, -1, 0]))
    ordinary = np.logaddexp.reduce(sums[-1, 1:]) - np.log(3)
    assert known.gains(N_SITES)[-1, index] == pytest.approx(sums[-1, 0] - ordinary, abs=0.15)
    assert sums[-1, 0] - ordinary > 1.0
    assert known.growth == pytest.approx(sums[1, 1:].mean(), abs=0.1)


def test_texts_that_are_no_draws_leave_ordinary_text_as_it_was():
    log_p = markov_table()
    known = learn(None, drawn_texts(log_p, 400), B, N_VALUES, 1)
    others = replace(drawn_texts(log_p, 50, 2), tempered=np.zeros(50, dtype=bool))
    again = learn(known, others, B, N_VALUES, 1)
    assert again.growth == known.growth
    kept = again.index_of(known.values)
    same = (kept >= 0) & (again.length[kept] == known.length)
    np.testing.assert_array_equal(again.share[kept[same]], known.share[same])
    assert known.share.any()


@pytest.mark.parametrize("count", [1.0, 100.0])
def test_a_context_seen_once_leads_at_least_where_its_ending_leads(count):
    """[2, 1] never went on to the sure 3 yet; [1] is known to."""
    values = np.array([[-1, -1, -1, 1], [-1, -1, 2, 1], [-1, -1, -1, 3]])
    order = np.argsort(keys_of(values))
    z = np.array([-0.5, -0.5, -0.02])[order]
    at = {tuple(v): i for i, v in enumerate(values[order].tolist())}
    one, three = at[-1, -1, -1, 1], at[-1, -1, -1, 3]
    known = Continuations(
        B, -0.5, values[order], z, np.full(3, count), np.zeros(3),
        np.array([one, three]), np.array([3, 3]), np.array([-0.6, -0.01]), np.ones(2),
    )  # fmt: skip
    gain_c = known.gains(N_SITES)[-1]
    assert gain_c[one] > 1.0
    longer = gain_c[at[-1, -1, 2, 1]]
    assert longer == gain_c[one] if count == 1.0 else abs(longer) < 0.1


def test_numbers_hold_everything():
    known = learn(None, drawn_texts(markov_table(), 300), B, N_VALUES, 1)
    numbers = known.numbers()
    assert numbers.shape == (LmConditional(name="lm-conditional", look_ahead=True).n_tuned,)
    assert np.isfinite(numbers).all()
    again = of_numbers(numbers)
    for field in fields(Continuations):
        np.testing.assert_array_equal(getattr(again, field.name), getattr(known, field.name))
    assert of_numbers(np.zeros_like(numbers)) is None


def test_as_much_is_kept_as_there_is_room_for():
    random = rng.generator(1, "start")
    n, n_values = 600, 5000
    x = random.integers(n_values, size=(n, 9))
    texts = Texts(x, -3 * random.random(x.shape), -2 * random.random(x.shape), np.arange(n) < 100)
    known = learn(None, texts, B, n_values, 1)
    assert len(known.values) <= MAX_CONTEXTS
    assert (np.diff(keys_of(known.values)) > 0).all()
    assert of_numbers(known.numbers()).value.tolist() == known.value.tolist()
    assert torch.from_numpy(known.numbers()).isfinite().all()
