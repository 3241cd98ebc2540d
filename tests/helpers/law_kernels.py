"""Kernels under a law of inputs, made to redraw one span, and the models that tests put them on."""

import numpy as np
import torch
from exactness import (
    Draw,
    ScriptedStream,
    check_exact,
    check_matrix,
    distribution,
    shift_of_value,
    value_at,
)
from toy_models import CoupledModel

from omniinput_hpc.config import kernels as tables
from omniinput_hpc.kernels.from_law import FromLaw
from omniinput_hpc.kernels.metropolis import Metropolis
from omniinput_hpc.kernels.parts.spans import Span
from omniinput_hpc.tempering.ensembles import Canonical

COUPLED = CoupledModel(dtype=torch.float64)
COUPLED_3 = CoupledModel(dtype=torch.float64)
COUPLED_3.site, COUPLED_3.pair, COUPLED_3.n_values = (
    COUPLED.site[:, :3], COUPLED.pair[:3, :3], 3,
)  # fmt: skip
SITE, BLOCK, SUFFIX = range(3)
SPANS = [
    *(Span(SITE, i, i + 1) for i in range(3)),
    *(Span(BLOCK, i, i + 2) for i in range(2)),
    *(Span(SUFFIX, i, 3) for i in range(3)),
]
CHOICES = [0.0, 0.0, 0.0]


def from_law(span, model, make=FromLaw):
    """Return a kernel that always redraws one span, and its draws."""
    kernel = make(tables.FromLaw(name="from-law"), model, 64)

    class Always:
        def draw(self, u):
            assert len(u) == 3
            return span

    kernel._schedule = Always()
    span = model.law.widened(span)
    return kernel, [Draw(3, value_at(t)) for t in range(span.begin, span.end)]


def moved_elsewhere(kernel, x, z):
    """Move from elsewhere, be put at x: what was cached before must not matter."""
    half = torch.full((len(x),), 0.5, dtype=torch.float64)
    before = kernel.start(x.roll(1, 0), z.roll(1, 0))
    kernel.step(before, Canonical(0.3), ScriptedStream([half] * 4, CHOICES))
    return kernel.start(x, z)


def moved_away(kernel, x, z):
    half = torch.full((len(x),), 0.5, dtype=torch.float64)
    before = kernel.start(x.roll(1, 0), z.roll(1, 0))
    kernel.step(before, Canonical(0.3), ScriptedStream([half] * 5))
    return kernel.start(x, z)


def check_spans(model, ensemble):
    """Assert that redrawing spans of a model of 27 inputs is exact, each span and their mean."""
    together = np.zeros((27, 27))
    for span in SPANS:
        kernel, draws = from_law(span, model)
        together += check_exact(kernel, model, ensemble, draws, CHOICES, False, moved_elsewhere)
    check_matrix(together / len(SPANS), distribution(model, ensemble))


def check_sites_on_kv_cache(model, ensemble):
    """Assert that `metropolis` on a KV cache is exact: moves at each of three sites."""
    together, draws = np.zeros((27, 27)), [Draw(2, shift_of_value(3))]
    for site in range(3):
        kernel = Metropolis(tables.Metropolis(), model, 64)
        together += check_exact(kernel, model, ensemble, draws, [(site + 0.5) / 3], False)
    check_matrix(together / 3, distribution(model, ensemble))
