"""Write one HTML page about one run or several: RUN.report.html.

It holds all it needs: pictures, tables and inputs. It runs no script and fetches nothing.
"""

from _common import run_script

from omniinput_hpc.cli.verbs.report import main

if __name__ == "__main__":
    raise SystemExit(run_script(main))
