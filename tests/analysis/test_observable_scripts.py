"""Averages and joint densities of runs: tables, figures, the verbs, and what they refuse."""

import itertools
import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from lattice import MODEL
from rules_file import MODEL as OWN_MODEL
from rules_file import write_rules
from run_files import write_run
from script_tools import is_plain, is_png

import omniinput_hpc
from omniinput_hpc.errors import UserError
from omniinput_hpc.models.display import Display
from omniinput_hpc.plots.observables import average_figure, joint_figure
from omniinput_hpc.results.observables import average_of, file_word, joint_of, y_edges_of
from omniinput_hpc.results.tables import read_table
from omniinput_hpc.runfile.reader import open_run

X = np.array(list(itertools.product(range(4), repeat=MODEL.n_sites)), dtype=np.uint8)
Z, DISTINCT = MODEL.z(X).astype(float), np.array([len(set(x)) for x in X.tolist()])
WIDTH = 1.0


@pytest.fixture(autouse=True)
def run(tmp_path, inside):
    write_run(tmp_path / "a.h5", rounds=8, walkers=16, moves=40, model=OWN_MODEL)
    write_rules(tmp_path)
    with open_run(tmp_path / "a.h5") as run:
        yield run


def test_an_average_is_that_of_all_inputs(run):
    found = average_of(run, "distinct", width=WIDTH)
    table = found.columns()
    assert list(table) == ["z_lower", "z_upper", "mean", "mean_low", "mean_high"]
    near = 0
    for low, high, _, below, above in zip(*table.values(), strict=True):
        true = DISTINCT[(low <= Z) & (high > Z)]
        if np.isfinite(below) and len(true) > 50:
            near += 1
            assert below - (above - below) < true.mean() < above + (above - below)
    assert near >= 5
    assert found.found.whole.low < DISTINCT.mean() < found.found.whole.high
    assert "y is distinct" in found.about()[0]
    assert any(
        line.startswith("mean of distinct over all inputs with z from") for line in found.lines()
    )


def test_a_label_has_no_mean(run):
    with pytest.raises(UserError, match="--observable class: a label has no mean"):
        average_of(run, "class")
    found = joint_of(run, "distinct", width=WIDTH)
    for observable, lines in (("distinct", 1), ("class", 0)):
        axes = replace(found, observable=observable).figure().axes[0]
        assert sum("mean" in c.get_label() for c in axes.containers) == lines


def test_a_range_of_z(run):
    found = average_of(run, "distinct", (1.375, 2.375), 0.5)
    true = DISTINCT[(Z >= 1.375) & (Z < 2.375)].mean()
    assert abs(found.found.whole.value - true) < 4 * found.found.whole.error
    assert "z from 1.375 to 2.375" in "".join(found.lines())


def test_a_joint_density_has_a_row_per_cell(run):
    found = joint_of(run, "distinct", width=WIDTH)
    table = found.columns()
    assert list(table) == [
        "z_lower", "z_upper", "y_lower", "y_upper", "log_g", "log_g_error", "count",
        "log_g_upper",
    ]  # fmt: skip
    assert (table["count"] > 0).all()
    scores = []
    for z0, z1, y0, y1, log_g, error, _, _ in zip(*table.values(), strict=True):
        true = ((z0 <= Z) & (z1 > Z) & (y0 <= DISTINCT) & (y1 > DISTINCT)).sum()
        if true >= 100 and np.isfinite(error):
            scores.append((log_g - np.log(true)) / error)
    assert len(scores) > 10 and np.sqrt(np.mean(np.square(scores))) < 1.6
    assert "cells of z and distinct have samples" in found.lines()[-1]
    shares = found.lines()[-2].partition(": ")[2].split(", ")
    assert [int(share.partition(":")[0]) for share in shares] == [1, 2, 3, 4]


def test_a_share_has_an_interval_in_each_bin(run):
    means = joint_of(run, "my_rules:first_is_zero", width=WIDTH).averages
    sampled_b = means.count_b > 0
    assert np.isfinite(means.high_b[sampled_b]).all() and (means.high_b[sampled_b] <= 1.0).all()


def test_texts_without_a_tokenizer_are_named(run, monkeypatch):
    how = Display("text", lambda x: [""] * len(x), None, "shown as token ids")
    monkeypatch.setattr("omniinput_hpc.results.observables.how_to_show", lambda *_, **__: how)
    for name, said in (("contains:1 1", True), ("distinct", False)):
        lines = average_of(run, name, render=True).lines()
        assert ("texts are shown as token ids" in lines) == said


