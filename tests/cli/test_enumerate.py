"""Enumeration: every input once, the tree equals plain batches, large spaces are refused."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch
from markov_model import MarkovModel
from run_tools import ROOT
from toy_models import LatticeModel

from omniinput_hpc.cli import common, enumerate
from omniinput_hpc.config import input_file
from omniinput_hpc.models.batches import evaluate
from omniinput_hpc.models.language import causal_lm
from omniinput_hpc.parallel.comm import World
from omniinput_hpc.results.tables import read_table
from omniinput_zoo.toy import is_valid


def call(capfd, *arguments):
    code = common.main(enumerate.run, [str(a) for a in arguments])
    return code, "".join(capfd.readouterr())


@pytest.mark.parametrize(("n_values", "n_sites"), [(10, 4), (4, 6), (2, 1), (300, 2)])
def test_blocks_hold_every_input_once(n_values, n_sites):
    depth = enumerate.block_depth(n_values, n_sites)
    blocks = [enumerate.inputs_of(b, depth, n_values, n_sites) for b in range(n_values**depth)]
    x = np.concatenate(blocks)
    number = x @ (n_values ** np.arange(n_sites)[::-1])
    np.testing.assert_array_equal(number, np.arange(n_values**n_sites))


def test_the_tree_gives_the_outputs_of_the_plain_forward():
    config = input_file.load(ROOT / "inputs/toy.toml", ["model.length=5"])
    model = causal_lm.build(config.model, "cpu")
    tree = enumerate.block_evaluator(model, 2, "cpu")
    for block in (0, 37, 99):
        x = enumerate.inputs_of(block, 2, model.n_values, model.n_sites)
        np.testing.assert_allclose(tree(block), evaluate(model, x, 64, "cpu"), atol=1e-5)


class BareMarkov(MarkovModel):
    """An autoregressive model as a user may bring it: without `device` and `predicted_from`."""

    def __init__(self):
        super().__init__(4, 3)
        del self.predicted_from


class BareTree(BareMarkov):
    """The same, evaluated as a tree of prefixes."""

    def begin(self, x):
        return self.extend(None, x[:, -1])

    def extend(self, prefixes, values):
        return SimpleNamespace(log_p=self.table[values])

    def branch(self, prefixes):
        return self.extend(None, torch.arange(3).repeat(len(prefixes.log_p)))


@pytest.mark.parametrize("model", [BareMarkov(), BareTree()])
def test_what_a_model_need_not_say_is_not_asked_for(model):
    """The mass that the model gives to right inputs is then known, too: m is D - 1."""
    bins = SimpleNamespace(edges=np.linspace(0.0, 10.0, 11))
    config = SimpleNamespace(bins=bins, law=None, space=None)
    census = enumerate.count_all(model, config, lambda x: np.ones(len(x)), "cpu", World(), 1.0)
    assert census.count_b.sum() == 3**4
    assert census.mass_right == pytest.approx(1.0)
    log_g = np.log(census.count_b[:-2], where=census.count_b[:-2] > 0, out=np.full(10, -np.inf))
    np.testing.assert_array_equal(log_g, model.log_g(config.bins.edges))


def test_exact_counts_of_a_model_with_a_known_answer(capfd, tmp_path, lattice_toml):
    toml, csv = tmp_path / "lattice.toml", tmp_path / "exact.csv"
    toml.write_text(lattice_toml.format(output=tmp_path / "run.h5"))
    code, text = call(capfd, toml, "--output", csv, "--rule", "toy_rules:begins_with_zero")
    assert code == 0, text
    _, table = read_table(csv, ["z_lower", "z_upper", "log_g", "log_g_error", "count", "r"])
    z, log_count = LatticeModel(6, 4, 0.25, "cpu").log_count()
    np.testing.assert_allclose(table["log_g"], log_count, rtol=1e-10)
    assert ((table["z_lower"] <= z) & (z < table["z_upper"])).all()
    assert table["count"].sum() == 4**6
    assert abs((table["count"] * table["r"]).sum() - 4**5) < 1e-6


def test_a_large_space_is_refused_with_its_size_and_time(capfd, tmp_path, lattice_toml):
    toml = tmp_path / "lattice.toml"
    toml.write_text(lattice_toml.format(output=tmp_path / "run.h5"))
    words = [toml, "--output", tmp_path / "exact.csv", "--set"]
    code, text = call(capfd, *words, "model.options.n_sites=40")
    assert code == 2
    assert "4^40 = 1.21e+24 inputs would take about" in text
    assert "years" in text
    code, text = call(capfd, *words, "model.options.n_sites=600")  # beyond float64
    assert code == 2
    assert "4^600 inputs cannot be enumerated; sample this space instead" in text


def test_a_changed_input_does_not_replace_the_table_of_the_file(
    capfd, tmp_path, lattice_toml, monkeypatch
):
    toml = tmp_path / "lattice.toml"
    toml.write_text(lattice_toml.format(output=tmp_path / "run.h5"))
    monkeypatch.chdir(tmp_path)
    code, text = call(capfd, toml, "--set", "model.options.n_sites=3")
    assert code == 2 and "name the table to write with --output" in text
    assert not (tmp_path / "inputs").exists()


def test_the_rule_counts_sums_divisible_by_30():
    x = np.array([[9, 9, 9, 3, 0, 0, 0, 0], [0] * 8, [1] * 8, [9, 9, 9, 9, 9, 9, 6, 0]])
    assert is_valid(x.astype(np.uint8)).tolist() == [1, 1, 0, 1]


RULES = """
def twice(x):
    return [0.5] * (2 * len(x))
