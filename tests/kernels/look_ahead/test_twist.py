"""Suffixes drawn by where they lead: exact for any table; a wrong variant is caught."""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from exactness import (
    Draw,
    Explorer,
    Gaussian,
    ScriptedStream,
    check_alone,
    check_exact,
    check_matrix,
    distribution,
    value_at,
)
from toy_models import AutoregressiveModel, KVCacheModel

from omniinput_hpc.config.kernels import LmConditional as Options
from omniinput_hpc.kernels.lm_conditional import LmConditional
from omniinput_hpc.kernels.look_ahead.continuations import Continuations, keys_of
from omniinput_hpc.kernels.parts.spans import Span
from omniinput_hpc.tempering.ensembles import Canonical

MODEL = AutoregressiveModel()
SITE, BLOCK, SUFFIX, FLIP = range(4)
SPANS = [Span(SITE, 1, 2), Span(BLOCK, 0, 2), *(Span(SUFFIX, i, 3) for i in range(3))]
SPANS += [Span(SITE, i, i + 1) for i in (0, 2)]
CHOICES = [0.0, 0.0, 0.0]

# Contexts that are far from what the model says; -1 stands before an input's first value.
VALUES = np.array([[-1, -1, -1, 0], [-1, -1, -1, 2], [-1, -1, 0, 1], [-1, -1, 0, 2], [-1, 2, 0, 0]])
ORDER = np.argsort(keys_of(VALUES))
TABLE = Continuations(
    b=1.4,
    growth=-0.3,
    values=VALUES[ORDER],
    log_z=np.array([0.5, -1.5, 1.2, -0.4, 2.0]),
    count=np.ones(5),
    share=np.where((VALUES[ORDER] >= 0).sum(axis=1) == 1, 0.3, 0.0),
    context=np.array([0, 0, 2, 4]),
    value=np.array([1, 2, 0, 0]),
    log_p=np.array([-0.2, -1.0, -0.1, 0.3]),
    weight=np.ones(4),
)


def looking_ahead(span, model=MODEL, make=LmConditional, table=TABLE):
    """Return a kernel that always rewrites one span by a table (None: by p^b), and its draws."""
    options = Options.model_validate({"name": "lm-conditional", "look_ahead": True})
    kernel = make(options, model, 64)
    kernel._schedule = SimpleNamespace(draw=lambda u: span)
    if table is not None:
        kernel.tuned = table.numbers()
    return kernel, [Draw(3, value_at(t)) for t in range(span.begin, span.end)]


def moved_elsewhere(kernel, x, z):
    """Move from elsewhere at another beta, and be put at x."""
    half = torch.full((len(x),), 0.5, dtype=torch.float64)
    before = kernel.start(x.roll(1, 0), z.roll(1, 0))
    kernel.step(before, Canonical(0.3), ScriptedStream([half] * 4, CHOICES))
    return kernel.start(x, z)


class ForgetsBackward(LmConditional):
    """Wrong: the reverse proposal's probability is that without psi."""

    def _log_q(self, cache, b, span):
        if cache is self.last_new:
            return super()._log_q(cache, b, span)
        return super()._log_q(replace(cache, lead=None, ahead=None), b, span)

    def _propose(self, *arguments):
        x_new, self.last_new = super()._propose(*arguments)
        return x_new, self.last_new


def test_a_table_changes_what_is_proposed():
    span, ensemble = Span(SUFFIX, 0, 3), Canonical(2.0)
    kernel, draws = looking_ahead(span)
    other, _ = looking_ahead(span, table=None)
    ahead = Explorer(kernel, MODEL, ensemble, draws, CHOICES).matrix()
    plain = Explorer(other, MODEL, ensemble, draws, CHOICES).matrix()
    assert np.abs(ahead - plain).max() > 0.05


@pytest.mark.slow
@pytest.mark.parametrize("ensemble", [
    *map(Canonical, (-2.0, 2.8)), Gaussian(),
    pytest.param(Canonical(1.0), marks=pytest.mark.release),
])  # fmt: skip
def test_transition_matrices_are_exact(ensemble):
    together = np.zeros((27, 27))
    for span in SPANS:
        kernel, draws = looking_ahead(span)
        together += check_exact(kernel, MODEL, ensemble, draws, CHOICES, False)
    check_matrix(together / len(SPANS), distribution(MODEL, ensemble))


@pytest.mark.slow
@pytest.mark.parametrize(("make", "predicted_from"), [
    (AutoregressiveModel, 0), (KVCacheModel, 1),
    *(pytest.param(*case, marks=pytest.mark.release) for case in
      [(AutoregressiveModel, 2), (KVCacheModel, 0), (KVCacheModel, 2)]),
])  # fmt: skip
def test_other_predicted_sites_and_a_kv_cache_are_exact(make, predicted_from):
    model = make(predicted_from=predicted_from)
    for span in SPANS[1:4]:
        kernel, draws = looking_ahead(span, model)
        check_exact(kernel, model, Canonical(2.8), draws, CHOICES, False, moved_elsewhere)


@pytest.mark.parametrize("begin", [0, 1])  # psi is 1 at the last site
def test_psi_forgotten_in_the_backward_probability_fails(begin):
    span = Span(SUFFIX, begin, 3)
    kernel, draws = looking_ahead(span)
    check_exact(kernel, MODEL, Canonical(2.8), draws, CHOICES, False)
    kernel, draws = looking_ahead(span, make=ForgetsBackward)
    with pytest.raises(AssertionError, match="invariant"):
        check_exact(kernel, MODEL, Canonical(2.8), draws, CHOICES, False)


def test_a_walker_does_not_depend_on_the_others():
    for span in SPANS[:4]:
        kernel, draws = looking_ahead(span)
        check_alone(kernel, MODEL, Canonical(2.8), len(draws), CHOICES, n_walkers=16)


def test_the_exact_table_is_accepted_always():
    """psi from the model's own sums over continuations: a whole input is an independent draw."""

    class Pairs(AutoregressiveModel):
        def rows(self, one_hot):
            last = torch.cat([torch.zeros_like(one_hot[:, :1]), one_hot[:, :-1]], dim=1)
            return last @ self.pair

    model, b, values = Pairs(), 1.4, np.arange(3)
    log_p = model.pair.numpy()
    alone = np.array([[-1, -1, -1, v] for v in values])
    order = np.argsort(keys_of(alone))
    z = np.log(np.exp(b * log_p).sum(axis=1))[order]
    exact = Continuations(
        b, 0.0, alone[order], z, np.ones(3), np.zeros(3),
        np.repeat(values, 3), np.tile(values, 3), log_p[order].ravel(), np.ones(9),
    )  # fmt: skip
    kernel, draws = looking_ahead(Span(SUFFIX, 0, 3), model)
    kernel.tuned = exact.numbers()
    p = Explorer(kernel, model, Canonical(2 * b), draws, CHOICES).matrix()
    np.testing.assert_allclose(
        p, np.tile(distribution(model, Canonical(2 * b)), (27, 1)), atol=2e-6
    )


def test_nothing_is_learned_where_the_model_itself_or_hotter_is_sampled():
    kernel, _ = looking_ahead(SPANS[2])
    before = kernel.tuned
    x = MODEL.all_inputs()
    assert kernel.start(x, MODEL.output(x)).cache is None
    assert kernel.learner(Canonical(1.0)) is None
    assert kernel.tuned is before
