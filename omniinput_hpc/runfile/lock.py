"""The lock RUN.h5.lock, which prevents two jobs from writing the same run file.

flock is unreliable on Lustre and NFS, so the lock is a small file that names its owner. It is
created with O_EXCL, gets a heartbeat (a new modification time) during the run, and is removed at
the end. A killed run leaves it behind; the next run takes over the lock if its owner is known to be
gone (see `why_stale`).

To replace or remove a lock, a process first creates a claim: a file, also made with O_EXCL, whose
name is a hash of the lock's text. Then it reads the lock again. One rename turns the claim into the
lock, so that only one of several processes wins. If a suspended owner loses its lock in this way,
it notices before its next commit (`RunLock.keep`).
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import secrets
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from omniinput_hpc.errors import StopRun, UserError
from omniinput_hpc.text import duration

if TYPE_CHECKING:
    from omniinput_hpc.parallel.alone import Ranks

log = logging.getLogger("omniinput_hpc")

STALE_AFTER = 600.0
"""Seconds without a heartbeat after which another job may take over the lock."""
HEARTBEAT_EVERY = 30.0
UNFINISHED_AFTER = 10.0
"""Seconds after which an incomplete lock, or a claim, counts as left by a killed process."""
_POLL_SECONDS = 0.02


class LockLost(Exception):
    """Another run has taken over the lock; this run must not write any more."""


@dataclass(frozen=True)
class Owner:
    """The process that holds a lock."""

    job: str  # SLURM's job id, "" outside SLURM
    restarts: int  # how often the job was requeued
    host: str  # of rank 0, as is the pid
    pid: int
    started: str  # start time of the process, since pids are reused
    namespace: str  # pid namespace; pids of another container are meaningless here
    boot: str  # the host's boot id
    token: str  # random, so that no two locks are equal

    @property
    def text(self) -> str:
        """The content of the lock file."""
        return json.dumps(asdict(self), indent=1) + "\n"

    @property
    def description(self) -> str:
        """The owner in words, for messages."""
        job = f", SLURM job {self.job}" if self.job else ""
        return f"process {self.pid} on host {self.host}{job}"


def this_process() -> Owner:
    """Return this process as an owner."""
    pid = os.getpid()
    restarts = os.environ.get("SLURM_RESTART_COUNT", "")
    namespace, boot = Path("/proc/self/ns/pid"), Path("/proc/sys/kernel/random/boot_id")
    return Owner(
        job=os.environ.get("SLURM_JOB_ID", ""),
        restarts=int(restarts) if restarts.isdigit() else 0,
        host=socket.gethostname(),
        pid=pid,
        started=_process(pid)[1],
        namespace=os.readlink(namespace) if namespace.is_symlink() else "",
        boot=boot.read_text(encoding="ascii").strip() if boot.exists() else "",
        token=secrets.token_hex(8),
    )


def parse(text: str) -> Owner | None:
    """Return the owner that a lock's text names; None if the text is incomplete or damaged."""
    try:
        owner = Owner(**json.loads(text))
    except (ValueError, TypeError, RecursionError):
        return None
    numbers = ("restarts", "pid")
    valid = all(isinstance(v, int if k in numbers else str) for k, v in asdict(owner).items())
    return owner if valid and 0 < owner.pid < 2**31 else None


def why_stale(owner: Owner | None, age: float, me: Owner) -> str | None:
    """Return why a lock is stale; None if it is valid.

    owner : None if the lock is incomplete or damaged
    age : seconds since the last heartbeat, by the clock of the file system
    """
    if owner is None:
        return "it was never completed" if age > UNFINISHED_AFTER else None
    if owner.job and owner.job == me.job and owner.restarts < me.restarts:
        return "the job has been requeued since"
    if owner.host == me.host:
        # If the last heartbeat came after this host booted, the owner's host only shares its name.
        if owner.boot != me.boot and age > _seconds_since_boot():
            return "the host has been restarted since"
        if (owner.boot, owner.namespace) == (me.boot, me.namespace) and not _is_alive(owner):
            return "that process has ended"
    return f"no heartbeat for {duration(age)}" if age > STALE_AFTER else None


