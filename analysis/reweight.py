"""Estimate how many inputs of the whole space get each output, from runs of one model.

Writes RUN.density.csv and .png, or for several runs A+B.density.csv and .png next to the first.
"""

from _common import run_script

from omniinput_hpc.cli.verbs.reweight import main

if __name__ == "__main__":
    raise SystemExit(run_script(main))
