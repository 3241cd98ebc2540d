"""`omniinput_hpc.join`: the numbers of the scripts on joined runs, in objects."""

import numpy as np
import pytest
from lattice import first_is_zero
from run_files import write_run

import omniinput_hpc as oi
from omniinput_hpc.errors import UserError
from omniinput_hpc.estimators import EstimateError
from omniinput_hpc.estimators.density.density import density_of_runs
from omniinput_hpc.estimators.precision_recall.from_rule import rule_curve, sum_scores_of_runs

HOT, COLD = np.array([-2.0, 0.0, 1.0]), np.array([1.0, 3.0, 6.0])


@pytest.fixture
def files(tmp_path):
    write_run(tmp_path / "hot.h5", beta_k=HOT, walkers=16, seed=1)
    write_run(tmp_path / "cold.h5", beta_k=COLD, walkers=16, seed=2, config_seed=2)
    return [tmp_path / "hot.h5", tmp_path / "cold.h5"]


def test_joined_runs_have_one_density_and_one_curve(files):
    with oi.open(files[0]) as hot, oi.open(files[1]) as cold:
        joined, readers = oi.join(hot, cold), [hot.reader.data, cold.reader.data]
        density, curve = joined.density(), joined.precision_recall(first_is_zero)
        expected = density_of_runs(readers)
        sums = sum_scores_of_runs(readers, expected, first_is_zero)
    assert "hot.h5, 16 of 16 rounds; " in density.source and "cold.h5" in curve.source
    np.testing.assert_array_equal(density.log_g, expected.log_g_b[expected.count_b > 0])
    assert density.absolute and curve.aupr.value == rule_curve(expected, sums).aupr
    assert repr(joined).splitlines()[0] == "Joined runs" and repr(joined).count("16 of 16") == 2
    assert joined.plot() is not None


def test_runs_that_cannot_be_joined_are_refused(files):
    with pytest.raises(UserError, match="join takes opened runs"):
        oi.join()
    with oi.open(files[0]) as run, pytest.raises(EstimateError, match=r"same \[run\] seed"):
        oi.join(run, run).density()
