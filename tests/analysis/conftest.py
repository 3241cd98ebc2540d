"""Shared by the scripts' tests: the estimators' test model and the scripts are importable."""

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "tests" / "estimators"), str(ROOT / "analysis")]
