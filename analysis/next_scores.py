"""Show in which bins further scores reduce the error of the AUPR most: RUN.next.csv.

With --against, the error is that of the difference from another model's AUPR, over the common range
of recall; both densities must then be absolute.
"""

from _common import run_script

from omniinput_hpc.cli.verbs.next_scores import main

if __name__ == "__main__":
    raise SystemExit(run_script(main))
