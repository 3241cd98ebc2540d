"""The ways to lose a file under a run: what is done to it, and what the run has to say.

A run's file is ``FOLDER/work/run.h5`` (`Way.at`); FOLDER holds nothing else. In those that need a
file system of their own, ``work`` is a tmpfs (`mounted`).
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

LOST = "committed to it are lost"
PUT_BACK = "with all committed rounds, is now at {0}: put it back"
REPLACED = "has been replaced by another file, to which nothing was written"
GONE = "run.h5 is no longer there; "


@dataclass(frozen=True)
class Way:
    """One way to lose a file.

    act : does it, given the file's path
    says : parts of the message; {0} stands for where the rounds are
    rounds_at : where the rounds are then, relative to FOLDER; None where they are lost
    copy_at : where a copy is, to which nothing may be written
    mounted : whether ``work`` is to be a file system of its own
    """

    act: Callable[[Path], object]
    says: tuple[str, ...]
    rounds_at: str | None = None
    copy_at: str | None = None
    mounted: bool = False

    def at(self, folder: Path) -> Path:
        """Return the run file's path."""
        return Path(folder) / "work" / "run.h5"


def copy_of(path):
    """Copy a file beside itself; return the copy's path."""
    return shutil.copyfile(path, path.with_name("copy.h5"))


def rename_away(path, copy=False):
    if copy:
        copy_of(path)
    os.rename(path, path.with_name("old.h5"))
    if copy:
        os.rename(path.with_name("copy.h5"), path)


def replace_by_link(path, target):
    path.unlink()
    path.symlink_to(target)


def replace_by_empty(path):
    path.unlink()
    path.touch()


def replace_by_folder(path):
    path.unlink()
    path.mkdir()


def restore_in_place(path):
    """Write an older state of the file over it, as `cp BACKUP RUN.h5` does."""
    data = path.read_bytes()
    with open(path, "r+b") as file:
        file.write(bytes(len(data)))


def rename_folder(path, again=False):
    os.rename(path.parent, path.parent.with_name("moved"))
    if again:
        path.parent.mkdir()


def to_another_file_system(path):
    """Move the file as `mv` does between file systems: copied, then deleted."""
    copy_of(path)
    path.unlink()


def unmount(path):
    subprocess.run(["umount", "-l", str(path.parent)], check=True)


def mount_over(path):
    subprocess.run(["mount", "-t", "tmpfs", "tmpfs", str(path.parent)], check=True)


@contextmanager
def file_system(folder):
    """Have a tmpfs at ``FOLDER/work``, and at ``FOLDER/kept`` what is in it, also afterwards."""
    work, kept = Path(folder) / "work", Path(folder) / "kept"
    work.mkdir()
    kept.mkdir()
    mount_over(work / "any")
    subprocess.run(["mount", "--bind", str(work), str(kept)], check=True)
    try:
        yield
    finally:
        while os.path.ismount(work):
            subprocess.run(["umount", "-l", str(work)], check=True)
        subprocess.run(["umount", "-l", str(kept)], check=True)


def remount(folder):
    """Mount again at ``FOLDER/work`` what was there."""
    work, kept = Path(folder) / "work", Path(folder) / "kept"
    while os.path.ismount(work):
        subprocess.run(["umount", "-l", str(work)], check=True)
    subprocess.run(["mount", "--bind", str(kept), str(work)], check=True)


WAYS = {
    "deleted": Way(Path.unlink, (GONE, LOST)),
    "deleted, another name left": Way(
        lambda path: (os.link(path, path.with_name("link.h5")), path.unlink()),
        (GONE, "find FOLDER -xdev -inum "), "work/link.h5",
    ),
    "renamed": Way(rename_away, (GONE, PUT_BACK), "work/old.h5"),
    "moved to another folder": Way(
        lambda path: os.rename(path, path.parents[1] / "run.h5"), (GONE, PUT_BACK), "run.h5"
    ),
    "moved to another file system": Way(
        to_another_file_system, (GONE, LOST), copy_at="work/copy.h5"
    ),
    "replaced by a copy": Way(
        lambda path: os.rename(copy_of(path), path), (REPLACED, LOST), copy_at="work/run.h5"
    ),
    "renamed, a copy in its place": Way(
        lambda path: rename_away(path, copy=True), (REPLACED, PUT_BACK), "work/old.h5",
        copy_at="work/run.h5",
    ),
    "replaced by an empty file": Way(
        replace_by_empty, (REPLACED, LOST), copy_at="work/run.h5"
    ),
    "replaced by a link to a copy": Way(
        lambda path: replace_by_link(path, copy_of(path)),
        ("run.h5 now leads to ", "copy.h5, to which nothing was written", LOST),
        copy_at="work/copy.h5",
    ),
    "replaced by a link to nothing": Way(
        lambda path: replace_by_link(path, "nothing"), (GONE, LOST)
    ),
    "replaced by a folder": Way(
        replace_by_folder, ("replaced by something that is not a file", LOST)
    ),
    "truncated to nothing": Way(
        lambda path: os.truncate(path, 0), ("has been truncated: it was ", "cut off are lost"),
    ),
    "truncated to a half": Way(
        lambda path: os.truncate(path, path.stat().st_size // 2),
        ("has been truncated: it was ", "cut off are lost"),
    ),
    "overwritten in place": Way(
        restore_in_place, ("has been overwritten by something else", "are lost"),
    ),
    "folder removed": Way(lambda path: shutil.rmtree(path.parent), (GONE, LOST)),
    "folder renamed": Way(rename_folder, (GONE, PUT_BACK), "moved/run.h5"),
    "folder renamed, a new one in its place": Way(
        lambda path: rename_folder(path, again=True), (GONE, PUT_BACK), "moved/run.h5"
    ),
    "unmounted": Way(
        unmount, ("is no longer mounted at ", "mount it there again"), "kept/run.h5", mounted=True
    ),
    "another file system mounted over it": Way(
        mount_over, ("is no longer mounted at ", "mount it there again"), "kept/run.h5",
        mounted=True,
    ),
}  # fmt: skip


def move_and_link(path):
    """Move the file and leave a link to it: the path leads to the open file as before."""
    moved = path.parents[1] / "moved.h5"
    os.rename(path, moved)
    path.symlink_to(moved)


HARMLESS = {
    "moved, a link to it left": Way(move_and_link, ()),
    "a second name": Way(lambda path: os.link(path, path.with_name("link.h5")), ()),
    "renamed and back": Way(
        lambda path: (rename_away(path), os.rename(path.with_name("old.h5"), path)), ()
    ),
    "read, its times changed": Way(lambda path: (path.read_bytes(), os.utime(path)), ()),
}
