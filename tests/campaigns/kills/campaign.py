"""Kill runs at every kind of moment, resume them, and check that nothing was lost.

    .venv/bin/python tests/campaigns/kills/campaign.py --kills 216

A run is started, killed, resumed, killed again, and so on, twelve times; at the end it is finished,
and its datasets must equal those of an uninterrupted run. After every kill the file must
open, hold as many rounds as were seen in it before, all of them byte-equal to those of the
uninterrupted run, and `--verify` must find nothing. A copy of it loses all its metadata, and must
come back as it was by its side file, which the run writes after every round.
"""

from __future__ import annotations

import argparse
import itertools
import random
import shutil
import sys
import tempfile
import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import h5py

if __name__ == "__main__":
    TESTS = Path(__file__).resolve().parents[2]
    sys.path[:0] = [str(TESTS / "helpers"), str(TESTS / "campaigns")]

import destroy
from campaign_report import report
from kills.watching import Live, Watch, wait_until
from run_tools import LATTICE, contents, run

from omniinput_hpc.cli.salvage import salvage_file
from omniinput_hpc.cli.verify import verify_file
from omniinput_hpc.errors import UserError
from omniinput_hpc.runfile import layout, side_checkpoint
from omniinput_hpc.runfile.reader import open_run

ROUNDS = 95
"""Rounds of a finished file."""
ROUNDS_AT_FIRST = 80
"""Rounds of a file before it grows."""
MOMENTS = {
    "at random": ("up to 150 ms after a round", 0.150),
    "after a commit": ("up to 2 ms after its end", 0.002),
    "in a commit": ("up to 2 ms after its first byte", 0.002),
    "in a checkpoint": ("up to 2 ms after RUN.h5.checkpoint.partial appears", 0.002),
    "in creation": ("up to 15 ms after RUN.h5.partial appears", 0.015),
    "in growth": ("up to 60 ms after RUN.h5.partial appears", 0.060),
}
"""Each with the delay, in words and in seconds; it is drawn uniformly."""
CHAIN = (
    "in creation", "in a commit", "at random", "in growth", "after a commit", "in a commit",
    "in a checkpoint", "in growth", "after a commit", "at random", "in growth", "in a checkpoint",
    "in a commit", "after a commit",
)  # fmt: skip
COLUMNS = ("kills", "halfway", "unreadable", "lost", "differing", "salvaged")


