"""Models of known density: what is stated equals enumeration, and rows are probabilities."""

import numpy as np
import pytest
import torch

from omniinput_zoo import exact


def enumerated(model):
    """Return levels and counts of a model with few inputs, by enumeration."""
    level, count = np.unique(model.output(model.all_inputs()).numpy(), return_counts=True)
    return level, np.log(count)


class SmallSites(exact.Sites):
    n_sites, n_values = 4, 6

    def _energy(self):
        return np.array([0, 0, 0, 1, 1, 3])


class SmallOccupation(exact.Occupation):
    n_sites, n_values = 6, 4


@pytest.mark.parametrize("model", [exact.lattice("cpu"), SmallSites(), SmallOccupation()])
def test_what_is_stated_is_what_is_counted(model):
    z, log_count = model.log_count()
    level, log_n = enumerated(model)
    order = np.argsort(z)
    np.testing.assert_array_equal(z[order], level)
    np.testing.assert_allclose(log_count[order], log_n, atol=1e-9)


@pytest.mark.parametrize("model", [exact.sites("cpu"), exact.occupation("cpu")])
def test_all_inputs_are_there(model):
    total = np.logaddexp.reduce(model.log_count()[1])
    assert total == pytest.approx(model.n_sites * np.log(model.n_values), abs=1e-9)
    with pytest.raises(ValueError, match="too many to enumerate"):
        model.all_inputs()


@pytest.mark.parametrize("model", [exact.markov("cpu"), exact.passage("cpu", n_sites=6)])
def test_language_models_are_normalized(model):
    """Sum over all inputs of exp(-m z) is the number of first values, m = D - 1."""
    x = model.all_inputs()
    z, rows = model.conditional_logits(x)
    assert torch.equal(z, model.output(x))
    total = torch.logsumexp(-(model.n_sites - 1) * z.double(), 0)
    assert total == pytest.approx(np.log(model.n_values), abs=1e-5)
    np.testing.assert_allclose(rows[:, 1:].exp().sum(dim=2), 1.0, atol=1e-5)


def test_a_passage_is_rarely_begun_and_hardly_left():
    model = exact.passage("cpu")
    rows = model.conditional_logits(torch.tensor([[0, 1, 2, 3, 4, 5, 0], [3, 1, 2, 3, 0, 1, 1]]))[1]
    assert rows[0, 1:, :].exp().max(dim=1).values.tolist() == pytest.approx([0.97] * 6)
    assert rows[1, 1:5, 0].exp().tolist() == pytest.approx([0.05] * 4)  # of beginning it
    assert rows[1, 6, 2].exp().item() == pytest.approx(0.97)  # 0, 1 began it


def test_bins_are_those_of_the_program():
    model = exact.lattice("cpu")
    z, log_count = model.log_count()
    log_g_b = model.log_g(np.array([0.0, 0.5, 1.0]))  # the last bin holds its upper end
    assert log_g_b[0] == pytest.approx(np.logaddexp.reduce(log_count[z < 0.5]))
    assert log_g_b[1] == pytest.approx(np.logaddexp.reduce(log_count[(z >= 0.5) & (z <= 1.0)]))
