"""Moves in compiled code are the moves of the kernel, bit for bit."""

from dataclasses import replace
from functools import cache

import numpy as np
import pytest
from ising import CompiledIsing

from omniinput_hpc import kernels, rng
from omniinput_hpc.config.kernels import Metropolis as Options
from omniinput_hpc.kernels.metropolis import EVALUATE_EVERY
from omniinput_hpc.kernels.parts import compiled_loop
from omniinput_hpc.kernels.parts.compiled_loop import CompiledLoop
from omniinput_hpc.models.checked import CheckedModel
from omniinput_hpc.sampling.walkers import Recording, Walkers
from omniinput_hpc.tempering.ensembles import Canonical, Gaussian, Tabulated

W = 12
ising = cache(CompiledIsing)  # numba takes a second or two for each


def walkers_of(side, ensemble, steps, every, in_a_loop=True):
    """Return walkers of an Ising model, placed on random inputs."""
    model = CheckedModel(ising(side), "model")
    kernel = kernels.build(Options(name="metropolis"), model, W)
    if not in_a_loop:
        kernel.loop = None
    walkers = Walkers(kernel, model, ensemble, "cpu", Recording(steps, every, np.dtype(np.uint8)))
    x = rng.generator(0, "start").integers(2, size=(W, side**2))
    walkers.place(x, walkers.evaluate(x))
    return walkers


def recorded(walkers, n_segments=3):
    """Return what segments record; walkers are placed anew between them, as by exchanges."""
    steps, found = walkers.recording.steps, []
    for number in range(n_segments):
        own, shared = (rng.generator(1, purpose, number) for purpose in ("moves", "choices"))
        r = walkers.begin_segment(own, shared, number * steps).run()
        found.append([r.z_tw.copy(), r.x_swd.copy(), r.attempted_p, r.accepted_p])
        walkers.place(*walkers.configurations())
    return found


def differ(one, other):
    return [
        not np.array_equal(a, b)
        for some, more in zip(one, other, strict=True)
        for a, b in zip(some, more, strict=True)
    ]


@pytest.mark.parametrize("ensemble", [Canonical(12.0), Canonical(-5.0), Gaussian(8.0, 200.0, -0.5)])
@pytest.mark.parametrize(
    ("side", "steps", "every"), [(4, 1, 1), (4, 50, 7), (10, 2 * EVALUATE_EVERY + 100, 13)]
)
def test_a_loop_makes_the_moves_that_the_kernel_makes_one_by_one(ensemble, side, steps, every):
    """z of 10 x 10 sites is rounded, and is evaluated anew meanwhile."""
    one_by_one = recorded(walkers_of(side, ensemble, steps, every, in_a_loop=False))
    assert not any(differ(one_by_one, recorded(walkers_of(side, ensemble, steps, every))))
    n_samples = [len(x_swd) for _, x_swd, _, _ in one_by_one]
    assert sum(n_samples) == 3 * steps // every
    accepted = sum(accepted_p.sum() for *_, accepted_p in one_by_one)
    assert 0 < accepted < 3 * steps * W


@pytest.mark.parametrize(
    "wrong",
    [
        lambda ensemble: replace(ensemble, beta=ensemble.beta * 1.05),
        lambda ensemble: Canonical(ensemble.beta),
    ],
)
def test_a_loop_by_another_ensemble_would_differ(wrong, monkeypatch):
    ensemble = Gaussian(8.0, 200.0, -0.5)
    one_by_one = recorded(walkers_of(4, ensemble, 500, 7, in_a_loop=False))
    run = CompiledLoop.run
    monkeypatch.setattr(
        CompiledLoop, "run", lambda loop, x, z, given, *rest: run(loop, x, z, wrong(given), *rest)
    )
    assert any(differ(one_by_one, recorded(walkers_of(4, ensemble, 500, 7))))


def test_moves_made_at_once_are_few_and_end_before_an_exact_draw(monkeypatch):
    monkeypatch.setattr("omniinput_hpc.sampling.walkers.MAX_WALKER_MOVES", 10 * W + 3)
    walkers = walkers_of(4, Canonical(1.0), 25, 5)
    assert [walkers.moves_at_once(t) for t in (0, 10, 20)] == [10, 10, 5]
    walkers.set_ensemble(Canonical(0.0), object(), every_move=True)
    assert [walkers.moves_at_once(t) for t in (0, 20, 24)] == [10, 4, 0]
    one_by_one = recorded(walkers_of(4, Canonical(1.0), 25, 5, in_a_loop=False))
    assert not any(differ(one_by_one, recorded(walkers_of(4, Canonical(1.0), 25, 5))))


def test_only_ensembles_that_are_formulas_are_moved_in_a_loop():
    table = Tabulated(np.linspace(-2.125, 2.125, 18), (0, 17), np.zeros(19))
    walkers = walkers_of(4, Canonical(1.0), 5, 5)
    assert walkers.moves_at_once(0) == 5
    walkers.set_ensemble(table, None)
    assert walkers.moves_at_once(0) == 0


def test_two_sites_at_once_are_not_moved_in_a_loop():
    model = CheckedModel(ising(4), "model")
    assert kernels.build(Options(name="metropolis"), model, W).loop is not None
    parts = Options(name="metropolis", sites=3)
    assert kernels.build(parts, model, W).loop is None


def test_numba_is_imported_where_a_model_needs_it():
    assert "numba" not in vars(compiled_loop)
