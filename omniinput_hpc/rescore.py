"""The command ``omniinput rescore`` as ``[mpirun -n R] python -m omniinput_hpc.rescore``."""

import sys

from omniinput_hpc.cli.omniinput import call

if __name__ == "__main__":
    raise SystemExit(call("rescore", sys.argv[1:], "python -m omniinput_hpc.rescore"))
