"""What the scripts share; importing it lets them work where the package is not installed, too."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from omniinput_hpc.cli.scripts import (
    add_key,
    add_range,
    add_score_options,
    add_shown_options,
    check_output,
    count,
    curve_options,
    new_parser,
    other_bins_of,
    positive_count,
    run_script,
    with_extra,
)

__all__ = [
    "add_key", "add_range", "add_score_options", "add_shown_options", "check_output", "count",
    "curve_options", "new_parser", "other_bins_of", "positive_count", "run_script", "with_extra",
]  # fmt: skip
