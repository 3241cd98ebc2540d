"""Makes the helpers beside these tests and the scripts importable."""

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
for folder in (
    "tests/annotation",
    "tests/estimators",
    "tests/analysis",
    "tests/models",
    "analysis",
):
    sys.path.insert(0, str(ROOT / folder))
