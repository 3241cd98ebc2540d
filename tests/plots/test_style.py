"""What all figures share: labels, colours that repeat, points, panels and saving."""

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import matplotlib as mpl
import numpy as np
import pytest
from matplotlib.figure import Figure
from scored_model import a_density, scored_inputs

from omniinput_hpc.estimators.errors.jackknife import Interval
from omniinput_hpc.estimators.precision_recall.from_scores import scored_curve
from omniinput_hpc.plots import look, style
from omniinput_hpc.plots.comparison import normalization_figure
from omniinput_hpc.plots.labels import labels_figure
from omniinput_hpc.plots.scores import agreement_figure, convergence_figure
from omniinput_hpc.text import WORDS_OF


def test_colours_and_markers_repeat_and_differ():
    n = len(style.SERIES)
    assert n == len(style.MARKERS) == len(set(style.SERIES)) == len(set(style.MARKERS))
    for index in range(2 * n):
        assert style.colour(index) == style.SERIES[index % n]
        assert style.marker(index) == style.MARKERS[index % n]


def test_a_normalization_under_a_law_is_of_probabilities():
    density = a_density(1)
    names = ("edges", "count_b", "log_g_b", "log_g_error_b", "log_g_upper_b")
    under_law = SimpleNamespace(
        **{name: getattr(density, name) for name in names},
        absolute=True, words=WORDS_OF["probability"],
    )  # fmt: skip
    found = SimpleNamespace(best=lambda: SimpleNamespace(shift=None), low=0.0, high=1.0, rows=[])
    top, bottom = normalization_figure(under_law, under_law, found, ("a", "b"), "z").axes
    assert top.get_ylabel().endswith(" probability per bin")
    assert bottom.get_xlabel() == "ln(probability of a / probability of b) in Z, 95% intervals"


def test_values_of_unknown_intervals_are_hollow():
    """Ratios of a normalization, areas of curves, and biases."""
    density = a_density(1)
    ratios = [Interval(*map(np.array, (1.0, 1 - e, 1 + e, e)))
              for e in (0.5, np.inf)]  # fmt: skip
    rows = [SimpleNamespace(name="one", ratio=ratio) for ratio in ratios]
    found = SimpleNamespace(best=lambda: SimpleNamespace(shift=None), low=0.0, high=1.0, rows=rows)
    bottom = normalization_figure(density, density, found, ("a", "b"), "z").axes[1]
    assert hollow_at(bottom) == [(1.0, 0.0)] and "interval not known" in bottom.texts[0].get_text()

    curve = scored_curve(density, scored_inputs(np.random.default_rng(1), per_bin=40)).curve
    unknown = replace(curve, aupr_low=np.nan, aupr_high=np.nan)
    bottom = convergence_figure({10: unknown, 20: curve}, True).axes[1]
    assert hollow_at(bottom) == [(10.0, curve.aupr)]

    columns = {name: np.array([0.0, 1.0]) for name in ("z_lower", "r_people", "r_ben", "bias_ben")}
    columns |= {"z_upper": np.array([1.0, 2.0]), "bias_error_ben": np.array([0.1, np.nan])}
    one = SimpleNamespace(judge=None, name="ben")
    assert hollow_at(agreement_figure(columns, [one], "z").axes[1]) == [(1.5, 1.0)]


def hollow_at(axes):
    hollow = [line for line in axes.lines if line.get_markerfacecolor() in ("none", style.PAPER)]
    return [tuple(map(float, point)) for line in hollow for point in line.get_xydata()]


def test_labels_say_what_is_counted():
    assert "number of inputs per bin" in style.inputs_label(True)
    assert "share of inputs per nat" in style.inputs_label(False, "nat")
    assert "number of right inputs found" in style.recall_label(True)
    assert "right inputs found, share of all" in style.recall_label(False)
    names = "z_lower z_upper labels effective represented represented_error missing"
    columns = dict.fromkeys(names.split(), np.array([0.0, 1.0]))
    for measure, what in (("count", "inputs"), ("probability", "probability")):
        axes = labels_figure(columns, "z", measure).axes
        assert axes[1].get_ylabel() == f"share of the bin's {what}"


def test_the_style_ends_with_the_figure():
    before = dict(mpl.rcParams)

    @style.styled
    def draw() -> Figure:
        assert mpl.rcParams["axes.spines.top"] is False
        return style.blank(3.0, 2.0)

    figure = draw()
    assert tuple(figure.get_size_inches()) == (3.0, 2.0)
    assert dict(mpl.rcParams) == before


def test_panels_share_their_axis_and_have_their_heights():
    figure, axes = style.panels([3.0, 1.0])
    assert tuple(figure.get_size_inches()) == (style.FULL_WIDTH, 4.0)
    assert axes[0].get_shared_x_axes().joined(*axes)
    _, apart = style.panels([1.0, 1.0], share_x=False)
    assert not apart[0].get_shared_x_axes().joined(*apart)


def test_points_without_an_error_are_hollow():
    _, (axes,) = style.panels([2.0])
    x = np.arange(4.0)
    style.points(axes, x, x, np.array([0.1, np.inf, 0.2, np.nan]))
    hollow = [line for line in axes.lines if line.get_markerfacecolor() == "none"]
    assert len(hollow) == 1 and hollow[0].get_xdata().tolist() == [1.0, 3.0]
    assert axes.containers[0].lines[0].get_xdata().tolist() == [0.0, 2.0]


def test_error_bars_come_first_in_the_legend():
    _, (axes,) = style.panels([2.0])
    x = np.arange(3.0)
    axes.plot(x, x, label="a line")
    style.points(axes, x, x, np.ones(3), label="the points")
    style.legend(axes)
    texts = [text.get_text() for text in axes.get_legend().get_texts()]
    assert texts == ["the points", "a line"]


