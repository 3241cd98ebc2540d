"""Several models in one picture: which inputs are shown, and the outputs of test sets."""

import numpy as np
import pytest
from run_files import write_run

from omniinput_hpc import test_sets
from omniinput_hpc.estimators import EstimateError
from omniinput_hpc.estimators.density.density import density_of_run
from omniinput_hpc.plots import overlay
from omniinput_hpc.results.tables import read_test_sets


def test_low_middle_and_high_are_different_inputs_from_those_places():
    z = np.linspace(0.0, 100.0, 1001)
    x = np.repeat(np.arange(1001)[:, None], 3, axis=1)
    twice_x, twice_z = np.concatenate([x, x]), np.concatenate([z, z])
    chosen = overlay.choose_inputs(twice_x, twice_z, 4)
    for place, (low, high) in zip(chosen, ((0, 2), (48, 52), (98, 100)), strict=True):
        assert len({int(twice_x[i, 0]) for i in place}) == 4
        assert (twice_z[place] >= low).all() and (twice_z[place] <= high).all()
    few = overlay.choose_inputs(x[::500], z[::500], 4)
    assert [len(place) for place in few] == [3, 3, 3]  # no more than there are


def test_outputs_of_test_sets_are_read_as_they_were_written(tmp_path):
    path = tmp_path / "z.csv"
    z = [np.array([1.5, -2.0]), np.array([0.25])]
    test_sets.write_outputs(path, "here", ["digits:1", "digits:2,3"], z)
    found = read_test_sets(path)
    assert list(found) == ["digits:1", "digits:2,3"]
    assert all(np.array_equal(found[name], part) for name, part in zip(found, z, strict=True))
    for text, wanted in (
        ("", "does not have the columns"),
        ("set,role,z\n", "holds no outputs"),
        ("set,role,z\na,positive,high\n", "row 1: expected set, role, z"),
        ("set,role,z\na,positive,1\nb\n", "row 2: expected"),
    ):
        path.write_text(text)
        with pytest.raises(EstimateError, match=wanted):
            read_test_sets(path)
    with pytest.raises(EstimateError, match="cannot be read"):
        read_test_sets(tmp_path / "nothing.csv")


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
