"""Figures (matplotlib): one style, one palette."""

import os
import sys
from contextlib import suppress

if os.environ.get("MPLBACKEND") and "matplotlib" not in sys.modules:
    # The import fails if MPLBACKEND names an unknown backend (a notebook's, another machine's).
    # Figures are only written to files here, so any backend will do.
    _backend = os.environ.pop("MPLBACKEND")
    import matplotlib

    with suppress(ValueError):
        matplotlib.rcParams["backend"] = _backend
        os.environ["MPLBACKEND"] = _backend
