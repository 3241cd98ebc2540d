"""Check that z of an input does not depend on the batch, if the model says so."""

from __future__ import annotations

from collections.abc import Callable

import torch

from omniinput_hpc import rng
from omniinput_hpc.errors import UserError
from omniinput_hpc.models.checked import N_COMPARED
from omniinput_hpc.models.protocol import Model, offers_of


def check(model: Model, shape: tuple[int, int], name: str) -> None:
    """Raise a `UserError` if a model says that it is batch-invariant, and is not.

    Random inputs are evaluated in one batch of 3 W, in three batches of W, and some of them singly.
    """
    offers, (n_walkers, n_sites) = offers_of(model), shape
    if not offers.batch_invariant:
        return
    random = rng.generator(0, "fingerprint", n_sites, 6)
    x = torch.from_numpy(random.integers(model.n_values, size=(3 * n_walkers, n_sites)))
    site, value = (torch.from_numpy(random.integers(n, size=len(x))) for n in (n_sites, 2))
    functions: dict[str, Callable[..., torch.Tensor] | None] = {
        "output": lambda x, *_: model.output(x), "change": offers.change,
    }  # fmt: skip
    for called, function in functions.items():
        for n, of in ((n_walkers, len(x)), (1, min(N_COMPARED, len(x)))):
            if function is None:
                continue
            some = x[:of], site[:of], value[:of]
            parts = zip(*(part.split(n) for part in some), strict=True)
            if not torch.equal(function(*some), torch.cat([function(*part) for part in parts])):
                raise UserError(
                    f"{name} has batch_invariant = True, but {called} of an input has other bits "
                    f"in a batch of {n} than in one of {of}: remove batch_invariant"
                )