class Campaign:
    """Kills runs and counts what became of them.

    Attributes
    ----------
    table : by (moment, who was killed), counts of `COLUMNS`; "halfway" is how many kills came
        between the beginning and the end of a commit, a creation or a growth, "salvaged" how many
        files came back by their side file
    problems : what went wrong, a line each
    """

    def __init__(self, folder, seed, module="kills.often"):
        self.folder, self.module = Path(folder), module
        self.seed = seed
        self._lock = threading.Lock()
        self.table: dict[tuple[str, str], Counter] = {}
        self.problems: list[str] = []
        self.toml = self.folder / "lattice.toml"
        self.toml.write_text(LATTICE.format(output=self.folder / "run.h5"))
        self.whole = self.folder / "whole.h5"
        words = [f"run.output={self.whole}", f"run.rounds={ROUNDS}", *model(0.0)]
        done = run(self.toml, *(w for word in words for w in ("--set", word)))
        assert done.returncode == 0, done.stderr

    def chain(self, number, n_ranks, writer, slow, moments=CHAIN):
        """Kill one file's runs at these moments, finish it, and compare; chains may run at once."""
        generator = random.Random(f"{self.seed} {number}")
        path = self.folder / f"run-{number}.h5"
        words = [f"run.output={path}", f"run.writer={writer}", *model(slow)]
        planned = ROUNDS_AT_FIRST
        for moment in moments:
            planned = planned_rounds(path, planned) + (moment == "in growth")
            rank = generator.randrange(n_ranks)
            who = generator.choice([[rank], list(range(n_ranks))]) if n_ranks > 1 else [0]
            label = "all ranks" if len(who) == n_ranks else "one rank"
            words_now = [*words, f"run.rounds={planned}"]
            before = self._kill(path, words_now, n_ranks, moment, who, generator)
            if before is None:
                continue  # it was complete before the moment came
            found = {"kills": "", **dict(self._look(path, moment, before))}
            self._count((moment, label), found, f"{path.name}, {writer}, {n_ranks} ranks")
        live = Live(self.toml, [*words, f"run.rounds={ROUNDS}"], n_ranks, self.module)
        code, text = live.end(300)
        found = {"runs": ""}
        if code != 0:
            found["unreadable"] = f"could not be finished: exit code {code}, {text}"
        elif names := different(contents(path), contents(self.whole)):
            found["differing"] = f"in {names}"
        self._count(("finished at last", ""), found, path.name)

    def _count(self, label, found, where):
        with self._lock:
            counts = self.table.setdefault(label, Counter())
            for what, text in found.items():
                counts[what] += 1
                if text:
                    self.problems.append(f"{where}, {label[0]}, {label[1]}: {what}: {text}")

    @property
    def n_kills(self):
        return self.total("kills")

    def total(self, column):
        """Return a column's sum over all moments."""
        return sum(counts[column] for counts in self.table.values())

    def _kill(self, path, words, n_ranks, moment, who, generator):
        """Start a run and kill it; return the rounds seen before, None if there was no kill."""
        old = stamp(path)
        live = Live(self.toml, words, n_ranks, self.module)
        pids = live.pid_by_rank(n_ranks)
        of_file = {"in a checkpoint": layout.checkpoint_of(path)}.get(moment, path)
        partial = layout.partial_of(of_file)
        left_over = stamp(partial)
        making = moment in ("in creation", "in growth")
        lock = path.with_name(path.name + ".lock")
        stale = stamp(lock)
        started = wait_until(lambda: stamp(lock) not in (stale, (0, 0)), live)
        before, delay = 0, generator.uniform(0, MOMENTS[moment][1])
        if started and making:
            if path.exists():
                watch = Watch(path)
                before = watch.committed()
                watch.close()
            # Seen too late where it has its name already: the kill is then one at random.
            seen = (left_over, (0, 0))
            started = wait_until(
                lambda: stamp(partial) not in seen or stamp(path)[0] != old[0], live
            )
            time.sleep(delay)
        elif started and wait_until(lambda: path.exists() or not live.running(), live):
            watch = Watch(path)
            begin = watch.committed()
            n = begin + generator.randint(1, 3)
            if moment == "in a commit":
                started = wait_until(lambda: watch.begun(n), live)
            elif moment == "in a checkpoint":
                started = wait_until(lambda: watch.committed() >= n, live)
                seen = (left_over, (0, 0))
                started = started and wait_until(lambda: stamp(partial) not in seen, live)
            else:
                started = wait_until(lambda: watch.committed() >= n, live)
            time.sleep(delay)
            before = watch.committed()
            watch.close()
        killed = live.kill(who, pids) if started and live.running() else 0
        code, text = live.end()
        if code == 0 or not killed:
            assert code == 0, f"no moment to kill, and exit code {code}: {text}"
            return None
        return before

    def _look(self, path, moment, before):
        """Yield what a kill did to the file, as (column, words)."""
        partial = path.with_name(path.name + ".partial").exists()
        if not path.exists():
            if before:
                yield "unreadable", "the file is gone"
            if partial:
                yield "halfway", ""
            return
        try:
            with open_run(path) as left, h5py.File(self.whole, "r", locking=False) as whole:
                rounds = left.rounds
                if rounds < before:
                    yield "lost", f"{before} rounds were committed before, {rounds} are"
                fields = layout.layout(left.geometry)
                of_rounds = [name for name, field in fields.items() if field.per == "round"]
                with h5py.File(path, "r", locking=False) as file:
                    some = slice(0, rounds)
                    wrong = [
                        name
                        for name in of_rounds
                        if file[name][some].tobytes() != whole[name][some].tobytes()
                    ]
                if wrong:
                    yield "differing", f"in committed rounds: {wrong}"
                begun = (
                    rounds < left.rounds_planned and left.entry("kernel/attempted", rounds).any()
                )
                if begun if "commit" in moment or moment == "at random" else partial:
                    yield "halfway", ""
            if findings := verify_file(path)[1]:
                yield "differing", f"--verify: {findings}"
            yield from self._salvage(path, rounds, of_rounds)
        except (UserError, OSError) as error:
            yield "unreadable", str(error)

    def _salvage(self, path, rounds, of_rounds):
        """Destroy the metadata of a copy of a file, and salvage it by the side file."""
        folder = self.folder / f"salvage-{path.stem}"
        folder.mkdir()
        copy, new = folder / path.name, folder / "new.h5"
        try:
            with open_run(path) as left:
                if not layout.checkpoint_of(path).exists():
                    return  # killed before the first one
                if not side_checkpoint.read(path).is_of(side_checkpoint.of_run(left)):
                    return  # killed when the file had grown, before the next one
            for file in (path, layout.checkpoint_of(path)):
                shutil.copy(file, folder)
            destroy.all_metadata(copy)
            if (found := salvage_file(copy, new)) != ([], []):
                yield "differing", f"--salvage: {found}"
            with h5py.File(new, "r", locking=False) as there, h5py.File(self.whole) as whole:
                some = slice(0, rounds)
                if there["progress/rounds_committed"][0] != rounds:
                    yield "lost", "by --salvage"
                if any(there[n][some].tobytes() != whole[n][some].tobytes() for n in of_rounds):
                    yield "differing", "after --salvage"
            yield "salvaged", ""
        finally:
            shutil.rmtree(folder)

    def lines(self):
        """Return the table, a line each, in Markdown."""
        total: Counter = Counter()
        lines = [
            "| killed | who | " + " | ".join(COLUMNS) + " |",
            "|" + " --- |" * (2 + len(COLUMNS)),
        ]
        for (moment, who), counts in sorted(self.table.items()):
            if moment in MOMENTS:
                total += counts
                cells = " | ".join(str(counts[c]) for c in COLUMNS)
                lines.append(f"| {moment}: {MOMENTS[moment][0]} | {who} | {cells} |")
        lines.append("| all | | " + " | ".join(str(total[c]) for c in COLUMNS) + " |")
        end = self.table.get(("finished at last", ""), Counter())
        lines.append(
            f"{end['runs']} files finished at last: {end['unreadable']} could not be, "
            f"{end['differing']} differ from the run that nobody killed"
        )
        return lines


