"""Which rounds of a long run are read."""

import numpy as np
import pytest
from lattice import Lattice, independent_run

from omniinput_hpc.estimators.run_data import evenly_spaced_rounds

MODEL = Lattice(n_sites=5, unit=0.25)
BETA_K = np.array([-3.0, 0.0, 3.0])
EDGES = (np.arange(len(MODEL.z_l()) + 1) - 0.5) * MODEL.unit


@pytest.mark.parametrize(("share", "expected"), [
    (100, list(range(16))), (16, list(range(16))), (4, [0, 5, 10, 15]), (1, [0]), (0, [0]),
])  # fmt: skip
def test_rounds_are_evenly_spaced(share, expected):
    run = independent_run(MODEL, BETA_K, EDGES, rounds=16)
    per_round = 3 * run.samples_per_round
    assert evenly_spaced_rounds(run, share * per_round).tolist() == expected
