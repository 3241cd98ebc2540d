"""Estimators: arrays in, numbers with errors out; numpy and scipy alone (no MPI, torch, HDF5).

`reweight` solves the multi-histogram equations, `uncertainty` gives errors and the verdict,
`density` puts both together for a run, `precision_recall` adds scores, `compare` sets a result
against exact values, `agreement` sets annotators beside each other, `tables` reads and writes the CSV files, and `rules` loads scoring rules.
"""

from __future__ import annotations


class EstimateError(ValueError):
    """The data do not determine what was asked; the text is a plain message for the user."""
