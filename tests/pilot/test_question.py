"""Questions of `init`: the tables that they write, how far their ladders go, and their answers."""

import itertools
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from language_folders import save_decoder
from run_tools import ROOT
from transformers import AutoModelForCausalLM

from omniinput_hpc.cli import init
from omniinput_hpc.cli import run as launch
from omniinput_hpc.config import input_file
from omniinput_hpc.errors import UserError
from omniinput_hpc.estimators.density.density import density_of_run
from omniinput_hpc.kernels.parts.constrained import UniformInside
from omniinput_hpc.models.outputs.ended import Ended
from omniinput_hpc.pilot import measure, proposal, question
from omniinput_hpc.runfile.reader import open_run

TOY, WORSE = (str(ROOT / "inputs/models" / name) for name in ("toy", "toy-worse"))
LAW = {"kind": "model"}
OPTIONS = {
    "next": {"targets": ["a"], "after": "b"}, "text": {"text": "ab"},
    "difference": {"other": WORSE}, "pattern": {"pattern": "a*"},
}  # fmt: skip


def call(capfd, *arguments):
    """Run init in this process; return its exit code and what it printed."""
    code = init.main([str(a) for a in arguments])
    out, err = capfd.readouterr()
    return code, out + err


def test_the_tables_of_each_question():
    found = {name: question.tables(name, options) for name, options in OPTIONS.items()}
    assert question.tables(None, {"text": None}) == {}
    assert found["next"] == {"law": LAW, "output": {"name": "next", "targets": ["a"], "after": "b"}}
    assert found["text"] == {"law": LAW, "output": {"name": "text", "text": "ab"}}
    assert found["difference"]["output"]["other"] == {"kind": "causal-lm", "path": WORSE}
    assert found["pattern"] == {"space": {"pattern": "a*"}}


@pytest.mark.parametrize(("asked", "options", "words"), [
    (None, {"text": "x"}, "--text is for --question text"),
    ("text", {"text": "x", "targets": ["a"]}, "--targets is for --question next"),
    ("next", {"after": "x"}, "--question next needs --targets"),
    ("difference", {"other": "nowhere"}, "--other = nowhere: no such folder"),
])  # fmt: skip
def test_options_that_do_not_fit_are_one_sentence(asked, options, words):
    with pytest.raises(UserError, match=words) as caught:
        question.tables(asked, options)
    assert "\n" not in str(caught.value)


def config_of(**tables):
    model = {"kind": "causal-lm", "path": TOY, "length": 4}
    return input_file.checked(proposal.first_input(model, tables), "a test")


@pytest.mark.parametrize(("name", "ends"), [
    ("next", (0, 2)), ("text", (0, 6)), ("difference", (-3, 3)), ("pattern", (0, 3)),
])  # fmt: skip
def test_a_ladder_ends_where_the_question_is_answered(name, ends):
    config = config_of(**question.tables(name, OPTIONS[name]))
    base = SimpleNamespace(
        n_values=10, n_sites=4, predicted_from=1, output=None, conditional_logits=lambda x: None
    )
    n_read = {"next": 1, "text": 3}.get(name)
    model = base if name == "pattern" else SimpleNamespace(base=base, n_sites=4, n_read=n_read)
    found = question.reach_of(config, model, None)
    assert (found.lowest, found.highest) == ends and found.why
    low = question.reach_of(config, model, "low")
    assert (low.lowest, low.highest) == (0, ends[1])
    if ends[0] == 0:
        with pytest.raises(UserError, match="--end high: this question is about the other end"):
            question.reach_of(config, model, "high")


def test_the_other_model_of_a_difference_may_have_no_law():
    """Then no beta follows it, and z may have any range."""
    other = {"kind": "python", "factory": "law_models:chain"}
    config = config_of(law=LAW, output={"name": "difference", "other": other})
    base = SimpleNamespace(n_values=10, n_sites=4, predicted_from=1, output=None)
    found = question.reach_of(config, SimpleNamespace(base=base, n_sites=4), None)
    assert found == question.Reach()


