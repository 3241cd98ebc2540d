"""The command ``omniinput enumerate`` as ``[mpirun -n R] python -m omniinput_hpc.enumerate``."""

import sys

from omniinput_hpc.cli.omniinput import call

if __name__ == "__main__":
    raise SystemExit(call("enumerate", sys.argv[1:], "python -m omniinput_hpc.enumerate"))
