"""Estimators: arrays in, numbers with errors out; only numpy and scipy (no MPI, torch or HDF5).

`run_data` defines what the estimators read from a run. `density` estimates the density of outputs,
`errors` gives standard errors and a verdict on them, `precision_recall` makes curves from a rule or
from annotators' scores, and `comparison` compares results with exact values and with each other.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]
BoolArray = NDArray[np.bool_]


class EstimateError(ValueError):
    """The data do not determine the result; the text is a plain message for the user."""