def _is_alive(owner: Owner) -> bool:
    try:
        os.kill(owner.pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass  # it belongs to another user
    state, started = _process(owner.pid)
    return state not in ("Z", "X") and started in ("", owner.started)


def _process(pid: int) -> tuple[str, str]:
    """Return the state and start time of a process; "" if they cannot be read."""
    try:
        line = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return "", ""
    fields = line.rpartition(")")[2].split()  # the program's name may contain spaces
    return fields[0], fields[19]


def _seconds_since_boot() -> float:
    clock = getattr(time, "CLOCK_BOOTTIME", None)
    return STALE_AFTER if clock is None else time.clock_gettime(clock)


class RunLock:
    """The lock of one run file.

    Parameters
    ----------
    output : the run file; symbolic links are followed
    acting : whether this rank takes the lock and keeps it alive (rank 0); any rank may release it
    key : the key of the input file that names `output`, for messages; "" if there is none

    Attributes
    ----------
    path : the lock file
    text : its content, while this run holds it
    """

    def __init__(self, output: Path, acting: bool = True, key: str = "run.output") -> None:
        target = Path(os.path.realpath(output))
        self.output, self._acting, self._key = output, acting, key
        self.path = target.with_name(target.name + ".lock")
        self.text = ""
        self._last_heartbeat = time.monotonic()

    def take(self) -> str:
        """Take the lock and return its text.

        Raises a UserError if another run holds it or it cannot be made.
        """
        me = this_process()
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            while not (_create(self.path, me.text) or self._take_over(me)):
                time.sleep(_POLL_SECONDS)
        except OSError as error:
            reason = error.strerror or str(error)
            raise UserError(f"the lock {self.path} cannot be created: {reason}") from None
        self.text, self._last_heartbeat = me.text, time.monotonic()
        return self.text

    def _take_over(self, me: Owner) -> bool:
        """Take over a stale lock, or raise a UserError; False if the lock changed: try again."""
        seen = _read(self.path)
        if seen is None or not _claim(self.path, seen, me.text):
            return False
        claim, taken = _claim_of(self.path, seen), False
        try:
            if _read(self.path) != seen:
                return False
            age = claim.stat().st_mtime - self.path.stat().st_mtime
            owner = parse(seen)
            reason = why_stale(owner, age, me)
            if reason is not None:
                os.rename(claim, self.path)
                taken = True
                name = owner.description if owner is not None else "an unknown process"
                log.info("taking over the lock %s of %s: %s", self.path, name, reason)
            elif owner is not None:
                raise UserError(self.refusal(owner, age))
        except FileNotFoundError:  # released just now
            return False
        finally:
            if not taken:
                claim.unlink(missing_ok=True)
        return taken

    def refusal(self, owner: Owner, age: float) -> str:
        """Return the message for a second run on the same file."""
        name = f"{self._key} = {self.output}" if self._key else f"{self.output}"
        choice = f", or choose another {self._key}" if self._key else ""
        return (
            f"{name} is being written by another run: {owner.description} (last heartbeat "
            f"{duration(max(age, 0))} ago). Wait until it ends{choice}; if you know that it has "
            f"ended, remove {self.path} (without a heartbeat, the lock expires after "
            f"{duration(STALE_AFTER)})"
        )

    def heartbeat(self) -> None:
        """Renew the lock if the last heartbeat is `HEARTBEAT_EVERY` seconds old; call it often."""
        if time.monotonic() - self._last_heartbeat >= HEARTBEAT_EVERY:
            self.keep()

    def keep(self) -> bool:
        """Renew the lock now; return whether this run still holds it."""
        if not self._acting:
            return True
        self._last_heartbeat = time.monotonic()
        try:
            seen = _read(self.path)
            if seen is None:
                log.warning("warning: %s was removed; creating it again", self.path)
                return _create(self.path, self.text)
            if seen == self.text:
                os.utime(self.path)
        except OSError as error:
            log.warning("warning: the lock %s cannot be renewed: %s", self.path, error.strerror)
            return True
        return seen == self.text

    def is_taken(self) -> bool:
        """Return whether another run holds the lock now."""
        with suppress(OSError):
            return self._acting and _read(self.path) not in (None, self.text)
        return False

    def lost(self) -> LockLost:
        """Return the exception that names the lock's new owner."""
        owner = parse(_read(self.path) or "")
        name = owner.description if owner is not None else "another run"
        return LockLost(
            f"{name} has taken over {self.path}: this run was requeued, or had no heartbeat for "
            f"more than {duration(STALE_AFTER)}; it writes nothing more"
        )

    def release(self) -> None:
        """Remove the lock if this run still holds it."""
        end = time.monotonic() + 2 * UNFINISHED_AFTER
        claimed = False
        with suppress(OSError):  # on a full disk, files cannot be made but can be removed
            while not (claimed := _claim(self.path, self.text, self.text)):
                if _read(self.path) != self.text or time.monotonic() > end:
                    return
                time.sleep(_POLL_SECONDS)
        with suppress(OSError):
            if _read(self.path) == self.text:
                self.path.unlink()
        if claimed:
            _claim_of(self.path, self.text).unlink(missing_ok=True)


def _claim_of(path: Path, text: str) -> Path:
    digest = hashlib.sha256(text.encode(errors="replace")).hexdigest()
    return path.with_name(f"{path.name}.{digest[:16]}")


def _claim(path: Path, text: str, mine: str) -> bool:
    """Claim the right to replace or remove the lock with that text; False: try again."""
    claim = _claim_of(path, text)
    end = time.monotonic() + UNFINISHED_AFTER
    while not _create(claim, mine):
        other = _read(claim)
        if other is None or _read(path) != text:
            return False
        me, owner = parse(mine), parse(other)
        gone = owner is not None and me is not None and why_stale(owner, 0.0, me) is not None
        if gone or time.monotonic() > end:  # claims last milliseconds, so its process was killed
            claim.unlink(missing_ok=True)
            return False
        time.sleep(_POLL_SECONDS)
    return True


def _create(path: Path, text: str) -> bool:
    """Create a file; return False if it exists."""
    try:
        descriptor = os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o644)
    except FileExistsError:
        return False
    try:
        os.write(descriptor, text.encode())
    except OSError:
        path.unlink(missing_ok=True)
        raise
    finally:
        os.close(descriptor)
    return True


def _read(path: Path) -> str | None:
    """Return the text of a file; None if there is no file."""
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read(10_000)
    except FileNotFoundError:
        return None


@contextmanager
def hold(output: Path, world: Ranks, key: str = "run.output") -> Iterator[RunLock]:
    """Hold the lock of a file on rank 0 during a ``with`` block that all ranks enter.

    The lock is removed at the end, even if a rank fails; only a kill leaves it behind. Raises a
    UserError on all ranks if another run holds the lock or it cannot be made.
    """
    lock = RunLock(output, acting=world.rank == 0, key=key)
    lock.text = world.on_rank_0(lock.take)
    try:
        yield lock
    except (UserError, StopRun):
        if world.rank == 0:
            lock.release()
        raise
    except BaseException:  # including interrupts, which must not leave the lock behind
        # The failing rank releases it: no round can be counted without this rank, and a lock left
        # behind would keep other hosts out for 10 minutes.
        lock.release()
        raise
    if world.rank == 0:
        lock.release()
