"""The plain sentences at the head of a run's part are what its density and curve say."""

from types import SimpleNamespace

import numpy as np
import pytest
from configs import config_with

from omniinput_hpc.report import summary

EDGES = np.arange(5.0)


def density(absolute=True, converged=True, count_b=(0, 5, 5, 5), share_inside=1.0):
    log_g_b = np.log([1e-300, 1.0, 8.0, 1.0])
    return SimpleNamespace(
        edges=EDGES, count_b=np.array(count_b), log_g_b=log_g_b, absolute=absolute,
        verdict=SimpleNamespace(converged=converged), share_inside=share_inside,
    )  # fmt: skip


def found(side, precision_t, absolute=True):
    curve = SimpleNamespace(
        precision_t=np.array(precision_t), threshold_t=np.array([1.0, 2.0, 3.0]),
        log_recall_t=np.log([10.0, 100.0, 1000.0]),
    )  # fmt: skip
    return SimpleNamespace(curve=curve, side=side, density=density(absolute=absolute))


def said_of(density_, found_=None):
    run = SimpleNamespace(
        path="runs/a.h5", config=config_with(model={"kind": "python", "factory": "a:b"}), n_sites=3,
        n_values=10, rounds=4, rounds_planned=4, beta_k=np.zeros(5),
    )  # fmt: skip
    return summary.summary(
        run, SimpleNamespace(density=SimpleNamespace(estimate=density_), found=found_)
    )


def test_where_the_outputs_are():
    first, second = said_of(density())
    assert first == "a: python a:b, 3 sites of 10 values (10^3.0 inputs), 4 rounds, 5 temperatures."
    assert (
        second == "Outputs from 1 to 4 were visited. Half of all inputs have an output from 2 to 3."
    )
    some = said_of(density(share_inside=0.25))[1]
    assert "Half of the inputs inside the bins (0.25 of all) have an output from 2 to 3." in some
    assert "up to a common factor" in said_of(density(absolute=False))[1]
    assert said_of(density(count_b=(0, 0, 0, 0)))[1] == "No output inside the bins was visited."
    assert "has not converged" in said_of(density(converged=False))[-1]


@pytest.mark.parametrize(("side", "words"), [("low", "up to z = 2"), ("high", "down to z = 2")])
def test_until_where_half_are_right(side, words):
    said = said_of(density(), found(side, [1.0, 0.5, 0.4]))[2]
    assert (
        f"If inputs are accepted from the {side} end, at least half of them are right {words}"
        in said
    )
    assert said.endswith("which finds 10^2.0 right ones.")
    none = said_of(density(), found(side, [0.4, 0.3, 0.2]))[2]
    assert "fewer than half of them are right, at any threshold" in none
    relative = said_of(density(), found(side, [1.0, 0.5, 0.4], absolute=False))[2]
    assert relative.endswith(f"{words}.")
