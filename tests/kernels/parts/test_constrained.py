"""Kernels in a constrained space: exact transition matrices; wrong variants leave the space."""

import re

import numpy as np
import pytest
import torch
from exactness import (
    Draw,
    Gaussian,
    check_exact,
    check_matrix,
    check_sites,
    distribution,
    shift_of_value,
    site_changed,
    value_at,
    value_given,
)
from law_models import Watched
from toy_models import CoupledModel

from omniinput_hpc import kernels
from omniinput_hpc.config import kernels as tables
from omniinput_hpc.errors import UserError
from omniinput_hpc.kernels.discrete_langevin import DiscreteLangevin
from omniinput_hpc.kernels.from_law import FromLaw
from omniinput_hpc.kernels.gibbs_with_gradients import GibbsWithGradients
from omniinput_hpc.kernels.metropolis import Metropolis
from omniinput_hpc.kernels.parts.constrained import UniformInside
from omniinput_hpc.kernels.parts.spans import Span
from omniinput_hpc.models.constraint import Automaton, byte_automaton, over_values
from omniinput_hpc.tempering.ensembles import Canonical

TEXTS = ["a", "b", "c"]
PATTERNS = {"even": "([bc]*a[bc]*a)*[bc]*", "words": "(a|bc|cab)+", "lists": None}
LISTS = np.array([[1, 1, 0], [1, 1, 1], [0, 1, 1]], dtype=bool)
SPANS = [
    *(Span(0, i, i + 1) for i in range(3)),
    *(Span(1, i, i + 2) for i in range(2)),
    *(Span(2, i, 3) for i in range(3)),
]


def automaton(name, d=3):
    if PATTERNS[name] is None:
        everything = np.array([[0] * 3, [1] * 3], dtype=np.int32)
        return Automaton(everything, np.array([True, False]), LISTS, d)
    found = over_values(*byte_automaton(PATTERNS[name]), [text.encode() for text in TEXTS])
    return Automaton(*found, None, d)


def inside(name):
    model = CoupledModel(dtype=torch.float64)
    model.site, model.pair, model.n_values = model.site[:, :3], model.pair[:3, :3], 3
    return Watched(model, UniformInside(automaton(name), "cpu"))


def connects(p, pi):
    some = np.flatnonzero(pi > 0)
    steps = (p[np.ix_(some, some)] > 0).astype(float) + np.eye(len(some))
    return (np.linalg.matrix_power(steps, len(some)) > 0).all()


def from_law(span, model):
    kernel = FromLaw(tables.FromLaw(name="from-law"), model, 64)
    kernel._schedule = type("Always", (), {"draw": lambda self, u: span})()
    return kernel, [Draw(3, value_at(t)) for t in range(span.begin, span.end)]


@pytest.mark.parametrize("name", PATTERNS)
def test_terms_are_those_of_a_uniform_law(name):
    model = inside(name)
    x, law = model.all_inputs(), model.law
    log_q = law.log_q(x, None)
    torch.testing.assert_close(law.log_q_sites(x, None).sum(dim=1), log_q, rtol=0, atol=1e-13)
    texts = ["".join(TEXTS[v] for v in row) for row in x.tolist()]
    truth = [
        LISTS[range(3), row].all() if name == "lists" else re.fullmatch(PATTERNS[name], text)
        for row, text in zip(x.tolist(), texts, strict=True)
    ]
    assert [value > -np.inf for value in log_q.tolist()] == [bool(one) for one in truth]
    assert float(log_q.exp().sum()) == pytest.approx(1, abs=1e-12) and log_q.dtype == torch.float64


@pytest.mark.parametrize("name", PATTERNS)
def test_draws_are_uniform(name):
    law = inside(name).law
    u = torch.rand(20_000, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(2))
    u[0] = 1 - 2.0**-53  # the largest number draws the last possible values
    drawn, counts = law.draw(u).unique(dim=0, return_counts=True)
    assert law.automaton.contains(drawn.numpy()).all() and len(drawn) == law.automaton.n_inputs
    expected, n = 20_000 / law.automaton.n_inputs, law.automaton.n_inputs - 1
    assert ((counts - expected) ** 2).sum() / expected < n + 4 * np.sqrt(2 * n)


