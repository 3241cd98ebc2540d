"""Draw the inputs that people are to score, from one run or several.

Writes RUN.tasks.jsonl, and RUN.tasks.key.jsonl beside it, which annotators must not see.
"""

from _common import run_script

from omniinput_hpc.cli.verbs.choose import main

if __name__ == "__main__":
    raise SystemExit(run_script(main))
