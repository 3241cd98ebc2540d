"""The Python interface: what `omniinput_hpc.open` returns, and its results as small objects."""
