"""Fail each call in turn that writes a run file; see what the file then says that it holds.

    .venv/bin/python tests/campaigns/faults/campaign.py

Starts itself on 2 ranks with `shim.c` preloaded, which makes the C library's own `write`, `pwrite`,
`fsync` and the like fail. For each writer, each rank and each way to fail the calls of a commit
are counted, and then each of them fails in turn; the same for the creation and the growth of a
file. After each failure the file must hold every round that it claims, byte by byte, and resuming
must give the bytes of a file that no writer of the package has written.
"""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

HERE = Path(__file__).resolve().parent
if __name__ == "__main__":
    sys.path[:0] = [str(HERE.parents[1] / "helpers"), str(HERE.parent)]

import h5py  # noqa: E402
import numpy as np  # noqa: E402
from run_tools import command, contents, environment  # noqa: E402

MODES = {"N": "no space, from then on", "E": "I/O error, once", "S": "short write, once",
         "T": "short write, then no space"}  # fmt: skip
WRITERS = ("mpio", "gather")
TOML = '[run]\noutput = "a.h5"\nseed = 1\nrounds = {rounds}\n'
ROUNDS = 2
"""Of a file: the first is there, and the second is committed while calls fail."""
COLUMNS = ("calls", "failed", "noticed", "wrong")


def shim(folder):
    """Compile the shim; return its path. Needs a C compiler."""
    path = Path(folder) / "shim.so"
    words = ["cc", "-shared", "-fPIC", "-O1", "-o", str(path), str(HERE / "shim.c"), "-ldl"]
    subprocess.run(words, check=True, capture_output=True)
    return path


def launch(folder, library, modes="NEST", wrong="", ranks=2, every=1):
    """Run the campaign on some ranks, failing every n-th call; return the finished process."""
    more = [modes, every, *([wrong] if wrong else [])]
    words = command(folder, library, *more, ranks=ranks, module="faults.campaign", cold=True)
    preload = {**environment(), "LD_PRELOAD": str(library)}
    return subprocess.run(words, capture_output=True, text=True, timeout=1500, env=preload)


