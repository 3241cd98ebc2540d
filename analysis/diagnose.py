"""Diagnose how well a run mixes, and what to change: moves, swaps, round trips, R-hat.

Writes RUN.diagnose.csv and .png.
"""

from _common import run_script

from omniinput_hpc.cli.verbs.diagnose import main

if __name__ == "__main__":
    raise SystemExit(run_script(main))
