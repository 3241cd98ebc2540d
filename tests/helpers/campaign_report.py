"""How a campaign ends: its table, what was wrong, how long it took."""

from __future__ import annotations

import time


def report(lines, problems, begin):
    """Print the lines of a table and each problem; return the exit code, 1 where there is one."""
    print("\n".join(lines))
    for problem in problems:
        print(f"WRONG  {problem}")
    print(f"{(time.monotonic() - begin) / 60:.1f} min")
    return 1 if problems else 0
