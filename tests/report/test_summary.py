"""The head of a run's part: the model, the question, and two sentences that its numbers say."""

from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from configs import config_with

from omniinput_hpc.estimators.density.rung_weights import RungWeights
from omniinput_hpc.report import summary
from omniinput_hpc.text import WORDS_OF

EDGES = np.arange(5.0)


def density(absolute=True, count_b=(0, 5, 5, 5), share_inside=1.0):
    log_g_b = np.log([1e-300, 1.0, 8.0, 1.0])
    seen = "in visited bins" if np.isnan(share_inside) else "inside the bins"
    whole = "all inputs" if share_inside == 1.0 else f"the inputs {seen}"
    apart = np.array([[0.01], [-0.01], [0.02], [-0.02]])
    return SimpleNamespace(
        edges=EDGES, count_b=np.array(count_b), log_g_b=log_g_b, absolute=absolute,
        share_inside=share_inside, words=WORDS_OF["count"], measure="count",
        log_g_jb=log_g_b + apart, lanes_g=np.ones(4, dtype=int),
        log_measure=np.log(10.0), whole=whole, believed_b=np.array(count_b) > 0,
    )  # fmt: skip


def found(side, precision_t, absolute=True, aupr=0.7):
    p_t, right_t = np.array(precision_t), np.log([10.0, 100.0, 1000.0])
    with np.errstate(divide="ignore"):
        wrong_t = right_t + np.log(1.0 - p_t) - np.log(p_t)
    trace, low, high = (
        SimpleNamespace(precision_t=factor * p_t, log_recall_t=right_t, log_wrong_t=wrong_t)
        for factor in (1.0, 0.9, 1.1)
    )
    curve = SimpleNamespace(
        trace=trace, bands=SimpleNamespace(low=low, high=high),
        precision_t=np.array(precision_t), threshold_t=np.array([1.0, 2.0, 3.0]),
        log_recall_t=np.log([10.0, 100.0, 1000.0]), aupr=aupr, aupr_low=0.65, aupr_high=0.75,
        aupr_one_sided=0,
    )  # fmt: skip
    return SimpleNamespace(
        curve=curve, side=side, left_out_lines=list, density=density(absolute=absolute)
    )


MIXING = SimpleNamespace(
    beta_k=np.array([0.0, 2.0]), z_mean_k=np.array([2.5, 2.2]), z_std_k=np.array([0.5, 0.3])
)
DATA = SimpleNamespace(
    weights=RungWeights(MIXING.beta_k, np.zeros(2), np.zeros(2), np.zeros((2, 4)), EDGES)
)


def said_of(density_, found_=None, model=None, z_range=None, model_beta=np.nan):
    result = SimpleNamespace(
        estimate=density_, label="output z, mean NLL", measure="count", share=None
    )
    content = SimpleNamespace(
        density=result, found=found_, options=SimpleNamespace(z_range=z_range),
        diagnosis=SimpleNamespace(found=MIXING),
    )  # fmt: skip
    config = config_with(model=model or {"kind": "python"})
    run = SimpleNamespace(config=config, model_beta=model_beta, n_sites=3, data=DATA)
    return summary.question(content), *summary.answer(run, content)


def test_what_the_model_is_sure_of():
    """z is ln p here: bins from -3 to 1."""
    sure = density()
    sure.edges = np.array([-3.0, -2.0, -0.6, -0.1, 0.0])
    table = {"kind": "image-classifier", "path": "a", "target": "log-softmax"}
    said = said_of(sure, model={**table, "label": 3})[1]
    assert said.startswith("The probability of class 3 is at least 0.549 for 90 % (")
    assert "; at least 0.905 for 10 % (" in said
    assert "of all inputs (95 % intervals in brackets). Nearly all inputs are noise" in said
    assert (
        "from -0.6 to -0.1 (p from 0.549 to 0.905)."
        in said_of(sure, model={**table, "label": 3})[2]
    )
    assert said_of(sure, model={**table, "label": "any"})[1].startswith(summary.SURE_OF_ANY)
    assert len(said_of(sure, model={**table, "label": 3, "sign": -1})) == 3
    texts = {"kind": "sequence-classifier", "path": "a", "length": 3, "output": "log-softmax"}
    said = said_of(sure, model={**texts, "target": 1})[1]
    assert said.startswith("The probability of class 1 is at least")
    space = config_with(model={**table, "label": 3}, space={"allowed": [[0, 1], [1]]})
    run = SimpleNamespace(config=space)
    asked = SimpleNamespace(density=SimpleNamespace(estimate=sure))
    (some,) = summary._confident(run, asked)
    assert some.endswith("(95 % intervals in brackets).")  # few inputs are not noise
    assert "was seen" not in said
    less = density(count_b=(0, 5, 5, 0))
    less.edges = sure.edges
    assert "None above 0.905 was seen" in said_of(less, model={**table, "label": 3})[1]
    rare = density()
    rare.edges, rare.log_measure = sure.edges, 30.0
    assert "for 10^-12.07 (10^-12" in said_of(rare, model={**table, "label": 3})[1]


