"""Destroy the metadata of run files, bring their rounds back, and see that nothing was lost.

    .venv/bin/python tests/campaigns/salvage/campaign.py --files 20

A run (of several methods, on 1, 2 and 4 ranks, with both writers) is killed at a random moment, or
ends. Then what HDF5 needs to read its file is destroyed: the superblock, an object header, several,
or every byte that is no data. `--salvage` must bring back each round that was committed, byte by
byte; `--verify` must find nothing; and the new file, resumed to its end, must equal the file of the
same run that nothing happened to.
"""

from __future__ import annotations

import argparse
import random
import shutil
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

if __name__ == "__main__":
    TESTS = Path(__file__).resolve().parents[2]
    sys.path[:0] = [str(TESTS / "helpers"), str(TESTS / "campaigns")]

import destroy
from kills.campaign import different
from kills.watching import Live, Watch, wait_until
from run_tools import LATTICE, contents, run

from omniinput_hpc.cli.verify import verify_file
from omniinput_hpc.errors import UserError
from omniinput_hpc.runfile.layout import checkpoint_of, layout
from omniinput_hpc.runfile.reader import open_run

SLOW = ("model.factory=kills.models:skewed", "model.options.seconds=0.0", "run.rounds=40")
METHODS = {
    "parallel tempering": SLOW,
    "a tuned ladder": (*SLOW, "ladder.tune=true", "run.burn_in=12"),
    "replica-exchange Wang-Landau": (
        *SLOW, "sampler.method=wang-landau", "ladder.betas=[0.0]", "wang_landau.windows=3",
        "wang_landau.ln_f_last=0.1", "run.burn_in=12",
    ),
    "Gaussian rungs": (
        *SLOW, "ladder.kappa=[0.0, 2.0, 3.0, 0.0]", "ladder.z0=[0.0, 3.0, 1.5, 0.0]",
    ),
    "ancestral draws": (
        "run.rounds=40", "run.burn_in=0", "sampler.method=ancestral",
        "model.factory=markov_model:markov", "ladder.betas=[0.0, 2.5, 5.0, 7.0]",
        "samples.every=1", "bins.lower=0.0", "bins.upper=8.0",
    ),
}  # fmt: skip
LAUNCHES = ((1, "gather"), (2, "mpio"), (4, "mpio"), (2, "gather"))
DAMAGE = {
    "the superblock, zeros": lambda path, any_: destroy.superblock(path),
    "the superblock, noise": lambda path, any_: destroy.superblock(path, seed=1),
    "the root's object header": lambda path, any_: destroy.header(path, "/"),
    "a group's object header": lambda path, any_: destroy.header(path, any_.choice(GROUPS), 2),
    "a dataset's object header": lambda path, any_: destroy.header(path, any_.choice(DATASETS)),
    "all object headers": lambda path, any_: destroy.all_headers(path, seed=3),
    "every byte that is no data": lambda path, any_: destroy.all_metadata(path),
}
GROUPS = ("ladder", "histogram", "samples", "exchange", "state", "progress")
DATASETS = (
    "ladder/beta", "bins/edges", "histogram/counts", "samples/x", "samples/walker",
    "exchange/accepted", "kernel/attempted", "state/x", "progress/rounds_committed",
)  # fmt: skip
COLUMNS = ("files", "opened", "refused", "rounds", "lost", "wrong")


