"""The program with a second checkpoint after every round: kills fall into writing it, too."""

from omniinput_hpc.cli import run
from omniinput_hpc.runfile import side_checkpoint

side_checkpoint.EVERY, side_checkpoint.SHARE = 0.0, float("inf")
if __name__ == "__main__":
    raise SystemExit(run.main())
