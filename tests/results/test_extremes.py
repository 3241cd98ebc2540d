"""The inputs of lowest and highest z that a run recorded."""

import h5py
import numpy as np
import pytest
from run_files import write_run

from omniinput_hpc.estimators.samples import extreme_inputs
from omniinput_hpc.results.extremes import extremes, own_rung, own_texts
from omniinput_hpc.runfile.reader import open_run


@pytest.mark.parametrize("n", [1, 5, 10_000])
@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_they_are_those_of_all_samples_together(tmp_path, sign, n):
    run = write_run(tmp_path / "one.h5", walkers=8, rounds=5, moves=20)
    x_nd, z_n = extreme_inputs(run.data, n, sign)
    x_all, first = np.unique(run.x_rksd.reshape(-1, run.n_sites), axis=0, return_index=True)
    z_all = run.z_rks.ravel()[first]
    assert len(z_n) == min(n, len(x_all)) == len(np.unique(x_nd, axis=0))
    np.testing.assert_array_equal(z_n, sign * np.sort(sign * z_all)[:n])
    of_x = {tuple(x): z for x, z in zip(x_all.tolist(), z_all.tolist(), strict=True)}
    assert [of_x[tuple(x)] for x in x_nd.tolist()] == z_n.tolist()


def test_they_are_shown_with_their_outputs(tmp_path):
    write_run(tmp_path / "one.h5", walkers=8, rounds=3)
    with open_run(tmp_path / "one.h5") as run:
        z_rks = run.data.z()
        low, high = extremes(run, 3)
        assert (low.items[0].z, high.items[0].z) == (z_rks.min(), z_rks.max())
        assert [one.kind for one in (low, high)] == ["text", "text"]
        assert all(low.edges[i.bin] <= i.z <= low.edges[i.bin + 1] for i in low.items)


def test_outputs_outside_the_bins_are_shown_too(tmp_path):
    edges = np.array([1.0, 1.5, 2.0])
    write_run(tmp_path / "one.h5", walkers=8, rounds=3, edges=edges)
    with open_run(tmp_path / "one.h5") as run:
        low, high = extremes(run)
        assert low.items[0].z < 1.0 and high.items[0].z > 2.0
        assert low.z_text(low.items[0]) and high.z_text(high.items[0])


def test_the_models_own_texts_are_those_of_its_rung(tmp_path):
    write_run(tmp_path / "one.h5", walkers=8, rounds=3)
    with open_run(tmp_path / "one.h5") as run:
        assert own_rung(run) is None
        z_s = run.data.z()[-1, 2]
        found = own_texts(run, 2, 4)
        z_n = [item.z for item in found.items]
        assert len(z_n) == 4 and z_n == sorted(z_n) and np.isin(z_n, z_s[-run.walkers :]).all()


@pytest.mark.parametrize("other", ["", "lambda", "kappa"])
def test_a_rung_with_another_weight_at_the_models_beta_is_not_its_own(tmp_path, other):
    write_run(tmp_path / "one.h5", walkers=8, rounds=3, beta_k=np.array([0.0, 1.0, 2.0]))
    with h5py.File(tmp_path / "one.h5", "r+", locking=False) as file:
        file.attrs["model_beta"] = 2.0
        if other == "lambda":
            more = '[ladder]\nlambdas = [0.0, 0.0, 1.0]\nobservable = "distinct"'
            file.attrs["config"] = file.attrs["config"].replace("[ladder]", more)
        file["ensemble/kappa"][2] = float(other == "kappa")
    with open_run(tmp_path / "one.h5") as run:
        assert own_rung(run) == (None if other else 2)
