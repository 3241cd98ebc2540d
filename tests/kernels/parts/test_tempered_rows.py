"""Rows to a power: values are drawn as their weights say, forbidden ones never."""

import numpy as np
import pytest
import torch

from omniinput_hpc.kernels.parts import tempered_rows


def test_values_that_the_model_forbids_are_not_drawn_whatever_b():
    row = torch.tensor([[0.0, -torch.inf, 1.0]] * 3)
    b = torch.tensor([-1.0, 0.0, 2.0], dtype=torch.float64)
    scores = tempered_rows.scaled_scores(row, b, tempered_rows.needs_mask(b))
    assert (scores[:, 1] == -torch.inf).all()
    torch.testing.assert_close(scores[:, 2], torch.tensor([-1.0, 0.0, 2.0]))


@pytest.mark.parametrize("n_values", [3, 64, 200])
@pytest.mark.parametrize("cached", [1, 1000])
def test_draws_by_blocks_invert_the_distribution(monkeypatch, n_values, cached):
    """Against the whole cumulative distribution, for rows in slices of every number."""
    monkeypatch.setattr(tempered_rows, "CPU_CHUNK_ELEMENTS", cached)
    random, n_u = np.random.default_rng(n_values), 97
    row = random.normal(size=(7, n_values)) * 2
    row[random.uniform(size=row.shape) < 0.3] = -np.inf
    row[:, 0] = 0.0
    b = np.array([-1.0, 0.0, 0.3, 1.0, 1.0, 2.0, 5.0])
    with np.errstate(invalid="ignore"):
        p = np.where(np.isneginf(row), 0.0, np.exp(b[:, None] * row))
    for u in (np.arange(n_u) + 0.5) / n_u:
        values, log_z = tempered_rows.draw_scaled(
            torch.from_numpy(row).float(), torch.from_numpy(b), torch.full((7,), u).double()
        )
        up_to = p.cumsum(1) / p.sum(1, keepdims=True)
        v = values.numpy()[:, None]
        assert (np.take_along_axis(p, v, 1) > 0).all()
        assert (np.take_along_axis(up_to, v, 1)[:, 0] > u - 1e-6).all()
        below = np.take_along_axis(up_to, v, 1) - np.take_along_axis(p, v, 1) / p.sum(1)[:, None]
        assert (below[:, 0] < u + 1e-6).all()
        np.testing.assert_allclose(log_z, np.log(p.sum(1)), atol=2e-6)


@pytest.mark.parametrize("lowest", [-1.0, 0.0])
@pytest.mark.parametrize("cached", [1, 1000])
def test_sums_of_powers_are_those_of_each_power(monkeypatch, cached, lowest):
    monkeypatch.setattr(tempered_rows, "CPU_CHUNK_ELEMENTS", cached)
    random, b_k = np.random.default_rng(3), np.array([lowest, 0.0, 0.4, 1.0, 3.0])
    row = random.normal(size=(7, 200)) * 2
    row[:, ::3] = -np.inf
    allowed = np.isfinite(row[0])
    exact = np.log(np.exp(b_k[:, None] * row[:, None, allowed]).sum(axis=2))
    sums = tempered_rows.log_sums_of_powers(torch.from_numpy(row).float(), torch.from_numpy(b_k))
    assert sums.dtype == torch.float64 and sums.shape == (7, 5)
    np.testing.assert_allclose(sums, exact, atol=2e-6)
