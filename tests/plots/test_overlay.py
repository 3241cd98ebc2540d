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
    (axes,) = part.axes
    lines = {line.get_label(): line for line in axes.lines}
    z, log10_rho = lines["first"].get_data()
    bins = np.flatnonzero(density.count_b)
    width = np.diff(density.edges)[bins]
    np.testing.assert_allclose(log10_rho * np.log(10), density.log_g_b[bins] - np.log(width))
    np.testing.assert_allclose(z, density.edges[bins] + width / 2)
    marks = [line.get_xdata().tolist() for line in axes.lines if line.get_linestyle() == "None"]
    assert marks == [[1.0, 1.5], [0.5]]


def test_bins_of_unknown_errors_are_hollow_and_have_no_band(tmp_path):
    density = density_of_run(write_run(tmp_path / "one.h5", walkers=16))
    z = 0.5 * (density.edges[:-1] + density.edges[1:])
    bins = np.flatnonzero(density.count_b)
    unknown = bins[:3]
    density.log_g_error_b[unknown] = np.inf
    (part, _) = overlay.overlay_figure([overlay.Overlaid("m", "z", density, [], {})]).subfigs
    (axes,) = part.axes
    (hollow,) = [line for line in axes.lines if line.get_label() == "m: error not known"]
    np.testing.assert_array_equal(hollow.get_xdata(), z[unknown])
    (band,) = axes.collections
    begin = band.get_paths()[0].vertices[:, 0].min()
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


def test_every_test_set_is_drawn(tmp_path):
    """Marks begin again where there are more sets than marks."""
    density = density_of_run(write_run(tmp_path / "one.h5", walkers=16))
    sets = {f"set {n}": np.array([float(n)]) for n in range(9)}
    (part, _) = overlay.overlay_figure([overlay.Overlaid("m", "z", density, [], sets)]).subfigs
    (axes,) = part.axes
    marks = [line.get_xdata().tolist() for line in axes.lines if line.get_linestyle() == "None"]
    assert marks == [[float(n)] for n in range(9)]


def test_the_name_of_a_test_set_does_not_lie_across_the_axis(tmp_path):
    """It stands to the left of its points, or to their right where these begin near the axis."""
    density = density_of_run(write_run(tmp_path / "one.h5", walkers=16))
    sets = {"near": np.array([0.0, 2.0]), "far": np.array([4.0, 5.0])}
    (part, _) = overlay.overlay_figure([overlay.Overlaid("m", "z", density, [], sets)]).subfigs
    found = {text.get_text(): (text.xy[0], text.get_ha()) for text in part.axes[0].texts}
    assert found == {"near": (2.0, "left"), "far": (4.0, "right")}
