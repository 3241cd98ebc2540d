"""Let a program (a judge) score a task file, or measure the FID of each bin.

Writes RUN.scores.NAME.jsonl, marked as a judge's, or RUN.fid.csv. After a stop, run it again: the
scores that are there are kept.
"""

from _common import run_script

from omniinput_hpc.cli.verbs.judge import main

if __name__ == "__main__":
    raise SystemExit(run_script(main))
