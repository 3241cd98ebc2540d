"""One row a kernel: the table of the input file, and the class that it names, fit each other."""

import numpy as np
import pytest
import torch
from toy_models import AutoregressiveModel

from omniinput_hpc import kernels
from omniinput_hpc.config.kernels import KERNELS, DiscreteLangevin, GibbsWithGradients
from omniinput_hpc.kernels.parts.law import Law
from omniinput_hpc.models.checked import CheckedModel, NonFiniteOutput
from omniinput_hpc.tempering.ensembles import Canonical


@pytest.mark.parametrize("table", KERNELS)
def test_a_kernel_is_built_from_its_table(table):
    options = table(name=table.model_fields["name"].annotation.__args__[0])
    model = AutoregressiveModel()
    if options.name == "from-law":
        model.law = Law(model)
    kernel = kernels.build(options, model, 8)
    assert type(kernel).__module__ == f"omniinput_hpc.kernels.{options.name.replace('-', '_')}"
    assert kernel.parts == options.part_names
    assert kernel.tuned.shape == (options.n_tuned,) and kernel.tuned.dtype == np.float64
    assert kernel.uniforms_per_move > 0


class RootOfSum:
    """z = sqrt(sum of x): finite everywhere, but its gradient is infinite at x = 0."""

    n_sites, n_values = 3, 3

    def output(self, x):
        return x.sum(dim=1).float().sqrt()

    def output_and_gradient(self, x):
        slope = 0.5 / self.output(x)
        values = torch.arange(self.n_values, dtype=torch.float32)
        return self.output(x), (slope[:, None, None] * values).expand(-1, self.n_sites, -1)


@pytest.mark.parametrize("first", [0, 1], ids=["from there", "to there"])
@pytest.mark.parametrize("options", [
    GibbsWithGradients(name="gibbs-with-gradients"),
    GibbsWithGradients(name="gibbs-with-gradients", proposal="site"),
    DiscreteLangevin(name="discrete-langevin"),
])  # fmt: skip
def test_a_gradient_that_is_not_finite_ends_the_run(options, first):
    """Otherwise no walker would come to that input, and those that are there would stay."""
    model = CheckedModel(RootOfSum(), "model")
    kernel = kernels.build(options, model, 64)
    x = torch.full((64, 3), first)
    stream = kernels.DeviceStream(np.random.default_rng(1), x.device, 1 << 12)
    state = kernel.start(x, model.output(x))
    for _ in range(20):
        state, _ = kernel.step(state, Canonical(1.0), stream)
    with pytest.raises(NonFiniteOutput, match="returned a gradient that is not finite"):
        model.raise_if_nonfinite()
