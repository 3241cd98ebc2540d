"""The program with trials of walkers that are as short as can be, and up to 64 walkers."""

import sys

from omniinput_hpc.cli import run
from omniinput_hpc.sampling import auto_walkers, trial

trial.BATCH_SECONDS = 0.0
auto_walkers.MAX_WALKERS = 64
if __name__ == "__main__":
    raise SystemExit(run.main(sys.argv[1:]))
