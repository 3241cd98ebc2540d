"""--label, --title, --style and --width of every verb that draws figures."""

import shutil

import matplotlib as mpl
import numpy as np
import pytest
from matplotlib.figure import Figure
from rules_file import MODEL, RULE, write_rules
from run_files import EDGES, write_exact, write_run
from run_tools import ROOT
from score_files import write_score_files
from script_tools import is_plain

from omniinput_hpc.results.tables import read_table

SCORES = ["--scores", "one.scores.ana.jsonl", "one.scores.ben.jsonl"]
BY_RULE = ["--rule", RULE]
DRAWS = {
    "agreement.py": ["one.h5", *SCORES],
    "annotators.py": ["one.h5", *SCORES],
    "bank.py": ["one.h5", "--bank", "bank.jsonl", *SCORES],
    "average.py": ["one.h5", "--observable", "distinct"],
    "compare.py": ["one.h5", "two.h5"],
    "diagnose.py": ["one.h5"],
    "joint.py": ["one.h5", "--observable", "distinct"],
    "overlay.py": ["one.h5", "two.h5", "--output", "both.png"],
    "precision_recall.py": ["one.h5", *BY_RULE],
    "representatives.py": ["one.h5"],
    "reweight.py": ["one.h5"],
}
"""Verbs that need no second model, with arguments."""
IN_LEGEND = ("compare.py", "overlay.py", "precision_recall.py", "reweight.py")


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """Return a folder with two runs, scores and rules."""
    folder = tmp_path_factory.mktemp("runs")
    run = write_run(folder / "one.h5", walkers=16, seed=1, model=MODEL)
    write_run(folder / "two.h5", walkers=16, seed=2, config_seed=2, model=MODEL)
    write_score_files(folder / "one.h5", run, ["ana", "ben"])
    write_rules(folder)
    return folder


@pytest.fixture
def drawn(runs, tmp_path, inside, monkeypatch):
    """Return how to call a script in a folder with the runs: (code, out, err), and its figures."""
    monkeypatch.setattr(Figure, "savefig", lambda self, *_, **__: figures.append(self))
    figures = []
    shutil.copytree(runs, tmp_path, dirs_exist_ok=True)

    def call(script, *arguments):
        figures.clear()
        return inside(script, *arguments), [*figures]

    return call


def words_of(figure):
    return [text.get_text() for text in figure.findobj(mpl.text.Text)]


def test_every_script_that_draws_has_the_options():
    folder = ROOT / "omniinput_hpc" / "cli" / "verbs"
    draw = {path.name for path in folder.glob("*.py") if "_figure" in path.read_text()}
    assert draw == {*DRAWS, "normalize.py", "changes.py", "difference.py"}
    for name in draw:
        assert "add_figure_options(parser" in (folder / name).read_text(), name


@pytest.mark.parametrize("script", DRAWS)
def test_labels_titles_and_styles(drawn, tmp_path, script):
    (tmp_path / "my.mplstyle").write_text("font.family: monospace\n")
    names = [f"--label=the {word} model" for word in DRAWS[script] if word.endswith(".h5")]
    (code, _, err), figures = drawn(script, *DRAWS[script], *names, "--style", "my.mplstyle")
    assert (code, err) == (0, "") and figures
    for figure in figures:
        titles = figure.get_suptitle()
        assert "the one.h5 model: python" in titles and "one: " not in titles
        assert len(names) == 1 or "the two.h5 model: python" in titles
        assert figure.texts[0].get_fontfamily() == ["monospace"]
    entries = [text for figure in figures for text in words_of(figure)]
    named = [text for text in entries if "the one.h5 model" in text]
    assert (len(named) > len([f.get_suptitle() for f in figures])) == (script in IN_LEGEND)
    (code, _, err), figures = drawn(script, *DRAWS[script], "--title", "All inputs")
    assert (code, err) == (0, "")
    assert all(f.get_suptitle().splitlines()[0] == "All inputs" for f in figures)
    assert not any("sites of" in text for f in figures for text in words_of(f))


@pytest.mark.parametrize("script", DRAWS)
def test_mistakes_are_refused_in_a_sentence(drawn, script):
    (code, out, err), figures = drawn(script, *DRAWS[script], "--style", "nothing.mplstyle")
    no_style = "--style nothing.mplstyle: this is neither a file nor a style of matplotlib"
    assert is_plain(code, err, no_style) and not (out or figures)
    (code, out, err), figures = drawn(script, *DRAWS[script], *["--label=a"] * 3)
    assert is_plain(code, err, "--label: expected one for each run") and not (out or figures)


