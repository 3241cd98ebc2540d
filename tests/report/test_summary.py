"""The head of a run's part: the model, the question, and two sentences that its numbers say."""

from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from configs import config_with

from omniinput_hpc.report import summary
from omniinput_hpc.text import WORDS_OF

EDGES = np.arange(5.0)


def density(absolute=True, count_b=(0, 5, 5, 5), share_inside=1.0):
    log_g_b = np.log([1e-300, 1.0, 8.0, 1.0])
    return SimpleNamespace(
        edges=EDGES, count_b=np.array(count_b), log_g_b=log_g_b, absolute=absolute,
        share_inside=share_inside, words=WORDS_OF["count"],
    )  # fmt: skip


def found(side, precision_t, absolute=True, aupr=0.7):
    curve = SimpleNamespace(
        precision_t=np.array(precision_t), threshold_t=np.array([1.0, 2.0, 3.0]),
        log_recall_t=np.log([10.0, 100.0, 1000.0]), aupr=aupr, aupr_low=0.65, aupr_high=0.75,
        aupr_one_sided=0,
    )  # fmt: skip
    return SimpleNamespace(curve=curve, side=side, density=density(absolute=absolute))


def said_of(density_, found_=None):
    result = SimpleNamespace(estimate=density_, label="output z, mean NLL", measure="count")
    content = SimpleNamespace(density=result, found=found_)
    return summary.question(content), *summary.answer(content)


def test_where_the_outputs_are():
    question, half, met = said_of(density())
    assert question == "How many inputs have which output?"
    assert half == "Half of all inputs have an output from 2 to 3."
    assert met == "Outputs from 1 to 4 were visited."
    some = said_of(density(share_inside=0.25))[1]
    assert some == "Half of the inputs inside the bins (0.25 of all) have an output from 2 to 3."
    assert "up to a common factor" in said_of(density(absolute=False))[1]
    assert said_of(density(count_b=(0, 0, 0, 0)))[1] == "No output inside the bins was visited."


def test_the_model_is_named():
    run = SimpleNamespace(
        path=Path("runs/a.h5"), config=config_with(model={"kind": "python", "factory": "a:b"}),
        n_sites=3, n_values=10,
    )  # fmt: skip
    content = SimpleNamespace(density=SimpleNamespace(label="output z, mean NLL"))
    assert summary.title_of(run) == "All inputs of a:b"
    assert summary.model_line(run, content) == (
        "Model: python a:b, 3 sites of 10 values (10^3.0 inputs). Output z, mean NLL. Run: a.h5."
    )


@pytest.mark.parametrize(("side", "words"), [("low", "up to z = 2"), ("high", "down to z = 2")])
def test_until_where_half_are_right(side, words):
    question, said, aupr = said_of(density(), found(side, [1.0, 0.5, 0.4]))
    assert question.endswith("how many are right?")
    assert said.startswith(
        f"If inputs are accepted from the {side} end, at least half of them are right {words}"
    )
    assert said.endswith("which finds 100 right ones.")
    assert "(AUPR) is 0.70 (0.65 to 0.75); a random order would give 0.4." in aupr
    none = said_of(density(), found(side, [0.4, 0.3, 0.2]))[1]
    assert "fewer than half of them are right, at any threshold" in none
    relative = said_of(density(), found(side, [1.0, 0.5, 0.4], absolute=False))[1]
    assert relative.endswith(f"{words}.")
    assert (
        "Too few right inputs" in said_of(density(), found(side, [0.0, 0.0, 0.0], aupr=np.nan))[2]
    )