def test_a_figure_is_saved_as_png_and_pdf_and_always_the_same(tmp_path):
    for name in ("one", "two"):
        figure, (axes,) = style.panels([2.0])
        axes.plot([0, 1], [0, 1])
        style.save(figure, tmp_path / f"{name}.png")
    assert (tmp_path / "one.png").read_bytes()[:4] == b"\x89PNG"
    assert (tmp_path / "one.pdf").read_bytes()[:5] == b"%PDF-"
    for suffix in (".png", ".pdf"):
        files = [(tmp_path / name).with_suffix(suffix).read_bytes() for name in ("one", "two")]
        assert files[0] == files[1]


def test_middles():
    np.testing.assert_array_equal(style.middles(np.array([0.0, 1.0, 3.0])), [0.5, 2.0])


def test_the_ends_of_the_bins_are_marked():
    _, (axes,) = style.panels([2.0])
    style.bin_limits(axes, np.array([0.0, 1.0, 3.0]))
    assert [line.get_xdata()[0] for line in axes.lines] == [0.0, 3.0]
    assert [text.get_text() for text in axes.texts] == ["bins begin", "bins end"]


def test_dollar_signs_of_names_are_no_formulas(tmp_path):
    figure, (axes,) = style.panels([2.0])
    axes.plot([1.0, 2.0], [1.0, 200.0], label=r"a$\x$ and $b")
    axes.set(yscale="log", xlabel=style.inputs_label(True), title=r"runs/$\wrong$.h5")
    axes.legend()
    style.save(figure, tmp_path / "a.png")
    assert (tmp_path / "a.pdf").stat().st_size > 1000
    assert axes.xaxis.label.get_parse_math() and not axes.title.get_parse_math()
    assert all(tick.get_parse_math() for tick in axes.get_yticklabels() if tick.get_text())


def test_a_legend_below_covers_no_panel_and_makes_room():
    """It is below the axis' label, inside the figure, and panels keep their height."""

    def drawn(n_entries):
        figure, (axes,) = style.panels([3.0])
        figure.set_layout_engine("constrained")
        for i in range(n_entries):
            axes.plot([0, 1], [i, i], label=f"entry {i}, with a long name")
        axes.set_xlabel("x")
        style.legend_below(axes)
        for _ in range(3):  # the layout settles
            figure.canvas.draw()
        return figure, axes

    figure, axes = drawn(6)
    legend, label = axes.get_legend().get_window_extent(), axes.xaxis.label.get_window_extent()
    assert 0.0 <= legend.y0 < legend.y1 < label.y0
    height = figure.get_figheight() * axes.get_position().height
    one, other = drawn(12)
    assert abs(one.get_figheight() * other.get_position().height - height) < 0.2


@pytest.mark.parametrize(("engine", "height"), [("constrained", 9.0), ("none", 30.0)])
def test_a_caption_stands_above_the_figures_own_title_and_within_its_width(
    engine, height, tmp_path
):
    figure = style.blank(3.0, height)
    figure.set_layout_engine("constrained")  # as the style has it
    figure.set_layout_engine(engine)
    figure.suptitle("how to read it", x=0.01, ha="left", fontsize=9)
    style.save(figure, tmp_path / "a.png", look.Caption("a long name of a run " * 5, "few " * 40))
    title, remark = figure.texts
    assert title.get_text().splitlines()[0].startswith("a long name of a run")
    assert title.get_text().splitlines()[-1] == "how to read it"
    figure.draw_without_rendering()
    for text in (title, remark):
        box = text.get_window_extent()
        assert box.x0 >= 0 and box.x1 <= figure.bbox.width
        assert box.y0 >= 0 and box.y1 <= figure.bbox.height
    assert title.get_window_extent().y1 > figure.bbox.height - 0.3 * figure.dpi


@pytest.mark.parametrize(("module", "backend"), [
    ("omniinput_hpc.plots.style", "TkAgg"),
    ("omniinput_hpc.report.page", "nonsense"),
    *(
        pytest.param("omniinput_hpc.plots.style", name, marks=pytest.mark.release)
        for name in ("nonsense", "module://not.there")
    ),
])  # fmt: skip
def test_a_backend_that_is_not_there_does_not_matter(tmp_path, backend, module):
    """A notebook's terminal or a profile of another machine sets it."""
    draw = (
        f"import {module}\nfrom pathlib import Path\nfrom omniinput_hpc.plots import style\n"
        "style.save(style.styled(lambda: style.panels([1.0])[0])(), Path('a.png'))"
    )
    environment = {**os.environ, "MPLBACKEND": backend, "PYTHONPATH": str(Path.cwd())}
    subprocess.run([sys.executable, "-c", draw], cwd=tmp_path, env=environment, check=True)
    assert (tmp_path / "a.png").stat().st_size > 1000


@pytest.mark.parametrize("name", ["l\udcc3\udca4ufe", "\udce4", "\ud800$", "l\u00e4ufe \U0001f600"])
def test_names_of_any_bytes_are_drawn(tmp_path, name):
    """A file's name need not be UTF-8, and a locale of ASCII reads every umlaut as bytes."""
    figure = style.blank(3.0, 2.0)
    figure.add_subplot().set_title(name)
    style.save(figure, tmp_path / "a.png", look.Caption(name))
    assert (tmp_path / "a.pdf").is_file()
    if name.startswith("l\udcc3"):
        assert figure.get_suptitle() == "l\u00e4ufe"
