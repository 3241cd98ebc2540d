"""The command ``omniinput benchmark`` as ``python -m omniinput_hpc.benchmark``."""

import sys

from omniinput_hpc.cli.omniinput import call

if __name__ == "__main__":
    raise SystemExit(call("benchmark", sys.argv[1:], "python -m omniinput_hpc.benchmark"))
