"""Compare the outputs of two models on the independent draws of one run.

Writes RUN.changes.NAME.csv and .png. The other model must first have evaluated the draws (python -m
omniinput_hpc.rescore).
"""

from _common import run_script

from omniinput_hpc.cli.verbs.changes import main

if __name__ == "__main__":
    raise SystemExit(run_script(main))