def percent(x):
    return x[:, 0] * 50.0
def fails(x):
    return x[:, 99]
def late(x):  # wrong where the first site is not 0: not among the inputs that are tried
    return (x[:, 0] > 0) * 2.0
"""


@pytest.mark.parametrize(
    ("rule", "said"),
    [
        ("twice", "expected 1000 scores of shape (1000,), got (2000,)"),
        ("percent", "scores must lie in [0, 1], got 50"),
        ("fails", "--rule enumerate_rules:fails failed: IndexError"),
        ("late", "scores must lie in [0, 1], got 2"),
    ],
)
def test_a_wrong_rule_is_bad_input(rule, said, capfd, tmp_path, lattice_toml, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "enumerate_rules.py").write_text(RULES)
    toml, csv = tmp_path / "lattice.toml", tmp_path / "exact.csv"
    toml.write_text(lattice_toml.format(output=tmp_path / "run.h5"))
    arguments = [toml, "--output", csv, "--rule", f"enumerate_rules:{rule}"]
    code, text = call(capfd, *arguments)
    assert code == 2 and said in text and "Traceback" not in text, text
    assert not csv.exists()


@pytest.mark.parametrize("factory", ["wrong_shape", "doubles", "no_tensor"])
def test_outputs_that_are_none_are_refused(factory, capfd, tmp_path, lattice_toml):
    toml = tmp_path / "lattice.toml"
    toml.write_text(lattice_toml.format(output=tmp_path / "run.h5"))
    words = [toml, "--output", tmp_path / "exact.csv"]
    code, text = call(capfd, *words, "--set", f"model.factory=toy_models:{factory}")
    assert (code, "Traceback" in text) == (2, False)
    assert "output(x) must return" in text


def test_r_is_written_if_no_input_is_surely_right(capfd, tmp_path, lattice_toml, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "half_rules.py").write_text("def half(x):\n    return [0.5] * len(x)\n")
    toml, csv = tmp_path / "lattice.toml", tmp_path / "exact.csv"
    toml.write_text(lattice_toml.format(output=tmp_path / "run.h5"))
    code, text = call(capfd, toml, "--output", csv, "--rule", "half_rules:half")
    assert code == 0, text
    lines, table = read_table(csv, ["r"])
    assert (table["r"] == 0.5).all() and "inf" not in " ".join(lines)
