"""The command ``omniinput explore`` as a script."""

from _common import run_script

from omniinput_hpc.cli.verbs.explore import main

if __name__ == "__main__":
    raise SystemExit(run_script(main))
