"""Beginnings are met in the order of how likely they are, each once, against all that there are."""

import itertools

import numpy as np
import pytest
import torch
from planted_passages import planted_passages

from omniinput_hpc import rng
from omniinput_hpc.kernels.look_ahead.beginnings import Beginnings
from omniinput_hpc.kernels.look_ahead.continuations import NOTHING
from omniinput_hpc.kernels.look_ahead.search import Search
from omniinput_hpc.kernels.parts import conditionals
from omniinput_hpc.kernels.parts.device_rng import DeviceStream
from omniinput_hpc.kernels.state import SearchBudget

B, W = 1.3, 32


def parts(model, seed=1, first=1, n_walkers=W):
    def begin(x):
        return conditionals.begin(model.conditional_logits, model.kv_cache(len(x)), x, 0)

    stream = DeviceStream(rng.generator(seed, "look-ahead"), torch.device("cpu"), 1000)
    like = torch.zeros((n_walkers, model.n_sites), dtype=torch.int64)
    return begin, like, model.n_values, first, B, stream


def log_p_of(model, beginnings):
    """Return ln p of beginnings, [n, k], without the first value, by whole inputs."""
    x = torch.zeros((len(beginnings), model.n_sites), dtype=torch.int64)
    k = beginnings.shape[1]
    x[:, :k] = torch.as_tensor(beginnings)
    rows = model.conditional_logits(x)[1].double()
    return rows.gather(2, x[..., None])[:, 1:k, 0].sum(dim=1).numpy(), rows


def test_with_steps_enough_all_are_met_once_and_ln_z_is_right():
    model = planted_passages("cpu", n_sites=9, n_values=5, n_passages=2, enter_bits=4)
    met, sure = Beginnings(*parts(model)).met(np.arange(5), 10**6)
    expected = {
        (NOTHING,) * (4 - k) + values
        for k in (2, 3, 4)
        for values in itertools.product(range(5), repeat=k)
    }
    assert len(met) == len(expected)
    assert {tuple(row) for row in met.tolist()} == expected
    fours = met[met[:, 0] != NOTHING]
    _, rows = log_p_of(model, fours)
    np.testing.assert_allclose(
        sure[met[:, 0] != NOTHING], (B * rows[:, 4]).logsumexp(dim=1), atol=1e-5
    )


def test_with_fewer_steps_the_likeliest_are_met():
    model = planted_passages("cpu", n_sites=9, n_values=24, n_passages=3, enter_bits=6)
    pairs = np.array(list(itertools.product(range(24), repeat=2)))
    log_p, _ = log_p_of(model, pairs)
    n_steps = 3000  # a tenth for pairs, and what is left over of first values
    met, _ = Beginnings(*parts(model)).met(np.arange(24), n_steps)
    of_two = met[(met[:, 1] == NOTHING) & (met[:, 2] != NOTHING)][:, 2:]
    assert len(of_two) < len(pairs)
    worst_met = log_p_of(model, of_two)[0].min()
    better = pairs[log_p > worst_met + 0.02]  # but for ties
    assert {tuple(p) for p in better.tolist()} <= {tuple(p) for p in of_two.tolist()}
    spent = sum(k * (np.sum(met != NOTHING, axis=1) == k).sum() for k in (2, 3, 4)) + 24
    assert spent <= n_steps


def test_only_some_first_values_and_those_that_matter_first():
    model = planted_passages("cpu", n_sites=9, n_values=24, n_passages=3, enter_bits=6)
    met, _ = Beginnings(*parts(model)).met(np.array([7, 3]), 500)
    assert set(met[met[:, 1] == NOTHING][:, 2]) == {3, 7}
    met, _ = Beginnings(*parts(model)).met(np.array([7, 3]), 20)  # 1 step for first values
    assert set(met[met[:, 1] == NOTHING][:, 2]) == {7}


def test_sites_that_are_not_predicted_are_as_likely_as_each_other():
    model = planted_passages("cpu", n_sites=9, n_values=6, n_passages=1, enter_bits=4)
    met, _ = Beginnings(*parts(model, first=2)).met(np.arange(6), 10**6)
    assert (met[:, 1] == NOTHING).sum() == 36


def n_found(model, n_rare, first_values):
    """Return after how many of the passages' rare steps a search finds the model to be sure."""
    before = ((0, 0), (3 - n_rare, 0))
    contexts = np.pad(model.passages[:, : n_rare + 1], before, constant_values=NOTHING)
    search = Search(*parts(model, n_walkers=256))
    surest = search.surest_contexts(None, SearchBudget(120, first_values))
    return len({tuple(c) for c in contexts.tolist()} & {tuple(c) for c in surest.tolist()})


@pytest.mark.parametrize(("bits", "n_rare"), [(7, 2), (5, 3)])
def test_rare_steps_among_few_values_are_found(bits, n_rare):
    """Draws alone, the variant without first values, must find few."""
    model = planted_passages("cpu", 12, 64, n_passages=6, enter_bits=bits, n_rare=n_rare)
    with_beginnings = n_found(model, n_rare, model.passages[:, 0].copy())
    without = n_found(model, n_rare, np.zeros(0, dtype=np.int64))
    print(with_beginnings, without)
    assert with_beginnings == 6
    assert without <= 2
