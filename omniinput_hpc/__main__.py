"""Command line ``[mpirun -n R] python -m omniinput_hpc INPUT.toml``; see `cli.run`."""

import sys

from omniinput_hpc.cli.omniinput import main

raise SystemExit(main(sys.argv[1:], "python -m omniinput_hpc"))
