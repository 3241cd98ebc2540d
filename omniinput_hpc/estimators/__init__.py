"""Estimators: arrays in, numbers with errors out; numpy and scipy alone (no MPI, torch, HDF5).

`reweight` solves the multi-histogram equations (`dual`: Newton's method), `laws` says what rungs
sample by, `evidence` and `histograms` what runs tell, `unbinned` does without bins. `uncertainty`
gives errors and the verdict, `diagnostics` looks at the chains, `density` puts all of this together
for a run or several. `curves` is the arithmetic of precision-recall curves, `precision_recall`
makes one from a rule and `scored` one from annotators' scores (`draws`: their errors), `agreement`
sets annotators beside each other, `compare` sets a result against exact values, `two_runs`,
`normalization`, `side_by_side`, `two_models` and `two_samplers` set runs beside each other,
`tables` reads and writes the CSV files, and `rules` loads scoring rules.
"""

from __future__ import annotations


class EstimateError(ValueError):
    """The data do not determine what was asked; the text is a plain message for the user."""
