"""Destroy the metadata of run files, bring their rounds back, and see that nothing was lost.

    .venv/bin/python tests/campaigns/salvage/campaign.py --files 20

A run of one of several methods, with either writer, is left as it is at a random move, or runs to
its end; some are of 2 and 4 ranks, and are killed. Then what HDF5 needs to read the file is
destroyed: the superblock, an object header, several, or every byte that is no data. `--salvage`
must bring back each round that was committed, byte by byte; `--verify` must find nothing; and the
new file, resumed to its end, must equal the file of the same run that nothing happened to.
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
import torch
from campaign_report import report
from kills.campaign import different
from kills.watching import Live, Watch, wait_until
from run_tools import LATTICE, contents
from runs_in_progress import begin, config_of

from omniinput_hpc.cli.salvage import salvage_file
from omniinput_hpc.cli.verify import verify_file
from omniinput_hpc.errors import UserError
from omniinput_hpc.runfile.layout import checkpoint_of, layout
from omniinput_hpc.runfile.reader import open_run
from omniinput_hpc.sampling import loop
from omniinput_hpc.sampling.restart import find_existing

ROUNDS = 12
METHODS = {
    "parallel tempering": (),
    "a tuned ladder": ("ladder.tune=true", "run.burn_in=12"),
    "replica-exchange Wang-Landau": (
        "sampler.method=wang-landau", "ladder.betas=[0.0]", "wang_landau.windows=3",
        "wang_landau.ln_f_last=0.1", "run.burn_in=12",
    ),
    "Gaussian rungs": ("ladder.kappa=[0.0, 2.0, 3.0, 0.0]", "ladder.z0=[0.0, 3.0, 1.5, 0.0]"),
    "ancestral draws": (
        "run.burn_in=0", "sampler.method=ancestral", "model.factory=markov_model:markov",
        "ladder.betas=[0.0, 2.5, 5.0, 7.0]", "samples.every=1", "bins.lower=0.0", "bins.upper=8.0",
    ),
}  # fmt: skip
IN_PROCESSES = {4: (2, "mpio"), 9: (4, "mpio"), 14: (2, "gather"), 19: (4, "gather")}
"""Of each twenty files: those of runs of several ranks, which are killed."""
SLOW = ("model.factory=kills.models:skewed", "model.options.seconds=0.0")
"""Their model, so that there is a time to kill them; its outputs are the lattice's."""
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
COLUMNS = ("files", "readable", "salvaged", "rounds", "lost", "wrong")


class Campaign:
    """Destroys files, salvages them, and counts what came back.

    Attributes
    ----------
    table : by damage, counts of `COLUMNS`: files that could be read nevertheless, that were
        salvaged, committed rounds, those of them that were lost, files with anything else wrong
    problems : what went wrong, a line each
    """

    def __init__(self, folder, seed):
        self.folder, self.seed = Path(folder), seed
        self.table: dict[str, Counter] = {}
        self.problems: list[str] = []
        self._whole: dict[str, Path] = {}

    def whole(self, method):
        """Return the file of a method's run that nothing happened to."""
        if method not in self._whole:
            folder = self.folder / f"whole-{len(self._whole)}"
            sample(folder, METHODS[method])
            self._whole[method] = folder / "run.h5"
        return self._whole[method]

    def one(self, number):
        """Make a file, destroy it, salvage and finish it."""
        any_ = random.Random(f"{self.seed} {number}")
        methods, damages = list(METHODS), list(DAMAGE)
        method, damage = methods[number % len(methods)], damages[number % len(damages)]
        old = self.folder / f"old-{number}"
        if number % 20 in IN_PROCESSES:
            method, (ranks, writer) = methods[number % 2], IN_PROCESSES[number % 20]
            changes = (*METHODS[method], *SLOW)
            kill(old, changes, ranks, writer, any_)
        else:
            ranks, writer, changes = 1, any_.choice(["mpio", "gather"]), METHODS[method]
            sample(old, changes, writer, any_ if number % 6 else None)
        path, intact = old / "run.h5", Path(shutil.copy(old / "run.h5", old / "intact.h5"))
        DAMAGE[damage](path, any_)
        counts = self.table.setdefault(damage, Counter())
        with open_run(intact) as left:
            committed = left.rounds
        counts.update(files=1, rounds=committed, readable=int(can_be_read(path)))
        for column, words in self.look(path, intact, method, changes):
            counts[column] += 1
            if words:
                where = f"{path}, {method}, {writer}, {ranks} ranks, {damage}"
                self.problems.append(f"{where}: {column}: {words}")
        shutil.rmtree(old)

    def look(self, path, intact, method, changes):
        """Salvage and finish a file; yield what becomes of it, as (column, words)."""
        with open_run(intact) as left:
            committed = left.rounds
        before, new = path.read_bytes(), path.with_name("new.h5")
        try:
            notes, findings = salvage_file(path, new)
        except UserError as error:
            yield "wrong", str(error)
            return
        yield "salvaged", ""
        if notes or findings or verify_file(new)[1]:
            yield "wrong", f"{notes} {findings} {verify_file(new)[1]}"
        if path.read_bytes() != before:
            yield "wrong", "the old file was changed"
        with open_run(new) as there:
            if there.rounds != committed:
                yield "lost", f"{there.rounds} of {committed} rounds are there"
        if names := different(of_rounds(new, committed), of_rounds(intact, committed)):
            yield "wrong", f"it differs in {names}"
        more = path.parent / "more"
        more.mkdir()
        new.rename(more / "run.h5")
        sample(more, changes)
        if names := different(contents(more / "run.h5"), contents(self.whole(method))):
            yield "wrong", f"finished, it differs in {names}"

    def lines(self):
        """Return the table, a line each, in Markdown."""
        total: Counter = Counter()
        lines = ["| destroyed | " + " | ".join(COLUMNS) + " |", "|" + " --- |" * 7]
        for damage, counts in self.table.items():
            total += counts
            lines.append(f"| {damage} | " + " | ".join(str(counts[c]) for c in COLUMNS) + " |")
        return [*lines, "| all | " + " | ".join(str(total[c]) for c in COLUMNS) + " |"]


