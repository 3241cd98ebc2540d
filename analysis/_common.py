"""Code that the scripts share; importing it lets them run without an installed package."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from omniinput_hpc.cli.scripts import run_script

__all__ = ["run_script"]
