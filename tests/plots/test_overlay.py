"""Several models in one picture, with the outputs of test sets."""

import numpy as np
import pytest
from run_files import write_run

from omniinput_hpc.errors import UserError
from omniinput_hpc.estimators.density.density import density_of_run
from omniinput_hpc.plots import overlay


def test_lines_are_the_densities_and_marks_the_test_sets(tmp_path):
    density = density_of_run(write_run(tmp_path / "one.h5", walkers=16))
    sets = {"ones": np.array([1.0, 1.5]), "zeros": np.array([0.5])}
    models = [
        overlay.Overlaid("first", "z", density, [], sets),
        overlay.Overlaid("second", "z", density, [], {}),
    ]
    (part, _) = overlay.overlay_figure(models).subfigs
    axes, below = part.axes
    lines = {line.get_label(): line for line in axes.lines}
    z, log10_rho = lines["first"].get_data()
    bins = np.flatnonzero(density.count_b)
    width = np.diff(density.edges)[bins]
    np.testing.assert_allclose(log10_rho * np.log(10), density.log_g_b[bins] - np.log(width))
    np.testing.assert_allclose(z, density.edges[bins] + width / 2)
    assert [line.get_xdata().tolist() for line in below.lines] == [[1.0, 1.5], [0.5]]
    assert [tick.get_text() for tick in below.get_yticklabels()] == ["ones", "zeros"]
    assert axes.get_shared_x_axes().joined(axes, below) and below.get_xlabel() == "z"


def test_bins_of_unknown_errors_are_hollow_and_have_no_band(tmp_path):
    density = density_of_run(write_run(tmp_path / "one.h5", walkers=16))
    z = 0.5 * (density.edges[:-1] + density.edges[1:])
    bins = np.flatnonzero(density.count_b)
    unknown = bins[:3]
    density.log_g_error_b[unknown] = np.inf
    (part, _) = overlay.overlay_figure([overlay.Overlaid("m", "z", density, [], {})]).subfigs
    (axes,) = part.axes
    (hollow,) = [line for line in axes.lines if line.get_label() == "_"]
    np.testing.assert_array_equal(hollow.get_xdata(), z[unknown])
    (band,) = axes.collections
    begin = band.get_paths()[0].vertices[:, 0].min()
    entries = [text.get_text() for text in axes.get_legend().get_texts()]
    assert entries == ["m", "error not known"]
    assert begin == z[bins[3]] and hollow.get_markerfacecolor() == overlay.style.PAPER


def test_absolute_and_relative_densities_have_no_common_axis(tmp_path):
    found = [
        density_of_run(write_run(tmp_path / "one.h5", walkers=16, beta_k=np.array(betas)))
        for betas in ([0.0, 1.0, 2.0], [0.5, 1.0, 2.0])
    ]
    assert [density.absolute for density in found] == [True, False]
    models = [overlay.Overlaid("m", "z", density, [], {}) for density in found]
    with pytest.raises(UserError, match="give each ladder a rung with beta = 0"):
        overlay.overlay_figure(models)
    axes = overlay.overlay_figure(models[1:]).subfigs[0].axes[0]
    assert "share of inputs per unit of z" in axes.get_ylabel()


def test_every_test_set_has_a_row_in_the_colour_of_its_model(tmp_path):
    """Panels of fewer test sets have rows of the same height, and one without any is left out."""
    density = density_of_run(write_run(tmp_path / "one.h5", walkers=16))
    sets = {f"set {n}": np.array([float(n)]) for n in range(9)}
    models = [
        overlay.Overlaid("one", "z", density, [], dict(list(sets.items())[:2])),
        overlay.Overlaid("two", "other z", density, [], sets),
        overlay.Overlaid("three", "a third", density, [], {}),
    ]
    (part, _) = overlay.overlay_figure(models).subfigs
    third, (one, two, three) = part.axes[2], part.axes[3:]
    assert third.get_xlabel() == "a third" and third.xaxis.get_tick_params()["labelbottom"]
    assert [line.get_xdata().tolist() for line in two.lines] == [[float(n)] for n in range(9)]
    assert {line.get_color() for line in two.lines} == {overlay.style.colour(1)}
    assert one.get_ylim() == two.get_ylim() == (8.5, -0.5)
    assert len(one.lines) == 2 and not three.get_visible()


@pytest.mark.parametrize(
    ("name", "short"),
    [
        ("mnist:/data/mnist:2,3", "mnist:2,3"),
        ("fashion:data/fashion", "fashion"),
        ("runs/sets/digits-0.npy", "digits-0.npy"),
        ("digits:1", "digits:1"),
    ],
)
def test_names_of_test_sets_have_no_folders(name, short):
    assert overlay.shortened(name) == short
