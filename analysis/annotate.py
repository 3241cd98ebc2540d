"""Serve the web page where one person scores a task file.

Every score is saved at once to RUN.scores.NAME.jsonl, so that a closed session can be resumed.
"""

from _common import run_script

from omniinput_hpc.cli.verbs.annotate import main

if __name__ == "__main__":
    raise SystemExit(run_script(main))
