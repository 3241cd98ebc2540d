"""Draw the precision-recall curve of a model over its whole input space.

A rule or people's scores determine which inputs are right. Writes RUN.pr.csv, .pr.png and .roc.png,
with --scores also RUN.r.png, and with a rule and --exact also RUN.rho_r.png. Every picture is also
written as PDF.
"""

from _common import run_script

from omniinput_hpc.cli.verbs.precision_recall import main

if __name__ == "__main__":
    raise SystemExit(run_script(main))
