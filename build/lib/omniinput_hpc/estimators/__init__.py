"""Estimators: arrays in, numbers with errors out; numpy and scipy alone (no MPI, torch, HDF5).

`run_data` says what is asked of a run. `density` makes the density of outputs of it, `errors` gives
standard errors and the verdict whether they can be believed, `precision_recall` makes curves from a
rule or from annotators' scores, and `comparison` compares results with exact values and with each
other.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]
BoolArray = NDArray[np.bool_]


class EstimateError(ValueError):
    """The data do not determine what was asked; the text is a plain message for the user."""
