"""Compare annotators with each other, and show whether more scores would change the curve.

Writes RUN.annotators.csv and RUN.convergence.csv, each with a picture.
"""

from _common import run_script

from omniinput_hpc.cli.verbs.annotators import main

if __name__ == "__main__":
    raise SystemExit(run_script(main))
