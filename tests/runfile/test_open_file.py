"""A file that is lost under a run: what happened is named, and nothing more is written."""

import contextlib
import errno
import os
import signal
import subprocess

import numpy as np
import pytest
from lost_file.ways import HARMLESS, WAYS, Way, file_system, mount_over
from machine import WRITERS, needs_mount, needs_overlay
from runs_in_progress import WORLD, HeldLock

from omniinput_hpc.errors import StopRun, UserError
from omniinput_hpc.runfile import layout, open_file, writers
from omniinput_hpc.runfile.open_file import FileLost, OpenFile

G = layout.Geometry(
    rounds=9, n_rungs=2, n_walkers=2, n_bins=5, samples_per_round=4, n_sites=3, n_values=5,
    n_kernels=1,
)  # fmt: skip
TOML = '[run]\noutput = "a.h5"\nseed = 1\nrounds = 9\nburn_in = 1\n'


@pytest.fixture(autouse=True)
def at_once(monkeypatch):
    monkeypatch.setattr(open_file, "SECONDS_BETWEEN_LOOKS", 0.0)


@pytest.fixture(params=WRITERS)
def started(request, tmp_path):
    """Return a function that makes a way's file, with some rounds; its writer and lock."""
    with contextlib.ExitStack() as ends:

        def start(way):
            if way.mounted:
                ends.enter_context(file_system(tmp_path))
            path = way.at(tmp_path)
            path.parent.mkdir(exist_ok=True)
            attributes = {"config": TOML, "model_fingerprint": "none"}
            layout.create(path, G, layout.first_values(np.arange(2.0), np.arange(6.0)), attributes)
            file, lock = OpenFile(path), HeldLock()
            opened = writers.open_writer(request.param, path, G, range(2), WORLD)
            writer = writers.GuardedWriter(opened, lock, file, WORLD)
            ends.callback(writer.close)
            for round_, committed in ((-1, 1), (0, 1), (1, 2)):
                commit(writer, round_, committed)
            return path, writer, lock

        yield start


def commit(writer, round_, committed):
    slabs = {}
    for name, field in layout.layout(G).items():
        where = layout.slab(field, round_, range(2), G.n_rungs)
        shape = layout.shape_of(field, where) if where is not None else (0,)
        slabs[name] = np.full(shape, 7, dtype=field.dtype)
    writer.commit(round_, slabs, committed)


WAYS_HERE = [
    pytest.param(name, marks=needs_mount) if way.mounted else name for name, way in WAYS.items()
]


@pytest.mark.parametrize("name", WAYS_HERE)
def test_a_lost_file_is_noticed_and_nothing_more_is_written(started, tmp_path, name):
    way = WAYS[name]
    path, writer, _ = started(way)
    place = path if way.rounds_at is None else tmp_path / way.rounds_at
    way.act(path)
    copy = (tmp_path / way.copy_at).read_bytes() if way.copy_at else b""
    rounds = (tmp_path / way.rounds_at).read_bytes() if way.rounds_at else b""
    with pytest.raises(FileLost) as caught:
        commit(writer, 2, 3)
    text = str(caught.value)
    assert text.startswith(f"{path} ") and "\n" not in text
    for part in way.says:
        assert part.format(place) in text
    assert copy == ((tmp_path / way.copy_at).read_bytes() if way.copy_at else b"")
    assert rounds == ((tmp_path / way.rounds_at).read_bytes() if way.rounds_at else b"")


@pytest.mark.parametrize("name", HARMLESS)
def test_what_leads_to_the_open_file_is_no_loss(started, name):
    path, writer, _ = started(HARMLESS[name])
    HARMLESS[name].act(path)
    commit(writer, 2, 3)
    with layout.h5py.File(path, "r", locking=False) as file:
        assert file["progress/rounds_committed"][0] == 3


class Ended(Exception):
    pass


@pytest.mark.parametrize("end", [None, StopRun("asked to")])
def test_the_end_of_a_run_is_checked_too(started, monkeypatch, log_lines, end):
    def leave():
        raise Ended

    monkeypatch.setattr(WORLD, "abort_quietly", leave)
    path, writer, lock = started(WAYS["deleted"])
    with pytest.raises(Ended), writer.or_end("run.h5"):
        path.unlink()
        if end:
            raise end
    assert [line for line in log_lines if "are lost" in line] == log_lines[-1:]
    assert not lock.is_held


