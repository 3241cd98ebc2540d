"""The lock beside the run file, RUN.h5.lock: two jobs never write one file.

flock is unreliable on Lustre and NFS, so the lock is a small file that says who writes. It is made
with O_EXCL, touched while the run lives, and removed at its end. A killed run leaves it behind; the
next one takes it over where it can tell that the writer is gone (see `why_stale`).

Whoever replaces or removes a lock first makes a claim: a file, also with O_EXCL, whose name is a
hash of the lock's text, and then looks at the lock again. A taker's claim becomes the lock by one
rename, so that of several takers one wins. Should a lock be lost all the same (its holder was
suspended for longer than `STALE_AFTER`), the holder finds it out before it writes (`RunLock.keep`).
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
    from omniinput_hpc.parallel.comm import World

log = logging.getLogger("omniinput_hpc")

STALE_AFTER = 600.0
"""Seconds without a touch after which a lock is anybody's."""
TOUCH_EVERY = 30.0
UNFINISHED_AFTER = 10.0
"""Seconds after which a lock without content, or another's claim, is taken for a dead one's."""
_POLL = 0.02


class LockLost(Exception):
    """Another run has taken the lock over; nothing more may be written."""


@dataclass(frozen=True)
class Owner:
    """Who holds a lock.

    Attributes
    ----------
    job, restarts : SLURM's job id ("" outside SLURM), and how often it was requeued
    host, pid : of rank 0
    started : the process's start, since pids are used again
    namespace : the pids' namespace: another container's pids say nothing here
    boot : the host's boot id
    token : random, so that no two locks are alike
    """

    job: str
    restarts: int
    host: str
    pid: int
    started: str
    namespace: str
    boot: str
    token: str

    @property
    def text(self) -> str:
        """What the lock file holds."""
        return json.dumps(asdict(self), indent=1) + "\n"

    @property
    def words(self) -> str:
        """Who that is, for a person."""
        job = f", SLURM job {self.job}" if self.job else ""
        return f"process {self.pid} on host {self.host}{job}"


def here() -> Owner:
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
    """Return the owner that a lock names, None where its text is not (or not yet) whole."""
    try:
        owner = Owner(**json.loads(text))
    except (ValueError, TypeError, RecursionError):
        return None
    right = all(isinstance(v, int if k in _NUMBERS else str) for k, v in asdict(owner).items())
    return owner if right and 0 < owner.pid < 2**31 else None


_NUMBERS = ("restarts", "pid")


def why_stale(owner: Owner | None, age: float, me: Owner) -> str | None:
    """Return why a lock holds no longer, None where it holds.

    Parameters
    ----------
    owner : None where the lock has no whole content
    age : seconds since the last touch, by the file system's clock
    me : who asks
    """
    if owner is None:
        return "it was never finished" if age > UNFINISHED_AFTER else None
    if owner.job and owner.job == me.job and owner.restarts < me.restarts:
        return "the job was requeued since"
    if owner.host == me.host:
        # Last touched before this host started: else it is another host of the same name.
        if owner.boot != me.boot and age > _seconds_since_boot():
            return "the host was restarted since"
        if (owner.boot, owner.namespace) == (me.boot, me.namespace) and not _lives(owner):
            return "that process has ended"
    return f"not touched for {duration(age)}" if age > STALE_AFTER else None


