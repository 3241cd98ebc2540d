"""Lose a run's file in every way while it runs; see what the run says, and where its rounds are.

    .venv/bin/python tests/campaigns/lost_file/campaign.py [--ways "replaced by a copy"]

For each way of `ways.py` and both writers a run of 2 ranks is started, and its file is lost after a
few rounds. The run must end with exit code 1 before it counts more than the round that it was
writing, with one line that says what happened; a copy must not be written to; and where the line
says that the rounds are, they must be: put back, the run is finished, and its datasets must equal
those of a run whose file was never touched.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import sys
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

if __name__ == "__main__":
    TESTS = Path(__file__).resolve().parents[2]
    sys.path[:0] = [str(TESTS / "helpers"), str(TESTS / "campaigns")]

import h5py
from campaign_report import report
from kills.watching import Live, Watch, wait_until
from lost_file.ways import HARMLESS, WAYS, file_system, remount
from machine import may_mount
from run_tools import LATTICE, contents, run

ROUNDS = 30
ROUNDS_BEFORE = 2
WRITERS = ("mpio", "gather") if h5py.get_config().mpi else ("gather",)


class Campaign:
    """Loses files and looks at what became of the runs.

    Attributes
    ----------
    rows : a line of the table for each run
    problems : what went wrong, a line each
    """

    def __init__(self, folder, module="omniinput_hpc", n_ranks=2):
        self.folder, self.module, self.n_ranks = Path(folder), module, n_ranks
        self.rows: list[str] = []
        self.problems: list[str] = []
        self._number, self._lock = 0, threading.Lock()
        self.toml = self.folder / "lattice.toml"
        self.toml.write_text(LATTICE.format(output=self.folder / "whole.h5"))
        words = [w for word in self._words(0.0) for w in ("--set", word)]
        done = run(self.toml, *words)
        assert done.returncode == 0, done.stderr
        self.whole = contents(self.folder / "whole.h5")

    def _words(self, seconds):
        model = ["model.factory=slow_models:slow", f"model.options.seconds={seconds}"]
        return [f"run.rounds={ROUNDS}", *model]

    def lose(self, name, writer):
        """Lose the file of one run in one way."""
        way = WAYS.get(name) or HARMLESS[name]
        with self._lock:
            self._number += 1
            folder = self.folder / f"run-{self._number}"
        folder.mkdir()
        begin = time.monotonic()
        with file_system(folder) if way.mounted else contextlib.nullcontext():
            wrong = list(self._one(way, folder, writer, harmless=name in HARMLESS))
        seconds = time.monotonic() - begin
        with self._lock:
            self.rows.append(f"| {name} | {writer} | {'; '.join(wrong) or 'as it must be'} |")
            self.problems += [f"{name}, {writer}: {text}" for text in wrong]
        print(f"{name}, {writer}: {seconds:.0f} s", *wrong, file=sys.stderr)

    def _one(self, way, folder, writer, harmless):
        """Yield what was wrong."""
        path = way.at(folder)
        words = [*self._words(0.003), f"run.output={path}", f"run.writer={writer}"]
        live = Live(self.toml, words, self.n_ranks, self.module)
        if not wait_until(path.exists, live):
            code, text = live.end()
            yield f"the run did not start: exit code {code}, {text}"
            return
        watch = Watch(path)
        wait_until(lambda: watch.committed() >= ROUNDS_BEFORE, live)
        way.act(path)
        kept, copy = watch.committed(), _bytes(folder, way.copy_at)
        was_running = live.running()
        code, text = live.end()
        after = watch.committed() - kept
        watch.close()
        if not was_running:
            yield "the run had ended before its file was lost"
        elif harmless:
            if code != 0 or contents(path) != self.whole:
                yield f"exit code {code}: {text}"
        else:
            place = folder / way.rounds_at if way.rounds_at else path
            yield from _what_is_wrong(way, place, code, text)
            if after > 1:
                yield f"{after} rounds were counted after it"
            if copy != _bytes(folder, way.copy_at):
                yield "the copy was written to"
            if way.rounds_at and code == 1:
                yield from self._put_back(way, folder, words, kept)

    def _put_back(self, way, folder, words, kept):
        """Put the file back, finish the run, and compare."""
        path, place = way.at(folder), folder / way.rounds_at
        if way.mounted:
            remount(folder)
        else:
            path.parent.mkdir(exist_ok=True)
            os.replace(place, path)
        code, text = Live(self.toml, words, self.n_ranks).end(120)
        resumed = text.partition("resumes after ")[2].partition(" ")[0]
        if code != 0:
            yield f"put back, it cannot be resumed: exit code {code}, {text}"
        elif not resumed or int(resumed) < kept:
            yield f"of {kept} rounds the file put back has {resumed or 'none'}"
        elif contents(path) != self.whole:
            yield "put back and finished, it differs"


def _what_is_wrong(way, place, code, text):
    """Yield what is wrong with the end of a run whose file was lost."""
    if code != 1:
        yield f"exit code {code}"
    if "Traceback" in text:
        yield f"a traceback: {text}"
    if "complete: " in text or "stopped early" in text:
        yield "it says that it is complete, or that all is safe"
    parts = [part.format(place) for part in way.says]
    lines = [line for line in text.splitlines() if all(part in line for part in parts)]
    if len(lines) != 1:
        yield f"{len(lines)} lines say {parts}: {text[-600:]!r}"


def _bytes(folder, name):
    return (folder / name).read_bytes() if name else b""


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--ways", nargs="+", choices=[*WAYS, *HARMLESS], metavar="WAY")
    parser.add_argument("--jobs", type=int, default=2, help="runs at once")
    options = parser.parse_args()
    begin, mounts = time.monotonic(), may_mount()
    names = options.ways or [*WAYS, *HARMLESS]
    left_out = [n for n in names if n in WAYS and WAYS[n].mounted and not mounts]
    cases = [(name, writer) for name in names if name not in left_out for writer in WRITERS]
    with tempfile.TemporaryDirectory(prefix="omniinput-lost-") as folder:
        campaign = Campaign(folder)
        with ThreadPoolExecutor(options.jobs) as pool:
            list(pool.map(lambda case: campaign.lose(*case), cases))
    lines = ["| way | writer | the run's end |", "|" + " --- |" * 3, *sorted(campaign.rows)]
    lines += [f"NOT RUN  {name}: no right to mount here" for name in left_out]
    lines.append(f"{len(cases)} runs, {len(campaign.problems)} wrong")
    return report(lines, campaign.problems, begin)


if __name__ == "__main__":
    raise SystemExit(main())
