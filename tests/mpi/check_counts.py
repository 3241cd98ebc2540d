"""Fail unless every MPI test that fits ran, and passed, on every rank.

``mpirun pytest`` without ``--with-mpi`` skips all MPI tests and exits 0, and a test that wants more
ranks than there are skips silently. So one process collects the tests and reads which size each
wants, and these are compared with what every rank's junit file says has passed::

    python tests/mpi/check_counts.py REPORTS SIZE... [--left-out PATH...]

reads ``REPORTS/mpi-SIZE/rank-R.xml`` for R = 0 .. SIZE - 1 and ``REPORTS/serial.xml``, which must
hold tests of every file but those left out. Files after ``--largest-only`` were run on the largest
size alone. A serial test may be skipped if only root can provide
what it needs (`MAY_BE_MISSING`); the last line says how many were.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import xml.etree.ElementTree as ET
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

HERE = Path(__file__).resolve().parent
RUN_APART = {"gpu", "mpi", "slurm", "wheels"}
MAY_BE_MISSING = {
    "no right to mount a file system here",
    "no overlay file system here",
    "chromium and chromium-driver are not installed",
}


def pytest_collection_finish(session):
    """Write what was collected (pytest's hook: ``collect`` loads this file as a plugin)."""
    min_sizes = {
        # As pytest-mpi: each mpi mark, the class's and module's included, can skip the test.
        test.nodeid: max(
            [mark.kwargs.get("min_size") or 1 for mark in test.iter_markers("mpi")], default=1
        )
        for test in session.items
    }
    Path(os.environ["OMNIINPUT_COLLECTED"]).write_text(json.dumps(min_sizes))


def collect(folder: Path) -> dict[str, int]:
    """Return the smallest world size that each test in `folder` runs on, by its node id."""
    with tempfile.NamedTemporaryFile() as file:
        search_path = os.pathsep.join(filter(None, [str(HERE), os.environ.get("PYTHONPATH")]))
        options = ["--collect-only", "-q", "-p", "check_counts", "-p", "no:cacheprovider"]
        done = subprocess.run(
            [sys.executable, "-m", "pytest", *options, str(folder)],
            env={**os.environ, "PYTHONPATH": search_path, "OMNIINPUT_COLLECTED": file.name},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        if done.returncode != 0:
            sys.exit(f"{done.stdout}\nerror: cannot collect the tests in {folder}")
        return json.loads(Path(file.name).read_text())


def junit_name(node_id: str) -> str:
    """Return how a junit file names a test: its class name and name, joined by a dot."""
    address, bracket, parameters = node_id.partition("[")
    path, *names = address.split("::")
    return ".".join([path.removesuffix(".py").replace("/", "."), *names]) + bracket + parameters


def outcomes(path: Path) -> tuple[set[str], set[str]]:
    """Return the names of the tests that passed, and of those that failed or ended in an error."""
    passed, bad = set(), set()
    for case in ET.parse(path).iter("testcase"):
        name = f"{case.get('classname')}.{case.get('name')}"
        if case.find("failure") is not None or case.find("error") is not None:
            bad.add(name)
        elif case.find("skipped") is None:
            passed.add(name)
    return passed - bad, bad


def skips(report: Path) -> Counter[str]:
    """Return how many tests of a junit file were skipped, or expected to fail, by reason."""
    return Counter(e.get("message", "") for e in ET.parse(report).iter("skipped"))


def a_few(names: set[str]) -> str:
    """Return the first few of `names` as one line."""
    return ", ".join(sorted(names)[:5]) + ", ..." * (len(names) > 5)


def problems_of_size(folder: Path, size: int, fitting: list[str]) -> list[str]:
    """Return what is wrong with the reports of one world size; nothing is an empty list."""
    problems = []
    if not fitting:
        problems.append("no test fits this size")
    for rank in range(size):
        try:
            passed, bad = outcomes(folder / f"rank-{rank}.xml")
        except (FileNotFoundError, ET.ParseError):
            problems.append(f"rank {rank}: no junit file, or a broken one: it hung or crashed")
            continue
        if bad:
            problems.append(f"rank {rank}: {len(bad)} failed: {a_few(bad)}")
        if len(passed) != len(fitting):
            missing = {junit_name(node_id) for node_id in fitting} - passed
            problems.append(
                f"rank {rank}: {len(passed)} passed of {len(fitting)} that fit this size;"
                f" not passed: {a_few(missing)}"
            )
    return problems


def problems_of_serial(report: Path, left_out: list[str]) -> list[str]:
    """Return which files of serial tests a report lacks; `left_out` are files and folders."""
    cases = ET.parse(report).iter("testcase")
    # of a module that skips itself only the name is given
    ran = {case.get("classname") or case.get("name") or "" for case in cases}
    problems = []
    for path in sorted(HERE.parent.rglob("test_*.py")):
        file = path.relative_to(HERE.parents[1])
        apart = path.relative_to(HERE.parent).parts[0] in RUN_APART
        if apart or any(file.is_relative_to(some) for some in left_out):
            continue
        name = junit_name(str(file))
        if not any(c == name or c.startswith(name + ".") for c in ran):
            problems.append(f"no test of {file} was run")
    return problems


def main(
    reports: Path, sizes: list[int], left_out: list[str], largest_only: Sequence[str] = ()
) -> int:
    """Check all sizes; the last line printed is the summary for the end of the test run."""
    min_sizes = collect(HERE)
    problems = [
        f"{node_id} wants {wanted} ranks and is never run (the largest size is {max(sizes)})"
        for node_id, wanted in min_sizes.items()
        if wanted > max(sizes)
    ]
    counts = []
    for size in sizes:
        fitting = [
            node_id
            for node_id, wanted in min_sizes.items()
            if wanted <= size
            and (size == max(sizes) or node_id.partition("::")[0] not in largest_only)
        ]
        counts.append(len(fitting))
        found = problems_of_size(reports / f"mpi-{size}", size, fitting)
        verdict = "see the errors below" if found else "all passed on every rank"
        print(f"{size} ranks: {len(fitting)} tests fit; {verdict}")
        problems += [f"{size} ranks, {problem}" for problem in found]
    serial_report = reports / "serial.xml"
    problems += problems_of_serial(serial_report, left_out)
    skipped = skips(serial_report)
    problems += [
        f"{count} serial tests were skipped: {reason}"
        for reason, count in skipped.items()
        if reason not in MAY_BE_MISSING
    ]
    for problem in problems:
        print("error:", problem)
    if problems:
        return 1
    serial = len(outcomes(serial_report)[0])
    by_size = ", ".join(f"{count} on {size}" for size, count in zip(sizes, counts, strict=True))
    words = [f"{serial + sum(counts)} passed: {serial} serial; under MPI {by_size} ranks"]
    words += [f"{count} skipped: {reason}" for reason, count in skipped.items()]
    print("; ".join(words))
    return 0


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("reports", type=Path)
    parser.add_argument("sizes", type=int, nargs="+")
    parser.add_argument("--left-out", nargs="+", default=[], metavar="PATH")
    parser.add_argument("--largest-only", nargs="+", default=[], metavar="FILE")
    options = parser.parse_args()
    sys.exit(main(options.reports, options.sizes, options.left_out, options.largest_only))
