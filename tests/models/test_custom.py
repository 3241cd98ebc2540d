"""A model of the user's own: what it must have, and how it is called."""

import os
import sys

import numpy as np
import pytest
import torch

from omniinput_hpc.config import PythonModel
from omniinput_hpc.errors import UserError
from omniinput_hpc.models import custom
from omniinput_hpc.models.checked import check_keeps_inputs, try_out
from omniinput_hpc.models.protocol import offers_of

MODULE = """
import os
import numpy as np
import torch
torch.set_grad_enabled(False)

class Model:
    n_sites, n_values = np.int64(3), np.int32(4)

    def __init__(self):
        self.weight = torch.nn.Parameter(torch.arange(4.0))

    def output(self, x):
        return self.weight[x].sum(1)

    def output_and_gradient(self, x):
        one_hot = torch.nn.functional.one_hot(x, 4).float().requires_grad_()
        z = (one_hot @ self.weight).sum(1)
        (g,) = torch.autograd.grad(z.sum(), one_hot, create_graph=True)
        return z, g

class Wandering(Model):
    def output(self, x):
        os.chdir("/")
        return super().output(x)

def make(device, **sizes):
    return type("M", (Model,), sizes)() if sizes else Model()
def sorting(device):
    model = Model()
    def output(x):
        x.copy_(x.sort(1).values)
        return model.weight[x].sum(1)
    model.output = output
    return model
def wandering(device): return Wandering()
"""


@pytest.fixture
def built(tmp_path, monkeypatch):
    """Return what builds a model of `MODULE`, whose gradients are off for all."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    (tmp_path / "my_models.py").write_text(MODULE)
    with torch.enable_grad():
        yield lambda name, **options: custom.build(
            PythonModel(kind="python", factory=f"my_models:{name}", options=options), "cpu"
        )


def test_sizes_may_be_whole_numbers_of_any_type(built):
    model = built("make")
    assert (model.n_sites, model.n_values) == (3, 4)
    assert type(model.n_sites) is type(model.n_values) is int


@pytest.mark.parametrize("bad", [3.0, True, "3", None, np.float32(3), 1, np.int64(-2)])
def test_other_sizes_are_refused(built, bad):
    with pytest.raises(UserError, match=r"n_values must be a whole number of at least 2, found"):
        built("make", n_values=bad)


def test_outputs_have_no_gradient_and_gradients_are_computed_all_the_same(built):
    model, x = built("make"), torch.tensor([[0, 1, 2], [3, 3, 3]])
    assert model.output(x).numpy().tolist() == [3.0, 9.0]  # numpy refuses what requires a gradient
    z, g = offers_of(model).output_and_gradient(x)
    assert not z.requires_grad and not g.requires_grad
    assert g[1].numpy().tolist() == [[0.0, 1.0, 2.0, 3.0]] * 3
    assert offers_of(model).change is None and offers_of(model).render is None


def test_a_model_that_changes_its_argument_is_found_on_inputs_that_show_it(built):
    model = built("sorting")
    try_out(model, torch.zeros((8, 3), dtype=torch.int64), "it")  # sorted already
    with pytest.raises(UserError, match=r"it: output\(x\) must not write into x"):
        check_keeps_inputs(model, (8, 3), "it", "cpu", own=True)
    check_keeps_inputs(built("make"), (8, 3), "it", "cpu", own=True)


def test_a_model_that_changes_the_working_directory_does_not_move_the_run(built, tmp_path):
    assert built("wandering").output(torch.zeros((1, 3), dtype=torch.int64)).tolist() == [0.0]
    assert os.getcwd() == str(tmp_path)
