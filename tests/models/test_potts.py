"""A Potts model: its energy term by term, its gradient and changes, and its density by a run."""

import itertools

import numpy as np
import pytest
import torch
from potts_files import energies, hairpin, random_model, write_text
from run_tools import ROOT

from omniinput_hpc import models
from omniinput_hpc.cli import run as launch
from omniinput_hpc.config import Potts, input_file
from omniinput_hpc.errors import UserError
from omniinput_hpc.estimators.density.density import density_of_run
from omniinput_hpc.models import potts, potts_file
from omniinput_hpc.models.checked import check_change
from omniinput_hpc.models.protocol import offers_of
from omniinput_hpc.runfile.reader import open_run


def built(path, h, j, alphabet=None):
    write_text(path, h, j, alphabet)
    return potts.build(Potts(kind="potts", path=str(path)), "cpu")


def all_inputs(n_sites, q):
    return torch.tensor(list(itertools.product(range(q), repeat=n_sites)))


@pytest.fixture(scope="module")
def small(tmp_path_factory):
    h, j = random_model(3, 4, seed=2)
    model = built(tmp_path_factory.mktemp("potts") / "small.dat", h, j, "-ACG")
    model.all_inputs = lambda: all_inputs(3, 4)
    return model, h, j


def test_z_is_the_energy_term_by_term(small):
    model, h, j = small
    x = model.all_inputs()
    z = model.output(x)
    assert z.dtype == torch.float32 and (model.n_sites, model.n_values) == (3, 4)
    np.testing.assert_allclose(z, energies(h, j, x.numpy()), rtol=1e-6, atol=1e-6)
    assert model.render(x[:6:5]) == ["---", "-AA"]


def test_gradient_and_changes_are_differences_of_z(small):
    """z is linear in the one-hot of each site, so the gradient gives every change exactly."""
    model, *_ = small
    x = model.all_inputs()
    z, g = model.output_and_gradient(x)
    assert torch.equal(z, model.output(x))
    offers = offers_of(model)
    for site, value in itertools.product(range(3), range(4)):
        new = x.clone()
        new[:, site] = value
        dz = model.output(new) - z
        by_gradient = g[:, site, value] - g[:, site].gather(1, x[:, site, None])[:, 0]
        torch.testing.assert_close(by_gradient, dz, atol=1e-5, rtol=0)
        where = torch.full((len(x),), site), torch.full((len(x),), value)
        torch.testing.assert_close(offers.change(x, *where).float(), dz, atol=1e-5, rtol=0)


def test_the_hairpin_of_the_repository_is_this_model(tmp_path):
    write_text(tmp_path / "hairpin.dat", *hairpin(), "ACGU")
    committed = ROOT / "inputs/models/hairpin.dat"
    assert committed.read_text() == (tmp_path / "hairpin.dat").read_text()


class Wrong(potts.Potts):
    """A field of the last site is wrong."""

    def __init__(self, options, device):
        super().__init__(options, device)
        self._h[-1] += 0.5


INPUT = """
[run]
output = "{folder}/run.h5"
seed = 3
rounds = 24
burn_in = 4
[model]
kind = "potts"
path = "{folder}/small.npz"
[sampler]
walkers = 16
steps = 10
exchanges = 5
[ladder]
betas = [-1.2, -0.5, 0.0, 0.5, 1.2]
[kernel]
name = "gibbs-with-gradients"
[bins]
lower = -14.0
upper = 14.0
width = 0.25
[samples]
every = 10
"""


@pytest.mark.parametrize("wrong", [False, True])
def test_a_runs_density_is_that_of_all_inputs(tmp_path, monkeypatch, wrong):
    """4,096 inputs; a model that is wrong in one term fails the same test."""
    h, j = random_model(6, 4, seed=3, scale=0.7)
    np.savez(tmp_path / "small.npz", h=h, J=j)
    if wrong:
        monkeypatch.setattr(potts, "build", lambda options, device: Wrong(options, device))
    (tmp_path / "run.toml").write_text(INPUT.format(folder=tmp_path))
    assert launch.main([str(tmp_path / "run.toml")]) == 0
    with open_run(tmp_path / "run.h5") as run:
        density = density_of_run(run.data)
    z = energies(h, j, all_inputs(6, 4).numpy())
    count_b, _ = np.histogram(z, density.edges)
    known = (density.count_b > 100) & (count_b > 0)
    apart_b = density.log_g_b[known] - np.log(count_b[known])
    rms = float(np.sqrt(np.mean((apart_b / density.log_g_error_b[known]) ** 2)))
    assert known.sum() > 40
    assert rms > 3 if wrong else 0.6 < rms < 1.4, rms


def test_a_long_model_has_room_for_its_rounding(monkeypatch):
    """z of 1,000 sites sums half a million float32 numbers, however small z itself is."""
    n, q, random = 1000, 2, np.random.default_rng(4)
    coupling = random.normal(0, 0.1, (n, q, n, q)).astype(np.float32)
    coupling += coupling.transpose(2, 3, 0, 1)
    coupling[np.arange(n), :, np.arange(n)] = 0.0
    given = potts_file.Parameters(np.zeros((n, q), np.float32), coupling, None)
    monkeypatch.setattr(potts_file, "read", lambda options: given)
    config = input_file.parse(INPUT.format(folder="."), "")
    model = potts.build(config.model, "cpu")
    allowed, usual = models.rounding(config, model), models.rounding(config)
    check_change(model, (64, n), allowed, "the model", "cpu")
    with pytest.raises(UserError, match="times what rounding explains"):
        check_change(model, (64, n), usual, "the model", "cpu")
    x = torch.from_numpy(random.integers(q, size=(64, n)))
    assert usual[0] < allowed[0] < 1e-4 * float(model.output(x).std())