def test_figures_have_what_they_are_of(run):
    found = average_of(run, "distinct", width=WIDTH)
    axes = average_figure(found.found, "distinct", "z").axes[0]
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("z", "distinct")
    words = [text.get_text() for text in axes.get_legend().get_texts()]
    assert "mean, 95 % interval" in words and "80 % of the inputs of a bin" in words
    axes = average_figure(found.found, "distinct", "z", "probability").axes[0]
    words = [text.get_text() for text in axes.get_legend().get_texts()]
    assert "80 % of the probability of a bin" in words
    a = found.found
    share = average_figure(replace(a, quantile_qb=np.sign(a.quantile_qb)), "share", "z").axes[0]
    assert share.get_legend().get_texts()[0].get_text().startswith("mean")
    found.found.mean_b[:] = 15 + 1e-12 * np.arange(len(found.found.mean_b))
    found.found.low_b[:] = found.found.high_b[:] = found.found.mean_b
    found.found.quantile_qb[:] = 15
    assert np.ptp(average_figure(found.found, "length", "z").axes[0].get_ylim()) > 0.9
    joint = joint_of(run, "distinct", width=WIDTH)
    figure = joint_figure(joint.found, joint.averages, joint.densities[0], "distinct", "z")
    assert figure.axes[0].get_ylabel() == "distinct"
    assert figure.axes[1].get_xlabel().endswith("all z shown")  # of a range, if one is given
    assert len(figure.axes) == 3  # the map, the density of y, the scale of colours


def test_edges_of_y():
    np.testing.assert_allclose(y_edges_of(np.array([1.0, 3.0]), 30), [0.5, 1.5, 2.5, 3.5])
    np.testing.assert_allclose(y_edges_of(np.array([2.5, 2.5]), 30), [2.0, 3.0])
    assert len(y_edges_of(np.linspace(0, 1, 200), 30)) == 31
    np.testing.assert_allclose(y_edges_of(np.arange(60.0, 105.0), 30), np.arange(59.5, 106.0, 2.0))
    assert len(y_edges_of(np.array([0.0, 1000.0]), 30)) == 31
    assert len(y_edges_of(np.array([0.0, 2.0**40]), 30)) == 31  # without 2^40 edges in between
    for large in (1e17, -1e17):
        lower, upper = y_edges_of(np.array([large]), 30)
        assert lower < large < upper


def test_words_of_files():
    assert file_word("contains:the") == "contains-the" and file_word("m:f") == "m-f"
    names = ["contains:the", "contains: the", "contains:a b/c", "matches:^the", "matches:the"]
    names += [r"matches:\d+", "matches:d+", "contains:" + 70 * "a", "contains:" + 71 * "a"]
    assert len({file_word(name) for name in names}) == len(names)
    assert all(len(file_word(name)) <= 60 for name in names)
    assert file_word("runs/a.rescored.other.h5") == "other"


def test_the_verbs(inside, tmp_path):
    code, out, err = inside("average.py", "a.h5", "--observable", "distinct")
    assert (code, err) == (0, "") and "mean of distinct" in out
    assert is_png(tmp_path / "a.average.distinct.png")
    code, out, err = inside("joint.py", "a.h5", "--observable", "distinct", "--cells", 2)
    assert (code, err) == (0, "") and is_png(tmp_path / "a.joint.distinct.png")
    _, table = read_table(tmp_path / "a.joint.distinct.csv", ["y_lower"])
    assert len(set(table["y_lower"])) == 2
    found = json.loads((tmp_path / "a.results.json").read_text())["analyses"][0]
    assert "mean of distinct" in json.dumps(found["values"])


def test_an_observable_is_computed_once(inside, tmp_path):
    """...and read, instead of what the name would mean otherwise."""
    (tmp_path / "my_numbers.py").write_text("def seven(x):\n    return x[:, 0] * 0 + 7\n")
    code, out, err = inside(
        "observe.py", "a.h5", "--add", "distinct", "--function", "my_numbers:seven"
    )
    assert (code, out, err) == (0, "a.observed.distinct.h5\n", "")
    code, out, _ = inside("average.py", "a.h5", "--observable", "distinct")
    assert code == 0 and "7 (95 %: 7 to 7)" in out
    Path("a.observed.distinct.h5").unlink()
    assert inside("observe.py", "a.h5", "--add", "distinct")[0] == 0


@pytest.mark.parametrize(
    ("script", "options", "words"),
    [
        ("average.py", ["--observable", "legnth"], '(did you mean "length"?)'),
        (
            "average.py",
            ["--observable", "distinct", "--range", 3, 2],
            "--range 3 2: the run",
        ),
        ("average.py", ["--observable", "b.h5"], "b.h5: no such file"),
        (
            "average.py",
            ["--observable", "distinct", "--range", 90, 99],
            "its bins cover z = ",
        ),
        ("joint.py", ["--observable", "distinct", "--cells", 0], "--cells 0"),
        ("observe.py", ["--add", "mine", "--results", "there"], "--results"),
        ("observe.py", ["--add", "a/b"], "--add a/b: expected at most 60 letters"),
        ("observe.py", ["--add", "mine"], "--add mine: expected one of"),
        ("observe.py", ["--add", "mine", "--function", "mine:mine"], "--function mine:mine"),
    ],
)
def test_mistakes_are_named(script, options, words, inside):
    code, _, err = inside(script, "a.h5", *options)
    assert is_plain(code, err, words), err


def test_another_runs_outputs_are_refused(run, tmp_path):
    with pytest.raises(UserError, match="not"):
        average_of(run, str(tmp_path / "a.h5"))


def test_in_python(run):
    with omniinput_hpc.open("a.h5") as opened:
        whole = opened.average("distinct", width=WIDTH).found.whole
        assert whole.value == average_of(run, "distinct", width=WIDTH).found.whole.value
        assert set(opened.joint("distinct", (1.375, 2.375)).columns()["z_lower"]) >= {1.375}
