"""Export scores to other programs' files, or import them: CSV, Label Studio, Inspect-style JSON.

Label Studio: s stars of S are the score (s - 1) / (S - 1): one star is 0, all stars are 1.
"""

from _common import run_script

from omniinput_hpc.cli.verbs.scores import main

if __name__ == "__main__":
    raise SystemExit(run_script(main))
