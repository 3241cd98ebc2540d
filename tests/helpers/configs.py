"""Inputs of runs in memory."""

from omniinput_hpc.config import stored


def config_with(**tables):
    """Return an input with these tables, read like a run file's that lacks all others."""
    return stored.of_tables({"model": {"kind": "python"}, **tables})
