"""What another model says of a run's independent draws: RUN.changes.NAME.csv and .png.

The other model has evaluated the draws first (python -m omniinput_hpc.rescore).
"""

from _common import run_script

from omniinput_hpc.cli.verbs.changes import main

if __name__ == "__main__":
    raise SystemExit(run_script(main))
