"""Planted passages: counts by dynamic programming equal enumeration, and rows are probabilities."""

import numpy as np
import pytest
import torch
from planted_passages import PlantedPassages, dyadic_split, planted_passages

SMALL = [
    {"n_sites": 5, "n_values": 5, "n_passages": 2, "enter_bits": 4, "leave_bits": 3},
    {"n_sites": 6, "n_values": 4, "n_passages": 3, "enter_bits": 3, "n_rare": 2},
    {"n_sites": 4, "n_values": 6, "n_passages": 1, "enter_bits": 4, "n_rare": 3},
]


def test_masses_are_split_exactly():
    bits = dyadic_split(np.array([1, 2, 2]), 37, np.random.default_rng(3))
    assert len(bits) == 37
    assert (2.0**-bits).sum() == 1.0
    assert bits.max() < 12


@pytest.mark.parametrize("options", SMALL)
@pytest.mark.parametrize("seed", [1, 2])
def test_what_is_counted_is_enumerated(options, seed):
    model = PlantedPassages(**options, seed=seed)
    z = np.sort(model.output(model.all_inputs()).double().numpy())
    levels, log_count = model.log_count()
    order = np.argsort(levels)
    counts = np.exp(log_count[order]).round().astype(int)
    np.testing.assert_allclose(np.exp(log_count[order]), counts, rtol=1e-9)
    np.testing.assert_allclose(np.repeat(levels[order], counts), z, atol=2e-6)


@pytest.mark.parametrize("options", [*SMALL, {"n_sites": 25, "n_values": 64, "n_passages": 20}])
def test_rows_are_probabilities(options):
    model = PlantedPassages(**{"enter_bits": 5, **options})
    x = torch.randint(model.n_values, (50, model.n_sites), generator=torch.manual_seed(1))
    x[:10] = torch.from_numpy(model.passages[np.arange(10) % len(model.passages)])
    z, rows = model.conditional_logits(x)
    torch.testing.assert_close(z, model.output(x))
    assert (rows[:, 1:].exp().sum(dim=2) - 1).abs().max() < 1e-5
    assert not rows[:, 0].any()
    n_rare = options.get("n_rare", 1)
    enter = n_rare * options.get("enter_bits", 5) * np.log(2)
    later = -(model.n_sites - 1 - n_rare) * np.log1p(-(2.0 ** -options.get("leave_bits", 5)))
    assert z[0].item() == pytest.approx((enter + later) / (model.n_sites - 1), abs=1e-5)


def test_the_whole_space_is_counted():
    model = planted_passages("cpu", enter_bits=15)
    z, log_count = model.log_count()
    assert np.logaddexp.reduce(log_count) == pytest.approx(25 * np.log(64), abs=1e-9)
    of_the_model = np.logaddexp.reduce(log_count - 24 * z)
    assert of_the_model == pytest.approx(np.log(64), abs=1e-9)


def test_passages_are_told():
    model = planted_passages("cpu", n_sites=8, enter_bits=6)
    x = torch.from_numpy(model.passages[:2]).clone()
    x[1, 5:] = 0  # left: no passage holds 0
    assert model.in_passage(x).tolist() == [7, 0]


def test_too_few_values_for_so_rare_a_step():
    with pytest.raises(ValueError, match="n_values"):
        PlantedPassages(n_sites=5, n_values=6, n_passages=2, enter_bits=6)


def test_paths_are_whole_evaluations():
    """What is kept from the first changed site on is what a whole evaluation finds."""
    model = planted_passages("cpu", n_sites=7, n_values=8, n_passages=5, enter_bits=3)
    x = torch.randint(8, (20, 7), generator=torch.manual_seed(2))
    x[::2] = torch.from_numpy(model.passages[np.arange(10) % 5])
    paths = model.kv_cache(20)
    paths.load(x)
    for t in (1, 3, 6):
        new = x.clone()
        new[:, t] = (x[:, t] + 1) % 8
        rows = model.conditional_logits(new)[1]
        paths.begin(t)
        assert torch.equal(paths.row(), rows[:, t])
        if t + 1 < 7:
            assert torch.equal(torch.cat(list(paths.rows_after(new[:, t:-1]))),
                               rows[:, t + 1 :].transpose(0, 1))  # fmt: skip
        accepted = torch.arange(20) % 3 == 0
        paths.accept(accepted)
        x = torch.where(accepted[:, None], new, x)
        rows = model.conditional_logits(x)[1]
        assert torch.equal(torch.cat(list(paths.current_rows(1, 7))), rows[:, 1:].transpose(0, 1))
