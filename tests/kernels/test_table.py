"""One row a kernel: the table of the input file, and the class that it names, fit each other."""

import numpy as np
import pytest
from toy_models import AutoregressiveModel

from omniinput_hpc import kernels
from omniinput_hpc.config.kernels import KERNELS
from omniinput_hpc.kernels.parts.law import Law


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