def _lives(owner: Owner) -> bool:
    try:
        os.kill(owner.pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass  # another user's
    state, started = _process(owner.pid)
    return state not in ("Z", "X") and started in ("", owner.started)


def _process(pid: int) -> tuple[str, str]:
    """Return a process's state and start, empty where they cannot be seen."""
    try:
        line = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return "", ""
    fields = line.rpartition(")")[2].split()  # a program's name may hold blanks
    return fields[0], fields[19]


def _seconds_since_boot() -> float:
    clock = getattr(time, "CLOCK_BOOTTIME", None)
    return STALE_AFTER if clock is None else time.clock_gettime(clock)


class RunLock:
    """The lock of one run file.

    Parameters
    ----------
    output : the run file; where it is a symbolic link, the file that it leads to is what is locked
    acting : whether this rank takes and touches it (rank 0); any rank may release it
    key : of the input file, which names the file; "" where none does

    Attributes
    ----------
    output : as given
    path : the lock file
    text : its content while this run holds it
    """

    def __init__(self, output: Path, acting: bool = True, key: str = "run.output") -> None:
        target = Path(os.path.realpath(output))
        self.output, self._acting, self._key = output, acting, key
        self.path = target.with_name(target.name + ".lock")
        self.text = ""
        self._touched = time.monotonic()

    def take(self) -> str:
        """Take the lock, and return its text.

        Raises
        ------
        UserError
            Another run holds it, or it cannot be made.
        """
        me = here()
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            while not (_create(self.path, me.text) or self._take_over(me)):
                time.sleep(_POLL)
        except OSError as error:
            reason = error.strerror or str(error)
            raise UserError(f"the lock {self.path} cannot be made: {reason}") from None
        self.text, self._touched = me.text, time.monotonic()
        return self.text

    def _take_over(self, me: Owner) -> bool:
        """Judge the lock that is there: take it over, or raise; False: look again."""
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
                who = owner.words if owner is not None else "an unknown process"
                log.info("taking over the lock %s of %s: %s", self.path, who, reason)
            elif owner is not None:
                raise UserError(self.refusal(owner, age))
        except FileNotFoundError:  # released just now
            return False
        finally:
            if not taken:
                claim.unlink(missing_ok=True)
        return taken

    def refusal(self, owner: Owner, age: float) -> str:
        """Return the message to whoever comes second."""
        name = f"{self._key} = {self.output}" if self._key else f"{self.output}"
        choice = f", or choose another {self._key}" if self._key else ""
        return (
            f"{name} is being written by another run: {owner.words} (last sign of life "
            f"{duration(max(age, 0))} ago). Wait until it ends{choice}; if you know that it has "
            f"ended, remove {self.path} (without a sign of life it counts for "
            f"{duration(STALE_AFTER)})"
        )

    def sign_of_life(self) -> None:
        """Touch the lock if this was last done `TOUCH_EVERY` seconds ago; call it often."""
        if time.monotonic() - self._touched >= TOUCH_EVERY:
            self.keep()

    def keep(self) -> bool:
        """Touch the lock, and return whether this run still holds it."""
        if not self._acting:
            return True
        self._touched = time.monotonic()
        try:
            seen = _read(self.path)
            if seen is None:
                log.warning("warning: somebody removed %s; making it again", self.path)
                return _create(self.path, self.text)
            if seen == self.text:
                os.utime(self.path)
        except OSError as error:
            log.warning("warning: the lock %s cannot be touched: %s", self.path, error.strerror)
            return True
        return seen == self.text

    def lost(self) -> LockLost:
        """Return the exception that says who has the lock now."""
        owner = parse(_read(self.path) or "")
        who = owner.words if owner is not None else "another run"
        return LockLost(
            f"{who} has taken over {self.path}: this run gave no sign of life for longer than "
            f"{duration(STALE_AFTER)}, or was requeued; it writes nothing more"
        )

    def release(self) -> None:
        """Remove the lock if it is still this run's."""
        end = time.monotonic() + 2 * UNFINISHED_AFTER
        claimed = False
        with suppress(OSError):  # a full disk: nothing can be made, but removed
            while not (claimed := _claim(self.path, self.text, self.text)):
                if _read(self.path) != self.text or time.monotonic() > end:
                    return
                time.sleep(_POLL)
        with suppress(OSError):
            if _read(self.path) == self.text:
                self.path.unlink()
        if claimed:
            _claim_of(self.path, self.text).unlink(missing_ok=True)


def _claim_of(path: Path, text: str) -> Path:
    digest = hashlib.sha256(text.encode(errors="replace")).hexdigest()
    return path.with_name(f"{path.name}.{digest[:16]}")


def _claim(path: Path, text: str, mine: str) -> bool:
    """Claim the right to replace or remove the lock of that text; False: look again.

    Another's claim lasts for milliseconds. One that stays was left by a process that was killed
    within them, and is removed.
    """
    claim = _claim_of(path, text)
    end = time.monotonic() + UNFINISHED_AFTER
    while not _create(claim, mine):
        other = _read(claim)
        if other is None or _read(path) != text:
            return False
        me, owner = parse(mine), parse(other)
        gone = owner is not None and me is not None and why_stale(owner, 0.0, me) is not None
        if gone or time.monotonic() > end:
            claim.unlink(missing_ok=True)
            return False
        time.sleep(_POLL)
    return True


def _create(path: Path, text: str) -> bool:
    """Make a file that was not there; False where it was."""
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
    """Return a file's text, None where there is none."""
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read(10_000)
    except FileNotFoundError:
        return None


@contextmanager
def hold(output: Path, world: World, key: str = "run.output") -> Iterator[RunLock]:
    """Hold the lock of a file on rank 0 for the length of a ``with`` block of all ranks.

    It is removed at the end, also when a rank fails; only a kill leaves it behind.

    Raises
    ------
    UserError
        On all ranks: another run holds it, or it cannot be made.
    """
    lock = RunLock(output, acting=world.rank == 0, key=key)
    lock.text = world.on_rank_0(lock.take)
    try:
        yield lock
    except (UserError, StopRun):
        if world.rank == 0:
            lock.release()
        raise
    except BaseException:  # nothing is swallowed; a Ctrl-C must not leave the lock either
        lock.release()  # by any rank: the others are about to be ended
        raise
    if world.rank == 0:
        lock.release()