class Faults:
    """The campaign on this rank: all ranks do the same, and one of them has the failing disk."""

    def __init__(self, folder, library, world, modes, every=1):
        from omniinput_hpc.runfile import checksums, layout

        self.folder, self.world, self.store = Path(folder), world, layout
        self.modes, self.every, self.sums = modes, every, checksums
        self.lib = ctypes.CDLL(library)
        self.lib.fault_arm.argtypes = [ctypes.c_char_p, ctypes.c_long, ctypes.c_char]
        self.lib.fault_disarm.restype = ctypes.c_long
        self.table: dict[tuple[str, str], Counter] = {}
        self.problems: list[str] = []

    def geometry(self, rounds=ROUNDS):
        return self.store.Geometry(rounds, 4, 4, 6, 8, 3, 5, 1, checksums=True)

    def values(self, rungs, round_):
        """Return a rank's slabs of a round, filled with numbers that tell round and rung."""
        filled = {}
        for name, field in self.store.layout(self.geometry()).items():
            where = self.store.slab(field, round_, rungs, 4)
            shape = np.zeros(field.shape, dtype=np.int8)[where].shape if where else (0,)
            filled[name] = np.full(shape, 10 * (round_ + 1), dtype=field.dtype)
            if field.over != "bottom":  # that belongs to no rung, and rank 0 has it
                rung = np.arange(rungs.start, rungs.start + len(filled[name]))
                filled[name] += rung.reshape(-1, *[1] * (len(shape) - 1)).astype(field.dtype)
        return filled

    def make(self, path, rounds=ROUNDS):
        attributes = {"config": TOML.format(rounds=rounds), "model_fingerprint": "none"}
        first = self.store.first_values(np.arange(4.0), np.arange(7.0))
        self.store.create(path, self.geometry(rounds), first, attributes)

    def writer(self, kind, path):
        rungs = placement(4, self.world.size, self.world.rank)
        return writers.open_writer(kind, path, self.geometry(), rungs, self.world), rungs

    def fill(self, path, kind, rounds):
        """Commit some rounds."""
        writer, rungs = self.writer(kind, path)
        for round_ in rounds:
            writer.commit(round_, self.values(rungs, round_), round_ + 1)
        writer.close()

    def armed(self, path, n, mode, function):
        """Call a function with a disk that fails; return what it returns, and the calls."""
        self.lib.fault_arm(str(path).encode(), n, mode.encode())
        try:
            result = function()
        finally:
            calls = self.lib.fault_disarm()
        return result, calls

    def count(self, label, n, calls, noticed, problem):
        """Count what became of the failure of call n (-1: none failed), of so many."""
        counts = self.table.setdefault(label, Counter())
        if n < 0:
            counts["calls"] = calls
        counts["failed"] += 0 <= n < calls
        counts["noticed"] += noticed
        if problem:
            counts["wrong"] += 1
            self.problems.append(f"{label}: {problem}")

    def commits(self, kind):
        """Fail each call of a commit in turn, on each rank that writes."""
        path, whole, begun = (self.folder / f"{kind}-{n}.h5" for n in ("run", "whole", "begun"))
        for one, rounds in ((begun, 1), (whole, ROUNDS)):
            self.on_rank_0(lambda one=one: self.make(one))
            self.on_rank_0(lambda one=one, rounds=rounds: self.fill_alone(one, range(rounds)))
        for victim in range(self.world.size if kind == "mpio" else 1):
            for mode in self.modes:
                n, calls = -1, 0  # -1: to count the calls
                while n < calls:
                    seen = self.one_commit(kind, (path, whole, begun), victim, mode, n)
                    calls, n = max(seen, calls), n + self.every if n >= 0 else victim % self.every

    def one_commit(self, kind, paths, victim, mode, n):
        """Fail one call of a commit; return how many there were on that rank."""
        path, whole, begun = paths
        mine = self.world.rank == victim
        self.on_rank_0(lambda: path.write_bytes(begun.read_bytes()) and None)
        writer, rungs = self.writer(kind, path)
        values = self.values(rungs, 1)
        fine, seen = self.armed(
            path, n if mine else -1, mode, lambda: committed(writer, 1, values, ROUNDS)
        )
        calls = int(self.world.sum(np.array([seen if mine else 0]))[0])
        problem = self.world.on_rank_0(lambda: self.look(path, whole, fine))
        writer.close()  # a run ends without this, in MPI_Abort
        problem = problem or self.world.on_rank_0(lambda: self.look(path, whole, fine))
        left = self.world.on_rank_0(lambda: rounds_of(path))
        self.fill(path, kind, range(left, ROUNDS))
        if not problem and self.world.on_rank_0(lambda: contents(path) != contents(whole)):
            problem = "the run resumed from it differs"
        label = (f"a commit, {kind}, rank {victim}", MODES[mode])
        self.count(label, n, calls, not fine, problem and f"call {n}: {problem}")
        return calls

    def look(self, path, whole, fine):
        """Return what is wrong with a file of which one write failed, "" if nothing is."""
        try:
            with open_run(path, tried=True) as left, h5py.File(whole, "r", locking=False) as right:
                if not (1 if not fine else ROUNDS) <= left.rounds <= ROUNDS:
                    return f"it claims {left.rounds} rounds"
                for name, field in self.store.layout(self.geometry()).items():
                    if field.per == "round":
                        for r in range(left.rounds):
                            if not np.array_equal(left._file[name][r], right[name][r]):
                                return f"round {r} of {left.rounds}, {name} is not there"
                    elif "parity" in field.per and not name.startswith("checksum/"):
                        last = left.rounds - 1
                        expected = self.values(range(4), last)[name]
                        if not np.array_equal(left.slab(name, last), expected):
                            return f"{name} of round {left.rounds - 1} is not there"
        except (UserError, OSError) as error:
            return str(error)
        return ""

    def making(self, grows):
        """Fail each call of the creation or growth of a file in turn (rank 0 alone does these)."""
        path, whole = self.folder / "made.h5", self.folder / "whole-made.h5"
        old = self.folder / "old.h5"
        self.make(old)
        self.fill_alone(old, range(ROUNDS))
        self.make(whole, 7)
        if grows:
            self.fill_alone(whole, range(ROUNDS))
        for mode in self.modes:
            n, calls = -1, 0
            while n < calls:
                path.unlink(missing_ok=True)
                if grows:
                    path.write_bytes(old.read_bytes())
                noticed, seen = self.armed(
                    self.store.partial_of(path), n, mode, lambda: self.made(path, grows)
                )
                calls, problem = max(seen, calls), ""
                if noticed and grows and path.read_bytes() != old.read_bytes():
                    problem = "the old file has changed"
                if noticed and not grows and path.exists():
                    problem = "it has its name"
                if not noticed and contents(path) != contents(whole):
                    problem = "nobody noticed, and it is not whole"
                label = ("growth" if grows else "creation", MODES[mode])
                self.count(label, n, seen, noticed, problem and f"call {n}: {problem}")
                n = n + self.every if n >= 0 else 0

    def made(self, path, grows):
        try:
            if grows:
                self.store.grow(path, self.geometry(7), TOML.format(rounds=7))
            else:
                self.make(path, 7)
        except (OSError, RuntimeError):
            return True
        return False

    def fill_alone(self, path, rounds):
        """Write some rounds, with their checksums, without any writer of the package."""
        fields = self.store.layout(self.geometry())
        with h5py.File(path, "r+", locking=False) as file:
            for round_ in rounds:
                slabs = self.sums.with_sums(fields, round_, range(4), self.values(range(4), round_))
                for name, slab in slabs.items():
                    where = self.store.slab(fields[name], round_, range(4), 4)
                    if where is not None:
                        file[name][where] = slab
                self.sums.set_counter(file, "progress/rounds_committed", round_ + 1)

    def on_rank_0(self, function):
        self.world.on_rank_0(function)


