"""Put the densities of two models on one scale: A.normalized.B.csv and .png.

Each model must first have rescored the other model's run (python -m omniinput_hpc.rescore).
"""

from _common import run_script

from omniinput_hpc.cli.verbs.normalize import main

if __name__ == "__main__":
    raise SystemExit(run_script(main))
