"""Lines and columns of tables about scores."""

import numpy as np
import pytest

from omniinput_hpc.estimators import EstimateError
from omniinput_hpc.results.score_tables import fid_columns
from omniinput_hpc.results.tables import write_table


def test_fid_of_a_run_by_bin_and_a_run_that_is_not_there(tmp_path):
    path = tmp_path / "fid.csv"
    columns = {
        "run": np.array([0, 0, 2]),
        "z_lower": np.array([1.0, 2.0, 1.0]),
        "fid": np.array([5.0, 6.0, 7.0]),
        "fid_of_reference": np.array([0.5, 0.6, 0.7]),
    }
    write_table(path, ["FID"], columns)
    found = fid_columns(path, 0, np.array([2.0, 3.0, 1.0]))
    np.testing.assert_array_equal(found["fid"], [6.0, np.nan, 5.0])
    np.testing.assert_array_equal(found["fid_of_reference"], [0.6, np.nan, 0.5])
    with pytest.raises(EstimateError, match=r"fid.csv holds no run 1; it has: 0, 2"):
        fid_columns(path, 1, np.array([1.0]))
