"""Benchmark of the sampling methods on exact densities: ``omniinput benchmark``."""
