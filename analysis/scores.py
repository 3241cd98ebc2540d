"""Export scores to files of other programs, or import them: CSV, Label Studio, Inspect-style JSON.

Label Studio: s of S stars are the score (s - 1) / (S - 1), so one star is 0 and S stars are 1.
"""

from _common import run_script

from omniinput_hpc.cli.verbs.scores import main

if __name__ == "__main__":
    raise SystemExit(run_script(main))
