"""Write one HTML page about one or more runs: RUN.report.html.

The page contains all its pictures, tables and inputs. It runs no scripts and loads nothing.
"""

from _common import run_script

from omniinput_hpc.cli.verbs.report import main

if __name__ == "__main__":
    raise SystemExit(run_script(main))
