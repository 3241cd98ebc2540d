"""Draw the output distributions of several runs in one picture, with inputs and test sets.

Writes FILE.png and FILE.pdf. For image models it also shows inputs with low, middle and high z.
"""

from _common import run_script

from omniinput_hpc.cli.verbs.overlay import main

if __name__ == "__main__":
    raise SystemExit(run_script(main))
