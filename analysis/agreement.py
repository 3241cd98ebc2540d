"""Compare judges (programs that score) with people, in each bin of the output.

Without scores of people the judges are compared with each other. Writes RUN.agreement.csv and .png:
mean scores, bias, Krippendorff's alpha, rank correlation.
"""

from _common import run_script

from omniinput_hpc.cli.verbs.agreement import main

if __name__ == "__main__":
    raise SystemExit(run_script(main))