UNIFORM = {"kind": "uniform", "sites": 2}
WITH_PREFIX = {"kind": "causal-lm", "path": WORSE, "prefix": [1]}


@pytest.mark.parametrize("tables", [
    {"space": {"end": 1}, "law": LAW},
    *({**question.tables("difference", OPTIONS["difference"]), "law": LAW | more}
      for more in ({"temperature": 2.0}, {"prompt": UNIFORM})),
    {"law": LAW, "output": {"name": "difference", "other": WITH_PREFIX}},
    {"law": LAW, "output": {"name": "difference", "other": {"kind": "causal-lm", "path": WORSE}},
     "space": {"end": 1}},
])  # fmt: skip
def test_the_end_of_a_ladder_is_named_only_where_that_is_true(tables):
    base = SimpleNamespace(
        n_values=10, n_sites=4, predicted_from=1, output=None, conditional_logits=lambda x: None
    )
    found = question.reach_of(config_of(**tables), SimpleNamespace(base=base, n_sites=4), None)
    assert found.highest == 3 and not found.why


def test_texts_that_end_are_at_no_beta_as_the_model_writes_them():
    """By enumeration: at beta = 3 only texts of 3 predicted tokens keep their proportions."""
    rows = torch.randn((2, 4, 2), generator=torch.manual_seed(1)).log_softmax(-1)
    x = torch.tensor(list(itertools.product(range(2), repeat=4)))
    base = SimpleNamespace(
        n_values=2, n_sites=4, predicted_from=1, output=lambda x: None,
        conditional_logits=lambda x: (None, rows[x[:, 0]]),
    )  # fmt: skip
    found = question.reach_of(config_of(space={"end": 1}), base, None)
    assert found.highest == 3 and "at beta = 3 only texts of 3 predicted tokens" in found.why
    model = Ended(base, 1, is_text=False)
    z, inside = model.output(x), (model.is_over(x) <= (x == 1)).all(dim=1)
    inside &= x[:, 0] != 1  # the end is predicted
    own, nll = model.n_own(x), z * model.n_own(x)
    ratio = (nll - 3 * z).exp()  # of exp(-3 z) to the model's probability
    assert torch.allclose(ratio[inside & (own == 3)], torch.tensor(1.0))
    assert (ratio[inside & (own < 3)] < 1).all() and (inside & (own < 3)).any()


def test_what_follows_a_text_is_what_the_model_says():
    law = {"kind": "causal-lm", "path": WORSE}
    config = config_of(law=law, output={"name": "next", "targets": [1]})
    base = SimpleNamespace(n_values=10, n_sites=4, predicted_from=1, output=None)
    found = question.reach_of(config, SimpleNamespace(base=base, n_sites=4, n_read=1), None)
    assert found.why.startswith("At beta = 1 are the inputs after which the model goes on with a")


def test_without_a_question_only_the_pilot_ends_the_ladder():
    other_law = {"kind": "causal-lm", "path": WORSE}
    odds = {"name": "next", "targets": [1], "against": [2]}
    for tables in ({}, {"law": LAW}, {"law": LAW, "output": odds}, {"law": other_law}):
        model = SimpleNamespace(n_values=10, n_sites=4, output=None)
        assert question.reach_of(config_of(**tables), model, None) == question.Reach()


@pytest.mark.parametrize(("tables", "floor"), [
    ({"output": {"name": "next", "targets": [1]}}, 0.0),
    ({"output": {"name": "next", "targets": [1], "against": [2]}}, -np.inf),
    ({"output": {"name": "difference"}}, -np.inf), ({"space": {"pattern": "a"}}, 0.0),
])  # fmt: skip
def test_bins_begin_at_0_if_z_is_a_loss(tables, floor):
    assert proposal.bounds({"model": {"kind": "causal-lm"}, **tables}, False) == (floor, np.inf)


