"""Benchmark of the sampling methods on exact densities: ``python -m omniinput_hpc.benchmark``."""