def committed(writer, *arguments):
    try:
        writer.commit(*arguments)
    except writers.WriteError:
        return False
    return True


def rounds_of(path):
    with open_run(path, tried=True) as run:
        return run.rounds


def swap_ranks(writer):
    """Have rank 0 put each rank's slabs in the mirrored rank's place: wrong on purpose."""
    split = writer._split

    def swapped(self, round_, rungs, data):
        parts = split(self, round_, rungs, data)
        n = len(rungs)
        others = self._slabs(round_, range(4 - rungs.start - n, 4 - rungs.start))
        for name, ((where, part),) in parts.items():
            _, there = others.get(name, (None, where))
            same = self._fields[name].over == "rung"  # of the others ranks have not as many
            parts[name] = [(there if same else where, part)]
        return parts

    writer._split = swapped


def lines(table):
    """Return the table in Markdown, a line each."""
    yield "| place | failure | " + " | ".join(COLUMNS) + " |"
    yield "|" + " --- |" * 6
    for (place, mode), counts in table.items():
        yield f"| {place} | {mode} | " + " | ".join(str(counts[c]) for c in COLUMNS) + " |"


def on_this_rank(world, folder, library, modes, every, wrong=""):
    faults = Faults(folder, library, world, modes, int(every))
    if wrong == "count-first":
        import kills.wrong  # noqa: F401
    elif wrong == "swapped":
        swap_ranks(writers.GatherWriter)
    parallel = h5py.get_config().mpi and wrong != "swapped"
    for kind in WRITERS if parallel else ("gather",):
        faults.commits(kind)
    if world.rank == 0 and not wrong:
        for grows in (False, True):
            faults.making(grows)
    if world.rank == 0:
        print("\n".join([*lines(faults.table), *(f"WRONG  {p}" for p in faults.problems)]))
    world.barrier()
    return 1 if faults.problems else 0


def main():
    begin = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="omniinput-faults-") as folder:
        done = launch(folder, shim(folder))
    print(done.stdout + done.stderr[-3000:] + f"{time.monotonic() - begin:.0f} s")
    return done.returncode


if __name__ == "__main__":
    if "LD_PRELOAD" in os.environ and len(sys.argv) > 3:
        from omniinput_hpc.errors import UserError
        from omniinput_hpc.parallel.comm import World
        from omniinput_hpc.runfile import writers
        from omniinput_hpc.runfile.reader import open_run
        from omniinput_hpc.tempering.ladder import placement

        world = World()  # not where one rank has failed: that is collective
        try:
            raise SystemExit(on_this_rank(world, *sys.argv[1:]))
        except Exception as error:
            world.abort(error)
    raise SystemExit(main())
