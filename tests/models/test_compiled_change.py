"""What a model says of changes by a compiled function."""

import sys

import pytest
import torch
from ising import CompiledIsing, IsingModel

from omniinput_hpc.errors import UserError
from omniinput_hpc.models.compiled_change import as_change, check_compiled


def test_a_compiled_change_is_that_of_each_input():
    model, of_torch = CompiledIsing(6), IsingModel(6)
    generator = torch.Generator().manual_seed(1)
    x = torch.randint(2, (50, 36), generator=generator)
    site = torch.randint(36, (50,), generator=generator)
    value = 1 - x.gather(1, site[:, None])[:, 0]
    dz = as_change(model.compiled_change)(x, site, value)
    assert dz.dtype == torch.float64
    torch.testing.assert_close(dz.float(), of_torch.change(x, site, value), rtol=1e-6, atol=0)
    assert dz.abs().max() > dz.abs().min()


def test_without_numba_the_message_names_it(monkeypatch):
    check_compiled(CompiledIsing(4).compiled_change)
    monkeypatch.setitem(sys.modules, "numba.core.dispatcher", None)
    with pytest.raises(UserError, match="has compiled_change, which requires numba: pip install"):
        check_compiled(lambda x, site, value: 0.0)
