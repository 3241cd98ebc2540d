"""Compare the precision-recall curves of models, or the densities of two runs of one model.

Writes A.compared.csv (A.samplers.csv for runs of one model) and .png next to the first run.
"""

from _common import run_script

from omniinput_hpc.cli.verbs.compare import main

if __name__ == "__main__":
    raise SystemExit(run_script(main))