def test_what_a_language_model_writes():
    said = said_of(density(), model_beta=2.0)[1]
    assert said.startswith("The model's own texts have z = 2.2 +- 0.3")
    assert "(mean and standard deviation). Of all 10 inputs, one in 10 has z up to 2: 1 in" in said
    assert "1 inputs (95% interval 0." in said and said.endswith("typical text of its own.")
    assert len(said_of(density(), model_beta=1.0)) == 3


def test_only_the_loss_without_a_law_makes_a_rung_the_models_own():
    table = {"kind": "causal-lm", "path": "a", "length": 4}
    config = config_with(model=table)
    for law, output, k in ((None, None, 1), ("a law", None, None), (None, "an output", None)):
        of = SimpleNamespace(law=law, output=output, sampler=config.sampler)
        run = SimpleNamespace(config=of, model_beta=2.0, data=DATA)
        assert summary.own_rung(run) == k


def test_a_range_comes_first():
    assert said_of(density(), z_range=(2.0, 3.0))[1].startswith("z from 2 to 3: 8 inputs, 0.8 of")
    assert said_of(density(), found("low", [1.0, 0.5, 0.4]), z_range=(2.0, 3.0))[3].startswith("z ")


def test_where_the_outputs_are():
    question, half, met = said_of(density())
    assert question == "How many inputs have which output?"
    assert half == "Half of all inputs have an output from 2 to 3."
    assert met == "Outputs from 1 to 4 were visited."
    some = said_of(density(share_inside=0.25))[1]
    assert some == "Half of the inputs inside the bins (0.25 of all) have an output from 2 to 3."
    unknown = said_of(density(share_inside=np.nan))[1]
    assert unknown.startswith("Half of the inputs in visited bins have an output")
    assert "up to a common factor" in said_of(density(absolute=False))[1]
    assert said_of(density(count_b=(0, 0, 0, 0)))[1] == "No output inside the bins was visited."


def test_the_model_is_named():
    run = SimpleNamespace(
        path=Path("runs/a.h5"), config=config_with(model={"kind": "python", "factory": "a:b"}),
        n_sites=3, n_values=10, model_beta=np.nan, data=DATA,
    )  # fmt: skip
    content = SimpleNamespace(density=SimpleNamespace(label="output z, mean NLL"))
    assert summary.title_of(run) == "All inputs of a:b"
    assert summary.model_line(run, content) == (
        "Model: python a:b, 3 sites of 10 values (10^3.0 inputs). Output z, mean NLL. Run: a.h5."
    )


def test_the_scale_of_ln_p():
    table = {"kind": "image-classifier", "path": "a", "target": "log-softmax", "label": 3}
    run = SimpleNamespace(
        path=Path("a.h5"), config=config_with(model=table), n_sites=3, n_values=10,
        model_beta=np.nan, data=DATA,
    )  # fmt: skip
    content = SimpleNamespace(density=SimpleNamespace(label="ln p"))
    assert " Ln p. It is ln p: z = -0.69 is p = 0.5," in summary.model_line(run, content)


@pytest.mark.parametrize(("side", "words"), [("low", "up to z = 2"), ("high", "down to z = 2")])
def test_until_where_half_are_right(side, words):
    question, said, aupr = said_of(density(), found(side, [1.0, 0.5, 0.4]))
    assert question.endswith("how many are right?")
    assert said.startswith(
        f"If inputs are accepted from the {side} end, at least half of them are right {words}"
    )
    assert said.endswith("which finds 100 right ones.")
    assert "(AUPR) is 0.70 (0.65 to 0.75); a random order would give 0.4 (0.36 to 0.44)." in aupr
    none = said_of(density(), found(side, [0.4, 0.3, 0.2]))[1]
    assert "fewer than half of them are right, at any threshold" in none
    relative = said_of(density(), found(side, [1.0, 0.5, 0.4], absolute=False))[1]
    assert relative.endswith(f"{words}.")
    assert (
        "Too few right inputs" in said_of(density(), found(side, [0.0, 0.0, 0.0], aupr=np.nan))[2]
    )
