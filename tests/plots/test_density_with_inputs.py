"""The density with an input beside each bin: what stands where."""

import base64
import io
import warnings
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from configs import config_with
from matplotlib.image import imsave
from matplotlib.patches import ConnectionPatch
from normalized_chain import NormalizedChain

from omniinput_hpc.estimators.density.density import density_of_run
from omniinput_hpc.estimators.density.wide_bins import edges_for
from omniinput_hpc.plots import style
from omniinput_hpc.plots.density_with_inputs import density_with_inputs_figure
from omniinput_hpc.plots.representatives import ShownInput
from omniinput_hpc.plots.style import save
from omniinput_hpc.results.representatives import (
    Representative,
    Representatives,
    RepresentativesResult,
)

MODEL = NormalizedChain(0, sharpness=1.5, spread=0.5)
DENSITY = density_of_run(MODEL.ancestral_run((0.0, 0.5, 1.0), 1))


def found_with(kind, shown_of):
    """Return up to two inputs of each bin, of which only the more confident is drawn."""
    edges = edges_for(DENSITY)
    items = []
    for b in range(len(edges) - 1):
        inside = (DENSITY.z_b >= edges[b]) & (DENSITY.z_b < edges[b + 1]) & (DENSITY.count_b > 0)
        for number, z in enumerate(DENSITY.z_b[inside][:2]):
            items.append(Representative(b, float(z), shown_of(b, number), 1, np.arange(3)))
    return Representatives(kind, None, "a note", "a law", edges, items)


def figure_of(found, side):
    runs = [SimpleNamespace(config=config_with(model={"kind": "python", "factory": "a:b"}))]
    return RepresentativesResult(runs, [DENSITY], [found], side, True).density_figure()


@pytest.mark.parametrize("side", ["low", "high"])
def test_texts_stand_from_the_confident_end_down_and_points_on_the_curve(side, tmp_path):
    texts = found_with(
        "text", lambda b, number: f"  bin{b} number{number} $x \u4e2d " + "long " * 60
    )
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # of a glyph that the font lacks
        figure = figure_of(texts, side)
        save(figure, tmp_path / "a.png")
    left, right = figure.axes
    said = [text.get_text() for text in right.texts if "bin" in text.get_text()]
    bins = texts.bins(side)
    drawn = [0 if side == "low" else len(texts.of_bin(b)) - 1 for b in bins]
    expected = [[f"bin{b}", f"number{i}"] for b, i in zip(bins, drawn, strict=True)]
    assert [words.split()[:2] for words in said] == expected
    assert all(
        words.count("\n") == 1 and words.endswith("\N{HORIZONTAL ELLIPSIS}") for words in said
    )
    bottom, top = left.get_ylim()
    assert (bottom > top) == (side == "low"), "the confident end is above"
    points = [line for line in left.lines if line.get_markersize() == 4]
    for b, line in zip(bins, points, strict=True):
        x, z = line.get_xydata()[0]
        assert z == texts.of_bin(b)[0 if side == "low" else -1].z
        place = np.searchsorted(DENSITY.edges, z, side="right") - 1
        assert x == pytest.approx(DENSITY.log_g_b[place] / np.log(10))
    assert len([one for one in figure.artists if isinstance(one, ConnectionPatch)]) == len(bins)
    renderer = figure.canvas.get_renderer()
    assert max(t.get_window_extent(renderer).x1 for t in right.texts) < figure.bbox.width


@pytest.mark.parametrize("n", [1, 4, 12])
def test_a_long_label_of_z_fits_the_figure(n):
    z_b = DENSITY.z_b[DENSITY.count_b > 0]
    items = [ShownInput(float(z), "z", "", "a") for z in z_b[-n:]]
    label = "output z, \N{MINUS SIGN}ln P(' Python') of the next token (nats), and more words"
    figure = density_with_inputs_figure(DENSITY, items, (-1e9, 1e9), True, "low", label)
    figure.canvas.draw()
    words = figure.axes[0].yaxis.label
    assert " ".join(words.get_text().split()) == label
    assert words.get_window_extent().height < 0.9 * figure.bbox.height


def test_bins_of_unknown_errors_are_hollow():
    """They have no bar, which a filled point without one would show as exact."""
    counted = np.flatnonzero(DENSITY.count_b)
    error_b = DENSITY.log_g_error_b.copy()
    error_b[counted[:3]] = np.inf
    unknown = counted[np.isinf(error_b[counted])]
    upper_b = np.full(len(error_b), np.nan)
    density = replace(DENSITY, log_g_error_b=error_b, log_g_upper_b=upper_b)
    items = [ShownInput(float(DENSITY.z_b[counted[0]]), "z", "", "a")]
    figure = density_with_inputs_figure(density, items, (-1e9, 1e9), True, "low", "z")
    filled, hollow, _ = figure.axes[0].lines
    assert hollow.get_markerfacecolor() == style.PAPER
    np.testing.assert_array_equal(hollow.get_ydata(), style.middles(density.edges)[unknown])
    assert not np.isin(hollow.get_ydata(), filled.get_ydata()).any()


def test_pictures_are_drawn_beside_their_bins(tmp_path):
    file = io.BytesIO()
    imsave(file, np.eye(4), format="png")
    uri = "data:image/png;base64," + base64.b64encode(file.getvalue()).decode()
    found = found_with("image", lambda b, number: uri)
    figure = figure_of(found, "high")
    save(figure, tmp_path / "a.png")
    assert len(figure.axes[1].child_axes) == len(found.bins("high"))
    assert all(
        inset.images[0].get_array().shape[:2] == (4, 4) for inset in figure.axes[1].child_axes
    )
    figure.draw_without_rendering()
    numbers = max(text.get_window_extent().x1 for text in figure.axes[1].texts)
    images = [inset.get_window_extent() for inset in figure.axes[1].child_axes]
    assert numbers < min(box.x0 for box in images)
    assert max(box.x1 for box in images) <= figure.bbox.width
