"""Every sampling method on models whose density is known: ``python -m omniinput_hpc.benchmark``."""
