"""The Python interface: the objects that `omniinput_hpc.open` returns, and their results."""