def test_widths_give_thresholds_of_that_width(drawn, tmp_path):
    """Precision at a threshold that two widths share hardly depends on them.

    Recall does a little: the first bins of the narrow ones hold too few inputs, and are left out.
    """
    write_exact(tmp_path / "exact.csv")
    found = {}
    for width in ([], ["--width=0.5"], ["--width=1"]):
        call = ("precision_recall.py", "one.h5", *BY_RULE, "--exact", "exact.csv", *width)
        (code, out, err), _ = drawn(*call)
        assert (code, err) == (0, ""), err
        assert "100.0% of" in out
        _, found[*width] = read_table(tmp_path / "one.pr.csv", [])
    fine, half, whole = found.values()
    steps = [np.diff(columns["threshold"]).round(9) for columns in found.values()]
    assert [set(step.tolist()) for step in steps] == [{0.25}, {0.5}, {1.0}]
    for wide in (half, whole):
        _, here, there = np.intersect1d(
            fine["threshold"].round(6), wide["threshold"].round(6), return_indices=True
        )
        assert len(here) >= 4
        for name, most in (("precision", 0.01), ("log_recall", 0.06)):
            np.testing.assert_allclose(fine[name][here], wide[name][there], atol=most)
            spread = [c[f"{name}_high"] - c[f"{name}_low"] for c in (fine, wide)]
            ratio = spread[1][there] / spread[0][here]
            assert (ratio > 0.5).all() and (ratio < 2.0).all(), (name, ratio)


def test_a_width_joins_the_bins_of_densities(drawn, tmp_path):
    """Nothing is lost: the numbers of inputs add up, and so do the counts."""
    write_exact(tmp_path / "exact.csv")
    call = ("reweight.py", "one.h5", "--exact", "exact.csv")
    (code, out, _), _ = drawn(*call, "--width=1")
    assert code == 0 and "exact" in out and "one.width_1.density.csv" in out
    drawn(*call)
    (_, wide), (_, fine) = (
        read_table(tmp_path / f"one.{name}.csv", []) for name in ("width_1.density", "density")
    )
    assert set(np.diff(wide["z_lower"]).round(9)) == {1.0}
    place = np.searchsorted(wide["z_lower"] + 1e-9, fine["z_upper"]) - 1
    summed, counts = np.zeros(len(wide["z_lower"])), np.zeros(len(wide["z_lower"]))
    np.add.at(summed, place, np.exp(fine["log_g"]))
    np.add.at(counts, place, fine["count"])
    np.testing.assert_allclose(summed, np.exp(wide["log_g"]), rtol=1e-5)
    np.testing.assert_array_equal(counts, wide["count"])
    points = []
    for width in ([], ["--width=1"]):
        (code, _, err), (both, *_) = drawn("overlay.py", *DRAWS["overlay.py"], *width)
        assert (code, err) == (0, "")
        points.append(max(len(line.get_xdata()) for line in both.axes[0].lines))
    assert points[0] > 3 * points[1] > 3
    for script in ("reweight.py", "overlay.py"):
        (code, _, err), _ = drawn(script, *DRAWS[script], "--width=0.3")
        assert is_plain(code, err, "--width 0.3: expected a multiple of the width")


def test_a_width_counts_in_comparisons_of_models(drawn, tmp_path):
    from h5py import File

    with File(tmp_path / "two.h5", "r+") as file:
        file.attrs["model_fingerprint"] = "another"
    call = ("compare.py", "one.h5", "two.h5", *BY_RULE)
    points = []
    for width in ([], ["--width=1"]):
        (code, _, err), (figure, *_) = drawn(*call, *width)
        assert code == 0, err
        points.append(len(figure.axes[0].lines[0].get_xdata()))
    assert points[0] > 3 * points[1] > 3


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([*BY_RULE, "--width=0.3"], "--width 0.3: expected a multiple of the width"),
        ([*BY_RULE, "--width=nan"], "--width nan: expected a multiple of the width"),
        ([*BY_RULE, "--width=-0.25"], "--width -0.25: expected a multiple of the width"),
        ([*BY_RULE, "--width=100"], "--width 100: expected a multiple of the width"),
        ([*SCORES, "--width=0.5"], "--width is for a curve by a rule"),
    ],
)
def test_widths_that_do_not_fit_are_refused(drawn, arguments, words):
    (code, _, err), _ = drawn("precision_recall.py", "one.h5", *arguments)
    assert is_plain(code, err, words)
    assert np.diff(EDGES).min() == 0.25
