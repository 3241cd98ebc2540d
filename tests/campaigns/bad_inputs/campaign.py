"""Give every broken input to 4 ranks, and print what became of it and how long it took.

    .venv/bin/python tests/campaigns/bad_inputs/campaign.py

Each must end with exit code 2 and one plain message, within 3 seconds on a machine that does
nothing else, and leave no rank behind.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

if __name__ == "__main__":
    TESTS = Path(__file__).resolve().parents[2]
    sys.path[:0] = [str(TESTS / "helpers"), str(TESTS / "campaigns")]

from bad_inputs.table import cases, is_refused, left_alone, places
from kills.watching import Live

RANKS, LIMIT = 4, 3.0


def on_ranks(arguments, word, found, patience=300.0):
    """Give one case to the ranks; return seconds, and what is wrong ("" if nothing is)."""
    begin = time.monotonic()
    try:
        live = Live(None, (), RANKS, arguments=arguments)
        code, text = live.end(patience)  # sees that no rank is left
    except AssertionError as error:
        return time.monotonic() - begin, str(error)
    seconds = time.monotonic() - begin
    if not is_refused(code, text, word):
        return seconds, f"exit code {code}, without {word!r}: {text.strip()[-300:]}"
    return seconds, "" if left_alone(found) else "it made a file"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--jobs", type=int, default=1, help="inputs at once")
    options = parser.parse_args()
    begin = os.getloadavg()[0]
    print("| input | seconds | refused |\n| --- | --- | --- |")

    def one(case):
        seconds, problem = on_ranks(*case[1], found)
        shown = case[0].replace("|", "\\|")[:60]
        print(f"| `{shown}` | {seconds:.1f} | {problem or 'yes'} |", flush=True)
        return case[0], seconds, problem

    with tempfile.TemporaryDirectory(prefix="omniinput-bad-") as folder:
        found = places(folder)
        with ThreadPoolExecutor(options.jobs) as pool:
            rows = list(pool.map(one, cases(found).items()))
    wrong = [row for row in rows if row[2]]
    slow = [row for row in rows if row[1] > LIMIT]
    times = sorted(row[1] for row in rows)
    print(
        f"{len(rows)} inputs on {RANKS} ranks, {options.jobs} at once; {len(wrong)} not refused as "
        f"wanted; median {times[len(times) // 2]:.1f} s, longest {times[-1]:.1f} s, {len(slow)} "
        f"above {LIMIT:g} s; {os.cpu_count()} cores, load {begin:.1f} before and "
        f"{os.getloadavg()[0]:.1f} after"
    )
    return 1 if wrong else 0


if __name__ == "__main__":
    raise SystemExit(main())
