"""The command ``omniinput init`` as ``python -m omniinput_hpc.init``."""

import sys

from omniinput_hpc.cli.omniinput import call

if __name__ == "__main__":
    raise SystemExit(call("init", sys.argv[1:], "python -m omniinput_hpc.init"))
