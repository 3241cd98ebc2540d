"""Figures (matplotlib): one style, one palette."""

import os
import sys
from contextlib import suppress

if "matplotlib" not in sys.modules:
    # Its import fails if MPLBACKEND names what it does not know (a notebook's, another machine's).
    # Here figures are only written to files, by whatever backend.
    _backend = os.environ.pop("MPLBACKEND", "")
    import matplotlib

    with suppress(ValueError):
        if _backend:
            matplotlib.rcParams["backend"] = _backend
            os.environ["MPLBACKEND"] = _backend
