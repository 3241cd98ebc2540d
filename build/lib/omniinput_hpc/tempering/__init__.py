"""The theory of a ladder of temperatures, on arrays: swaps, spacing, ensembles."""
