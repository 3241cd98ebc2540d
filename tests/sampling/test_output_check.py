"""Outputs that differ when evaluated again: rare inputs are told, many or far ones end the run.

Models that are no functions at all: tests/models/test_checked.py.
"""

import pytest
import torch
from runs_in_progress import begin, config_of

from omniinput_hpc.cli.common import to_toml
from omniinput_hpc.config import input_file
from omniinput_hpc.models.checked import CheckedModel, NotAFunction, no_rounding
from omniinput_hpc.sampling import loop

SHORT = ["run.rounds=2", "run.burn_in=0", "sampler.steps=6", "sampler.exchanges=10"]


def quiet(folder, *changes):
    """Return a model that is a function."""
    options = "model.options={size = 0.0, kind = 'noise'}"
    return config_of(folder, *SHORT, "model.factory=markov_model:no_function", options, *changes)


class OneIsFar:
    """Has the output of one walker differ by so many times the rounding at every comparison."""

    def __init__(self, times, n=1):
        self._times, self._n, self._compare = times, n, CheckedModel.compare

    def __get__(self, model, owner=None):
        def compare(x, z, z_again, summed=False):
            far = torch.zeros_like(z)
            far[: self._n] = self._times * (2e-5 + 3e-6 * z[: self._n].abs())
            self._compare(model, x, z, z + far, summed)

        return compare


@pytest.mark.parametrize("kernel", ["metropolis", "lm-conditional"])
def test_one_input_that_multiplies_rounding_is_told_once(tmp_path, kernel, monkeypatch, caplog):
    """Seen: one text of SmolLM2 at 1.1 times, after 156 rounds."""
    monkeypatch.setattr(CheckedModel, "compare", OneIsFar(3.0))
    run = begin(quiet(tmp_path, f"kernel.name={kernel}"))
    loop.sample(run)
    run.writer.close()
    told = [r.getMessage() for r in caplog.records if "evaluated again" in r.getMessage()]
    assert len(told) == 1 and "3 times what rounding usually explains" in told[0]


@pytest.mark.parametrize(("times", "n"), [(40.0, 1), (3.0, 3)])
def test_one_that_is_far_and_many_that_are_not_end_the_run(tmp_path, times, n, monkeypatch):
    monkeypatch.setattr(CheckedModel, "compare", OneIsFar(times, n))
    run = begin(quiet(tmp_path))
    with pytest.raises(NotAFunction, match="times what rounding explains"):
        loop.sample(run)
    run.writer.close()


def test_rungs_of_a_second_direction_are_checked(tmp_path, monkeypatch):
    """Each has its own model, with its own comparisons."""
    every = CheckedModel.compare

    def compare(model, x, z, z_again, summed=False):
        every(model, x, z, z_again + (1.0 if model.law is not None else 0.0), summed)

    monkeypatch.setattr(CheckedModel, "compare", compare)
    text = to_toml(quiet(tmp_path)) + '[[observables]]\nname = "distinct"\n'
    second = ["ladder.observable=distinct", "ladder.lambdas=[0.0, 0.0, 0.0, 0.5]"]
    run = begin(input_file.parse(text, "second.toml", second))
    with pytest.raises(NotAFunction, match="returned outputs for one input that differ by 1,"):
        loop.sample(run)
    run.writer.close()


def test_counts_are_of_one_round_and_of_outputs_that_were_not_summed():
    class Model:
        n_values, n_sites = 2, 3

    model = CheckedModel(Model(), "a model", rounding=(1.0, 0.0))
    x, z = torch.zeros((4, 3), dtype=torch.int64), torch.zeros(4)
    model.compare(x, z, torch.tensor([0.5, 1.5, -2.0, 0.0]))
    model.compare(x, z, torch.tensor([0.0, 0.0, 9.0, 0.0]))
    model.compare(x, z, torch.full((4,), 5.0), summed=True)
    assert model.take_counts() == (3, 3, 8)  # the usual rounding is above that of rare inputs
    assert model.take_counts() == (0, 0, 0)
    assert model.apart() == (9.0, 9.0) and model.apart(summed=True) == (5.0, 5.0)


@pytest.mark.parametrize(
    ("rounding", "apart", "counts"),
    [
        ((2e-5, 3e-6), 5e-4, (1, 0, 4)),  # float32
        ((2e-5, 3e-6), 9e-4, (1, 1, 4)),
        ((5e-2, 1e-2), 4e-2, (0, 0, 4)),  # bfloat16: as strict as it was
        ((5e-2, 1e-2), 8e-2, (1, 1, 4)),
    ],
)
def test_what_a_rare_input_may_is_that_of_float32(rounding, apart, counts):
    class Model:
        n_values, n_sites = 2, 3

    model = CheckedModel(Model(), "a model", rounding=rounding)
    z = torch.full((4,), 2.0)
    z_again = z + torch.tensor([apart, 0.0, 0.0, 0.0])
    model.compare(torch.zeros((4, 3), dtype=torch.int64), z, z_again)
    assert model.take_counts() == counts


@pytest.mark.parametrize(
    ("n_over", "n_far", "n", "ends"),
    [(1, 0, 144, False), (36, 0, 144, False), (1, 1, 144, True), (37, 0, 144, True)],
)
def test_a_quarter_or_one_far_is_no_rounding(n_over, n_far, n, ends):
    assert no_rounding(n_over, n_far, n) == ends
