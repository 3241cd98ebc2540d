"""Let a program (a judge) score a task file, or measure the FID of each bin.

Writes RUN.judge-scores.NAME.jsonl, or RUN.fid.csv. After an interruption, run it again: existing
scores are kept.
"""

from _common import run_script

from omniinput_hpc.cli.verbs.judge import main

if __name__ == "__main__":
    raise SystemExit(run_script(main))
