"""A live run: its ranks, and when to kill them, seen in the run file within a millisecond."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from pathlib import Path

import h5py
from run_tools import ROOT, command, environment

TOKEN = "OMNIINPUT_KILL_CAMPAIGN"
POLL = 0.0002
PATIENCE = 600.0


class Live:
    """A run that was started; its ranks are found by a word in their environment.

    Parameters
    ----------
    module : what `python -m` runs: the program, or one that is wrong on purpose
    arguments : of the program, in place of an input file and settings
    """

    _count = 0

    def __init__(self, toml, words, n_ranks, module="omniinput_hpc", arguments=None):
        Live._count += 1
        self._token = f"{os.getpid()}-{Live._count}"
        settings = [part for word in words for part in ("--set", word)]
        self._process = subprocess.Popen(
            command(
                *([toml, *settings] if arguments is None else arguments),
                ranks=n_ranks,
                module=module,
                cold=True,
            ),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
            env={**environment(), TOKEN: self._token},
            cwd=ROOT,
            start_new_session=True,
        )

    def pid_by_rank(self, wanted=0):
        """Return the processes of the ranks that live, by rank; wait for so many of them."""
        while len(found := self._find()) < wanted and self.running():
            time.sleep(0.02)
        return found

    def _find(self):
        found = {}
        for folder in Path("/proc").iterdir():
            if not folder.name.isdigit():
                continue
            try:
                words = (folder / "environ").read_bytes().split(b"\0")
                python = b"python" in (folder / "cmdline").read_bytes().split(b"\0")[0]
            except OSError:  # it has ended, or is another user's
                continue
            if f"{TOKEN}={self._token}".encode() in words and python:
                names = dict(word.partition(b"=")[::2] for word in words)
                found[int(names.get(b"PMI_RANK", b"0"))] = int(folder.name)
        return found

    def kill(self, ranks, pid_by_rank):
        """Kill some ranks at once; return how many were there to be killed."""
        n = 0
        for rank in ranks:
            try:
                os.kill(pid_by_rank[rank], signal.SIGKILL)
                n += 1
            except ProcessLookupError:
                pass
        return n

    def running(self):
        return self._process.poll() is None

    def end(self, timeout=300.0):
        """Wait for the end; return the exit code and stderr, and see that no rank is left."""
        try:
            _, text = self._process.communicate(timeout=timeout)
        except subprocess.TimeoutExpired:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.communicate()
            raise AssertionError(f"the launcher did not end within {timeout:g} s") from None
        limit = time.monotonic() + 120
        while left := self.pid_by_rank():
            assert time.monotonic() < limit, f"ranks {sorted(left)} are left"
            time.sleep(0.02)
        return self._process.returncode, text


class Watch:
    """A number of a run file, read where it lies: a commit is seen as soon as it is made."""

    def __init__(self, path):
        with h5py.File(path, "r", locking=False) as file:
            self._counter = file["progress/rounds_committed"].id.get_offset()
            attempted = file["kernel/attempted"]
            self._attempted = attempted.id.get_offset()
            self._row = attempted.dtype.itemsize * attempted.shape[1] * attempted.shape[2]
        self._descriptor = os.open(path, os.O_RDONLY)

    def close(self):
        os.close(self._descriptor)

    def _number(self, offset):
        return int.from_bytes(os.pread(self._descriptor, 8, offset), "little")

    def committed(self):
        return self._number(self._counter)

    def begun(self, round_):
        """Whether the first rung's slab of a round holds something."""
        return self._number(self._attempted + round_ * self._row) != 0


def wait_until(condition, live, patience=PATIENCE):
    """Poll; return whether the condition came true while the run was going on."""
    limit = time.monotonic() + patience
    while not condition():
        if not live.running() or time.monotonic() > limit:
            return False
        time.sleep(POLL)
    return True
