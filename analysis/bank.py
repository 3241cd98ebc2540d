"""The command ``omniinput bank`` as a script."""

from _common import run_script

from omniinput_hpc.cli.verbs.bank import main

if __name__ == "__main__":
    raise SystemExit(run_script(main))
