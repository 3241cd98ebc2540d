"""Show some inputs of each bin of the output: RUN.representatives.csv, .png and .pdf.

Recorded samples are drawn in proportion to the number of inputs that each of them represents.
"""

from _common import run_script

from omniinput_hpc.cli.verbs.representatives import main

if __name__ == "__main__":
    raise SystemExit(run_script(main))
