"""A run as a DataTree: lanes are chains, and ArviZ draws it."""

import numpy as np
import pytest
from run_files import write_run

import omniinput_hpc as oi
from omniinput_hpc.results.diagnosis import lane_series

pytest.importorskip("xarray")


@pytest.fixture(scope="module")
def tree(tmp_path_factory):
    path = tmp_path_factory.mktemp("arviz") / "toy.h5"
    write_run(path, walkers=16)
    with oi.open(path) as run:
        yield run.reader, run.to_arviz()


def test_chains_are_lanes_in_the_order_of_time(tree):
    run, found = tree
    z = found["posterior"]["z"]
    assert z.dims == ("chain", "draw", "rung")
    for k in range(len(run.beta_k)):
        np.testing.assert_array_equal(z.sel(rung=k), lane_series(run, k))
    np.testing.assert_array_equal(z["beta"], run.beta_k)
    assert "lambda" not in z.coords
    walker = found["sample_stats"]["walker"]
    assert walker.shape == z.shape
    x = run.slab("samples/walker", 0)[2, :16]  # the first samples of all lanes
    np.testing.assert_array_equal(walker.sel(rung=2, draw=0), x)
    assert found["posterior"].attrs["model_fingerprint"] == run.fingerprint


def test_arviz_reads_it(tree):
    stats = pytest.importorskip("arviz_stats")
    run, found = tree
    ess = stats.ess(found, var_names=["z"])["z"]
    for k in (0, len(run.beta_k) - 1):
        alone = stats.base.array_stats.ess(lane_series(run, k), chain_axis=0, draw_axis=1)
        assert float(ess.sel(rung=k)) == pytest.approx(float(alone))