def test_a_lock_that_was_taken_over_is_named_first(started):
    path, writer, lock = started(WAYS["replaced by a copy"])
    WAYS["replaced by a copy"].act(path)
    lock.is_held = False
    with pytest.raises(RuntimeError, match="lock lost"):
        commit(writer, 2, 3)


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "a.h5"
    attributes = {"config": TOML, "model_fingerprint": "none"}
    layout.create(path, G, layout.first_values(np.arange(2.0), np.arange(6.0)), attributes)
    opened = OpenFile(path)
    yield opened
    opened.close()


def test_another_rank_does_not_look(tmp_path):
    assert OpenFile(tmp_path / "none.h5", acting=False).what_happened() == ""


def test_a_file_that_is_not_there_is_refused(tmp_path):
    with pytest.raises(UserError, match=r"none\.h5 cannot be opened: No such file"):
        OpenFile(tmp_path / "none.h5")


def test_one_wrong_look_decides_nothing(file, monkeypatch):
    looks = ["is gone", "is gone", ""]
    monkeypatch.setattr(file, "_look", lambda: looks.pop(0))
    assert file.what_happened() == ""
    looks = ["is gone"] * 3
    assert file.what_happened() == "is gone"


@pytest.mark.parametrize("name", [".nfs0000000000c3", ".fuse_hidden0001"])
def test_what_is_deleted_while_it_is_open_is_lost(file, tmp_path, name):
    """NFS and FUSE rename it, until it is closed."""
    (tmp_path / "a.h5").rename(tmp_path / name)
    assert "are lost" in file.what_happened()


def fail_with(number):
    def fail(*arguments):
        raise OSError(number, os.strerror(number))

    return fail


def test_a_file_that_was_deleted_on_another_host(file, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr(os, "fstat", fail_with(errno.ESTALE))
        text = file.what_happened()
    assert "deleted on another host" in text


@pytest.mark.parametrize("number", [errno.EACCES, errno.EIO, errno.ETIMEDOUT, errno.ESTALE])
def test_a_path_that_cannot_be_asked_about(file, monkeypatch, number):
    with monkeypatch.context() as patch:
        patch.setattr(os, "stat", fail_with(number))
        text = file.what_happened()
    assert f"can no longer be reached ({os.strerror(number)})" in text


def test_a_pipe_in_its_place_blocks_nothing(file, tmp_path):
    (tmp_path / "a.h5").unlink()
    os.mkfifo(tmp_path / "a.h5")
    signal.alarm(20)
    assert "something that is not a file" in file.what_happened()
    signal.alarm(0)


@pytest.fixture
def layers(tmp_path):
    """A folder of a container: two file systems over each other, with a run file in the lower."""
    names = lower, work, seen = [tmp_path / name for name in ("lower", "work", "seen")]
    for name in names:
        name.mkdir()
    attributes = {"config": TOML, "model_fingerprint": "none"}
    first = layout.first_values(np.arange(2.0), np.arange(6.0))
    layout.create(lower / "a.h5", G, first, attributes)
    mount_over(work / "any")
    for name in ("upper", "own"):
        (work / name).mkdir()
    options = f"lowerdir={lower},upperdir={work}/upper,workdir={work}/own"
    words = ["mount", "-t", "overlay", "overlay", "-o", options, str(seen)]
    subprocess.run(words, check=True)
    yield seen
    for place in (seen, work):
        subprocess.run(["umount", "-l", str(place)], check=True)


@needs_overlay
def test_a_file_in_a_containers_lower_layer_is_no_loss(layers):
    """It is copied to the upper layer, and is another inode then, when it is opened for writing."""
    with layout.h5py.File(layers / "a.h5", "r", locking=False):
        opened = OpenFile(layers / "a.h5")
    writer = writers.open_writer("gather", layers / "a.h5", G, range(2), WORLD)
    guarded = writers.GuardedWriter(writer, HeldLock(), opened, WORLD)
    for round_, committed in ((-1, 1), (0, 1), (1, 2)):
        commit(guarded, round_, committed)
    guarded.close()


def test_growth_by_something_else_is_noticed(file, tmp_path):
    with open(tmp_path / "a.h5", "ab") as other:
        other.write(b"more")
    assert "something else is writing to it" in file.what_happened()


def test_a_writer_that_does_not_look_goes_on(started, monkeypatch):
    """The wrong twin: without the look, all is said to be well."""
    monkeypatch.setattr(OpenFile, "_look", lambda self: "")
    path, writer, _ = started(Way(lambda path: path.unlink(), ()))
    path.unlink()
    commit(writer, 2, 3)