class Campaign:
    """Destroys files, salvages them, and counts what came back.

    Attributes
    ----------
    table : by damage, counts of `COLUMNS`: files that HDF5 opened nevertheless, that were not
        salvaged, committed rounds, those of them that were lost, files with anything else wrong
    problems : what went wrong, a line each
    """

    def __init__(self, folder, seed):
        self.folder, self.seed = Path(folder), seed
        self.table: dict[str, Counter] = {}
        self.problems: list[str] = []
        self.toml = self.folder / "lattice.toml"
        self.toml.write_text(LATTICE.format(output=self.folder / "run.h5"))
        self._whole: dict[str, Path] = {}

    def whole(self, method):
        """Return the file of a method's run that nothing happened to."""
        if method not in self._whole:
            path = self.folder / f"whole-{len(self._whole)}.h5"
            done = run(self.toml, *sets(*METHODS[method], f"run.output={path}"))
            assert done.returncode == 0, done.stderr
            self._whole[method] = path
        return self._whole[method]

    def one(self, number):
        """Make a file, destroy it, salvage and finish it."""
        any_ = random.Random(f"{self.seed} {number}")
        method, damage = (list(d)[number % len(d)] for d in (METHODS, DAMAGE))
        ranks, writer = LAUNCHES[number % len(LAUNCHES)]
        path, new = self.folder / f"old-{number}.h5", self.folder / f"new-{number}.h5"
        words = [*METHODS[method], f"run.writer={writer}"]
        self.begin(path, words, ranks, any_ if number % 5 else None)
        intact = shutil.copy(path, self.folder / f"intact-{number}.h5")
        DAMAGE[damage](path, any_)
        counts = self.table.setdefault(damage, Counter())
        with open_run(intact) as left:
            committed = left.rounds
        counts.update(files=1, rounds=committed, opened=opens(path))
        where = f"{path.name}, {method}, {writer}, {ranks} ranks, {damage}"
        found = list(self.look(path, intact, new, committed))
        if not found:
            done = run(new, *sets("run.rounds=40", f"run.writer={writer}"), ranks=ranks)
            if done.returncode != 0:
                found.append(("wrong", f"it cannot be finished: {done.stderr}"))
            elif names := different(contents(new), contents(self.whole(method))):
                found.append(("wrong", f"finished, it differs in {names}"))
        for column, words in found:
            counts[column] += committed if column == "refused" else 1
            self.problems.append(f"{where}: {column}: {words}")
        for file in self.folder.glob(f"*-{number}.h5*"):
            file.unlink()

    def begin(self, path, words, ranks, any_):
        """Sample a run: to its end, or until it is killed some rounds after its creation."""
        live = Live(self.toml, [*words, f"run.output={path}"], ranks)
        if any_ is not None:
            pids = live.pid_by_rank(ranks)
            if wait_until(lambda: path.exists() and checkpoint_of(path).exists(), live):
                watch, n = Watch(path), any_.randrange(20)
                wait_until(lambda: watch.committed() >= n, live)
                time.sleep(any_.uniform(0, 0.02))
                watch.close()
                live.kill(range(ranks), pids)
        code, text = live.end(300)
        assert any_ is not None or code == 0, text

    def look(self, path, intact, new, committed):
        """Salvage a file; yield what is not as it was, as (column, words)."""
        before = path.read_bytes()
        done = run(path, "--salvage", new)
        if done.returncode != 0 or "all agrees" not in done.stdout:
            yield "refused", f"exit code {done.returncode}: {done.stdout}{done.stderr}"
            return
        if path.read_bytes() != before:
            yield "wrong", "the old file was changed"
        with open_run(new) as there:
            if there.rounds != committed:
                yield "lost", f"{there.rounds} of {committed} rounds are there"
        if names := different(of_rounds(new, committed), of_rounds(intact, committed)):
            yield "wrong", f"it differs in {names}"
        if findings := verify_file(new)[1]:
            yield "wrong", f"--verify: {findings}"

    def lines(self):
        """Return the table, a line each, in Markdown."""
        total: Counter = Counter()
        lines = ["| destroyed | " + " | ".join(COLUMNS) + " |", "|" + " --- |" * 7]
        for damage, counts in self.table.items():
            total += counts
            lines.append(f"| {damage} | " + " | ".join(str(counts[c]) for c in COLUMNS) + " |")
        return [*lines, "| all | " + " | ".join(str(total[c]) for c in COLUMNS) + " |"]


def of_rounds(path, rounds):
    """Return the bytes of the committed rounds, and of what was written at creation, by name."""
    with open_run(path) as there:
        return {
            name: there.entry(name, slice(rounds) if field.per == "round" else None).tobytes()
            for name, field in layout(there.geometry).items()
            if field.per in ("round", "once")
        }


def sets(*words):
    return [part for word in words for part in ("--set", word)]


def opens(path):
    """Whether a file can be read as if nothing had happened to it."""
    try:
        with open_run(path):
            return True
    except UserError:
        return False


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--files", type=int, default=20)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    begin = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="omniinput-salvage-") as folder:
        campaign = Campaign(folder, options.seed)
        for number in range(options.files):
            campaign.one(number)
            print(f"{number + 1} files, {time.monotonic() - begin:.0f} s", file=sys.stderr)
    print("\n".join(campaign.lines()))
    for problem in campaign.problems:
        print(f"WRONG  {problem}")
    print(f"{(time.monotonic() - begin) / 60:.1f} min")
    return 1 if campaign.problems else 0


if __name__ == "__main__":
    raise SystemExit(main())