def sample(folder, changes, writer="gather", any_=None):
    """Sample run.h5 of a folder to its end; with `any_`, leave the files as at a random move.

    What a killed run leaves are its files as they are at that moment.
    """
    config = config_of(folder, *changes, f"run.rounds={ROUNDS}")
    path, fingerprint = folder / "run.h5", ""
    if path.exists():
        with open_run(path) as left:
            fingerprint = left.fingerprint
    run = begin(config, find_existing(config, fingerprint, "auto"), writer=writer)
    left, after_move = folder / "left", run.stopping.after_move
    moves = (config.run.rounds + config.run.burn_in) * config.sampler.moves_per_round * 4
    countdown = [any_.randrange(moves) if any_ else -1]

    def counted():
        after_move()
        if countdown[0] == 0:
            left.mkdir()
            for file in (path, checkpoint_of(path)):
                shutil.copy(file, left)
        countdown[0] -= 1

    run.stopping.after_move = counted
    loop.sample(run)
    run.writer.close()
    run.progress.close()
    if any_ is not None:
        for file in left.iterdir():
            file.replace(folder / file.name)


def kill(folder, changes, ranks, writer, any_):
    """Sample run.h5 of a folder on some ranks, and kill them some rounds after its creation."""
    folder.mkdir()
    toml, path = folder / "lattice.toml", folder / "run.h5"
    toml.write_text(LATTICE.format(output=path))
    words = (*changes, f"run.rounds={ROUNDS}", f"run.writer={writer}")
    live = Live(toml, words, ranks)
    pids = live.pid_by_rank(ranks)
    if wait_until(lambda: path.exists() and checkpoint_of(path).exists(), live):
        watch, n = Watch(path), any_.randrange(ROUNDS)
        wait_until(lambda: watch.committed() >= n, live)
        time.sleep(any_.uniform(0, 0.02))
        watch.close()
        live.kill(range(ranks), pids)
    live.end(300)


def of_rounds(path, rounds):
    """Return the bytes of the committed rounds, and of what was written at creation, by name."""
    with open_run(path) as there:
        return {
            name: there.entry(name, slice(rounds) if field.per == "round" else None).tobytes()
            for name, field in layout(there.geometry).items()
            if field.per in ("round", "once")
        }


def can_be_read(path):
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
    torch.set_num_threads(1)
    begin_ = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="omniinput-salvage-") as folder:
        campaign = Campaign(folder, options.seed)
        for number in range(options.files):
            campaign.one(number)
            print(f"{number + 1} files, {time.monotonic() - begin_:.0f} s", file=sys.stderr)
    return report(campaign.lines(), campaign.problems, begin_)


if __name__ == "__main__":
    raise SystemExit(main())
