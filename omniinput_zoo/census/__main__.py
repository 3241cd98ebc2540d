"""The command ``omniinput census`` as ``[mpirun -n R] python -m omniinput_hpc.census``."""

import sys

from omniinput_hpc.cli.omniinput import call

if __name__ == "__main__":
    raise SystemExit(call("census", sys.argv[1:], "python -m omniinput_hpc.census"))