def model(seconds):
    """Return the settings of a model of which a part of the ranks is slower than the others."""
    return ["model.factory=kills.models:skewed", f"model.options.seconds={seconds}"]


def planned_rounds(path, otherwise):
    if not path.exists():
        return otherwise
    with open_run(path) as left:
        return left.rounds_planned


def stamp(path):
    """Return inode and time of change of a file, zeros without one."""
    try:
        found = path.stat()
    except FileNotFoundError:
        return 0, 0
    return found.st_ino, found.st_mtime_ns


def different(a, b):
    return sorted(name for name in a.keys() | b.keys() if a.get(name) != b.get(name))


def plan(number):
    """Return ranks, writer and slowness of a chain: all combinations in turn."""
    n_ranks = (2, 2, 2, 4)[(number // 4 + number) % 4]
    return n_ranks, ("mpio", "gather")[number % 2], (0.0, 0.002)[(number // 2) % 2]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--kills", type=int, default=216)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--jobs", type=int, default=2, help="files at once")
    options = parser.parse_args()
    begin = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="omniinput-kills-") as folder:
        campaign = Campaign(folder, options.seed)

        def some(first):
            for number in itertools.count(first, options.jobs):
                if campaign.n_kills >= options.kills:
                    return
                try:
                    campaign.chain(number, *plan(number))
                except AssertionError as error:  # a launcher or ranks that stay, a start that fails
                    campaign.problems.append(f"run-{number}.h5: {error}")
                seconds = time.monotonic() - begin
                print(f"{campaign.n_kills} kills after {seconds:.0f} s", file=sys.stderr)

        with ThreadPoolExecutor(options.jobs) as pool:
            list(pool.map(some, range(options.jobs)))
    for column in ("halfway", "salvaged"):
        if not campaign.total(column):
            campaign.problems.append(f"no kill counts as {column}: nothing of that was seen")
    return report(campaign.lines(), campaign.problems, begin)


if __name__ == "__main__":
    raise SystemExit(main())