@pytest.mark.parametrize(
    ("name", "ensemble"), zip(PATTERNS, [Gaussian(), Canonical(1.5), Canonical(0.7)], strict=True)
)
def test_from_law_is_exact(name, ensemble):
    model = inside(name)
    together, pi = np.zeros((27, 27)), distribution(model, ensemble)
    for span in SPANS:
        kernel, draws = from_law(span, model)
        together += check_exact(kernel, model, ensemble, draws, [0.0] * 3, False)
    check_matrix(together / len(SPANS), pi, False)
    assert connects(together, pi) and (pi == 0).any()


def test_what_follows_a_span_counts(monkeypatch):
    model = inside("even")
    kernel, draws = from_law(SPANS[0], model)
    monkeypatch.setattr(UniformInside, "_add", lambda *arguments: None)
    with pytest.raises(AssertionError):
        check_exact(kernel, model, Canonical(1.5), draws, [0.0] * 3, False)


OTHERS = {
    "metropolis": (
        Metropolis, tables.Metropolis(), [Draw(3, site_changed), Draw(2, shift_of_value(3))],
    ),
    "gibbs-with-gradients": (
        GibbsWithGradients, tables.GibbsWithGradients(name="gibbs-with-gradients"),
        [Draw(3, site_changed), Draw(3, value_given)],
    ),
    "discrete-langevin": (
        DiscreteLangevin, tables.DiscreteLangevin(name="discrete-langevin", step_size=0.4),
        [Draw(3, value_at(site)) for site in range(3)],
    ),
}  # fmt: skip


@pytest.mark.parametrize("space", ["words", "lists"])
@pytest.mark.parametrize("name", OTHERS)
def test_other_kernels_are_exact(name, space):
    make, options, draws = OTHERS[name]
    model, ensemble = inside(space), Canonical(0.8)
    p = check_exact(make(options, model, 64), model, ensemble, draws, (), False)
    pi = distribution(model, ensemble)
    assert (p[pi > 0][:, pi == 0] == 0).all(), "it leaves the space"
    assert connects(p, pi) == (space == "lists" or name == "discrete-langevin")


@pytest.mark.parametrize("space", ["words", "lists"])
def test_site_proposals_are_exact(space):
    model, ensemble = inside(space), Canonical(0.8)
    options = tables.GibbsWithGradients(name="gibbs-with-gradients", proposal="site")

    def at(chosen):
        kernel = GibbsWithGradients(options, model, 64)
        kernel._random_site = lambda stream, n: torch.full((n,), chosen)
        return kernel

    p, pi = check_sites(at, model, ensemble, False), distribution(model, ensemble)
    assert (p[pi > 0][:, pi == 0] == 0).all(), "it leaves the space"


@pytest.mark.parametrize("space", PATTERNS)
def test_proposals_know_which_values_stay_inside(space):
    law = UniformInside(automaton(space), "cpu")
    model = inside(space)
    x = model.all_inputs()
    x = x[law.log_q(x, x).isfinite()]
    stays = law.gradient(x) == 0.0
    for site in range(3):
        for value in range(3):
            changed = x.clone()
            changed[:, site] = value
            assert torch.equal(stays[:, site, value], law.log_q(changed, x).isfinite())


@pytest.mark.parametrize("name", OTHERS)
def test_a_kernel_that_forgets_the_space_fails(name, monkeypatch):
    make, options, draws = OTHERS[name]
    model = inside("even")
    kernel = make(options, model, 64)
    monkeypatch.setattr(UniformInside, "log_q", lambda s, x, z: torch.zeros(len(x)).double())
    with pytest.raises(AssertionError):
        check_exact(kernel, model, Canonical(0.8), draws, (), False)


@pytest.mark.parametrize(("space", "options", "fits"), [
    ("even", tables.Metropolis(), False),
    ("even", tables.FromLaw(name="from-law"), True),
    ("even", tables.FromLaw(name="from-law", suffix_lengths=[1, 2]), False),
    ("even", tables.FromLaw(name="from-law", weights={"block": 1.0}), False),
    ("lists", tables.Metropolis(), True),
    ("lists", tables.Metropolis(sites=2), False),
])  # fmt: skip
def test_a_kernel_must_connect_the_space(space, options, fits):
    model = inside(space)
    if fits:
        kernels.build(options, model, 4)
        return
    with pytest.raises(UserError, match="may not be connected"):
        kernels.build(options, model, 4)
