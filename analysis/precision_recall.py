"""Draw the precision-recall curve of a model over its whole input space.

What is right is told by a rule or by people's scores. Writes RUN.pr.csv, .pr.png and .roc.png; by a
rule with --exact also RUN.rho_r.png, with --scores RUN.r.png; every picture also as PDF.
"""

from _common import run_script

from omniinput_hpc.cli.verbs.precision_recall import main

if __name__ == "__main__":
    raise SystemExit(run_script(main))