def test_under_a_law_the_kernel_is_the_default():
    model = SimpleNamespace(output_and_gradient=lambda x: None)
    assert measure.kernel_table(model, SimpleNamespace(automaton=1)) == {}
    assert measure.steps_of({}, 100) == 5


def test_inside_a_space_proposals_follow_the_gradient():
    model, law = SimpleNamespace(output_and_gradient=lambda x: None), object.__new__(UniformInside)
    table = measure.kernel_table(model, law)
    assert [part["name"] for part in table["kernel"]["parts"]] == [
        "from-law",
        "gibbs-with-gradients",
    ]
    assert table["kernel"]["parts"][1]["proposal"] == "site"
    assert measure.steps_of(table, 100) == 5
    model.without_gradient = "none"
    assert measure.kernel_table(model, law) == {}


@pytest.mark.slow
@pytest.mark.parametrize(("name", "options"), [
    ("next", ["--targets", "a", "b"]), ("text", ["--text", "abc"]),
    ("pattern", ["--pattern", "[a-e]+"]),
])  # fmt: skip
def test_a_file_has_no_problem(capfd, tmp_path, monkeypatch, name, options):
    monkeypatch.chdir(tmp_path)
    save_decoder("gpt2", tmp_path)
    arguments = ["--question", name, *options, "--length", "5", "--seconds", "3", "--errors", "0.3"]
    code, text = call(capfd, tmp_path, *arguments, "--output", "my.toml")
    assert code == 0, text
    config = input_file.load(tmp_path / "my.toml")
    assert config.kernel.name == "mixture" and config.analysis.side == "low"
    assert config.beta_k[0] == 0.0 and config.bins.lower >= 0.0
    assert ("[kernel]\n" in (tmp_path / "my.toml").read_text()) == (name == "pattern")
    assert launch.main(["my.toml", "--check"]) == 0
    out = "".join(capfd.readouterr())
    assert "the trial moves found nothing wrong" in out and "arning" not in out, out


@torch.no_grad()
def losses_of(folder, tokens):
    """Return transformers' own mean loss, float64 [n], of tokens, int64 [n, D]."""
    rows = AutoModelForCausalLM.from_pretrained(folder).eval()(input_ids=tokens).logits
    rows = rows.double().log_softmax(-1)[:, :-1]
    return -rows.gather(2, tokens[:, 1:, None])[..., 0].mean(1).numpy()


@pytest.mark.slow
@pytest.mark.release
def test_the_file_of_a_difference_converges_to_the_exact_probabilities(
    capfd, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    arguments = ["--question", "difference", "--other", WORSE, "--length", "4", "--seconds", "6"]
    code, text = call(capfd, TOY, *arguments, "--errors", "0.3", "--output", "my.toml")
    assert code == 0, text
    config = input_file.load(tmp_path / "my.toml")
    assert config.beta_k[0] == -3.0 and config.analysis is None
    assert launch.main(["my.toml"]) == 0
    with open_run(tmp_path / "runs/my.h5") as run:
        density = density_of_run(run.data)
    assert density.absolute and density.verdict.converged, density.verdict.reasons
    tokens = torch.tensor(list(itertools.product(range(10), repeat=4)))
    of_model, of_other = losses_of(TOY, tokens), losses_of(WORSE, tokens)
    z_n, q_n = of_model - of_other, np.exp(-3 * of_model) / 10
    log_p_b = np.log(np.histogram(z_n, density.edges, weights=q_n)[0] + 1e-300)
    firm_b = density.believed_b & (density.log_g_error_b < 0.45) & (density.count_b > 200)
    off_b = (density.log_g_b[firm_b] - log_p_b[firm_b]) / density.log_g_error_b[firm_b]
    assert firm_b.sum() > 5 and np.sqrt(np.mean(off_b**2)) < 2.5
