"""The command ``omniinput test-sets`` as ``python -m omniinput_hpc.test_sets``."""

import sys

from omniinput_hpc.cli.omniinput import call

if __name__ == "__main__":
    raise SystemExit(call("test-sets", sys.argv[1:], "python -m omniinput_hpc.test_sets"))
