"""Draw the inputs for people to score, from one or more runs.

Writes RUN.tasks.jsonl and its key RUN.tasks.key.jsonl, which annotators must not see.
"""

from _common import run_script

from omniinput_hpc.cli.verbs.choose import main

if __name__ == "__main__":
    raise SystemExit(run_script(main))
