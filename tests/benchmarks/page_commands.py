"""Run the commands of a page, one block after the other, and compare what they print with the page.

    .venv/bin/python tests/benchmarks/page_commands.py docs/questions.md [--from-block 1]

Blocks run in the root of the repository. Below each block stand its CPU minutes and, for each line
that the page shows as printed, the line that was printed: the same words, other numbers. "..." on
the page stands for anything. The exit status is 1 if a command failed, or a line was not printed.
"""

from __future__ import annotations

import argparse
import re
import resource
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
BLOCK = re.compile(r"^```(\w*)\n(.*?)^```", re.DOTALL | re.MULTILINE)
NUMBER = re.compile(r"[-+]?\\?\d[\d,]*(?:\\?\.\d+)?(?:e[-+]?\d+)?")
NEVER_PRINTED = "representatives"
"""The verb whose texts pages quote from its CSV."""


def words_of(line: str) -> re.Pattern[str]:
    """Return what a line with these words and any numbers matches; "..." matches anything."""
    parts = [NUMBER.sub("<n>", part) for part in line.strip().split("...")]
    number = r"[-+]?[\d,.]+(?:e[-+]?\d+)?"
    return re.compile(".*".join(re.escape(part).replace("<n>", number) for part in parts))


def cpu_minutes() -> float:
    """Return the CPU time of all commands that have ended, in minutes."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return (used.ru_utime + used.ru_stime) / 60


def run(language: str, code: str) -> str:
    """Return what a block prints; the commands go on after one that fails."""
    command = ["bash", "-c", code] if language == "sh" else [sys.executable, "-c", code]
    done = subprocess.run(
        command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    if done.returncode:
        print(f"  EXIT {done.returncode}:\n{done.stdout[-2000:]}")
    return done.stdout if not done.returncode else "FAILED\n" + done.stdout


def found(shown: str, printed: str) -> bool:
    """Return whether any line of a page was printed."""
    lines = [words_of(line) for line in shown.splitlines() if line.strip()]
    return any(line.search(one) for line in lines for one in printed.splitlines())


def compare(shown: str, printed: str) -> int:
    """Print each line of a page beside the line that was printed; return how many were not."""
    missing = 0
    for line in filter(str.strip, shown.splitlines()):
        pattern = words_of(line)
        same = [one for one in printed.splitlines() if pattern.search(one)]
        print(f"  page:    {line.strip()}\n  printed: {same[0].strip() if same else 'NOT PRINTED'}")
        missing += not same
    return missing


def main() -> int:
    """Run the page."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("page", type=Path)
    parser.add_argument("--from-block", type=int, default=1)
    options = parser.parse_args()
    printed, command, bad = "", "", 0
    for number, (language, code) in enumerate(BLOCK.findall(options.page.read_text()), start=1):
        if number < options.from_block:
            continue
        if language in ("sh", "python"):
            command, before = code, cpu_minutes()
            print(f"block {number}:\n{code.rstrip()}", flush=True)
            printed = run(language, code)
            bad += printed.startswith("FAILED")
            print(f"  {cpu_minutes() - before:.1f} CPU min", flush=True)
        elif not command:
            continue  # printed by a block that was left out
        elif NEVER_PRINTED in command.splitlines()[-1] and not found(code, printed):
            print(f"block {number} quotes a file\n{code.rstrip()}")
        else:
            bad += compare(code, printed)
    print(f"{bad} failed or not printed")
    return bool(bad)


if __name__ == "__main__":
    raise SystemExit(main())
