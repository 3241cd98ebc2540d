"""Compare the precision-recall curves of models, or the densities of two runs of one model.

Writes A.compared.csv (of two runs of one model A.samplers.csv) and .png beside the first run.
"""

from _common import run_script

from omniinput_hpc.cli.verbs.compare import main

if __name__ == "__main__":
    raise SystemExit(run_script(main))
