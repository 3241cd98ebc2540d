"""Show some inputs of each bin of the output: RUN.representatives.csv, .png and .pdf.

They are drawn in proportion to how many inputs of the space each recorded sample stands for.
"""

from _common import run_script

from omniinput_hpc.cli.verbs.representatives import main

if __name__ == "__main__":
    raise SystemExit(run_script(main))
