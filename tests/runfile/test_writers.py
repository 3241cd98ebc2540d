"""Writers: what a commit writes and counts, which one is chosen, and losing the lock.

Failures of one rank among several are in tests/mpi/test_commit.py.
"""

from pathlib import Path
from types import SimpleNamespace

import h5py
import numpy as np
import pytest
from machine import WRITERS
from runs_in_progress import WORLD, HeldLock

from omniinput_hpc.errors import UserError
from omniinput_hpc.runfile import layout, writers
from omniinput_hpc.runfile.open_file import OpenFile
from omniinput_hpc.runfile.reader import open_run

G = layout.Geometry(
    rounds=3, n_rungs=4, n_walkers=2, n_bins=5, samples_per_round=4, n_sites=3, n_values=5,
    n_kernels=1, checksums=True,
)  # fmt: skip
RUNGS = range(4)
TOML = '[run]\noutput = "a.h5"\nseed = 1\nrounds = 3\nburn_in = 2\n'


@pytest.fixture
def path(tmp_path):
    path = tmp_path / "a.h5"
    attributes = {"config": TOML, "model_fingerprint": "none"}
    layout.create(path, G, layout.first_values(np.arange(4.0), np.arange(6.0)), attributes)
    return path


@pytest.fixture(params=WRITERS)
def writer(request, path):
    opened = writers.open_writer(request.param, path, G, RUNGS, WORLD)
    assert opened.name == request.param
    yield opened
    opened.close()


def values(number, round_):
    """Return slabs filled with a number."""
    slabs = {}
    for name, field in layout.layout(G).items():
        where = layout.slab(field, round_, RUNGS, G.n_rungs)
        shape = layout.shape_of(field, where) if where is not None else (0,)
        slabs[name] = np.full(shape, number, dtype=field.dtype)
    slabs["ladder/beta"] = slabs["ladder/beta"] + np.arange(len(slabs["ladder/beta"]))
    return slabs


def test_commits_write_their_slabs_and_count(path, writer):
    for round_, number in [(-2, 1), (-1, 2), (0, 3), (1, 4)]:
        writer.commit(round_, values(number, round_), round_ + (3 if round_ < 0 else 1))
    writer.close()
    with h5py.File(path, locking=False) as file:
        assert file["progress/burn_in_committed"][0] == 2
        assert file["progress/rounds_committed"][0] == 2
        for name, field in layout.layout(G).items():
            expected = {"round": [3, 4], "parity": [3, 4], "counted parity": [3, 4]}.get(field.per)
            if name.startswith("checksum/"):
                continue  # see test_checksums.py
            if field.per == "burn-in":
                ascending = np.arange(4) if name == "ladder/beta" else 0
                assert (file[name][...] == 2 + ascending).all(), name
            elif expected:
                for slot, number in enumerate(expected):
                    assert (file[name][slot] == number).all(), name


def fail_once(monkeypatch, when):
    """Let the write of a dataset fail, the `when`-th from now."""
    calls, write = [], h5py.Dataset.__setitem__

    def faulty(dataset, where, data):
        calls.append(where)
        if len(calls) == when + 1:
            raise OSError(28, "No space left on device")
        write(dataset, where, data)

    monkeypatch.setattr(h5py.Dataset, "__setitem__", faulty)


@pytest.mark.parametrize("when", [0, 7])
@pytest.mark.parametrize("round_", [-1, 1])
def test_a_failed_write_is_not_counted(path, writer, monkeypatch, round_, when):
    before = {-1: [-2], 1: [-2, -1, 0]}[round_]
    for done in before:
        writer.commit(done, values(1, done), done + (3 if done < 0 else 1))
    fail_once(monkeypatch, when)
    name = "burn-in round -1" if round_ < 0 else "round 1 could"
    with pytest.raises(writers.WriteError, match=f"{name}.*No space left"):
        writer.commit(round_, values(2, round_), 2)
    monkeypatch.undo()
    writer.close()
    with open_run(path) as run:
        assert (run.rounds, run.burn_in_committed) == ((0, 1) if round_ < 0 else (1, 2))


class Recorder:
    """A writer that notes what it is asked."""

    name = "recorder"

    def __init__(self, error=None):
        self.calls, self.error = [], error

    def commit(self, round_, values, committed):
        self.calls.append((round_, committed))
        if self.error:
            raise self.error

    def close(self):
        self.calls.append("close")


def test_nothing_is_written_without_the_lock(path):
    recorder, lock = Recorder(), HeldLock()
    guarded = writers.GuardedWriter(recorder, lock, OpenFile(path), WORLD)
    guarded.commit(0, {}, 1)
    lock.is_held = False
    with pytest.raises(RuntimeError, match="lock lost"):
        guarded.commit(1, {}, 2)
    guarded.close()
    assert recorder.calls == [(0, 1), "close"] and guarded.name == "recorder"


@pytest.mark.parametrize(("kind", "nodes", "mpi", "expected"), [
    ("lustre", 8, True, "mpio"),
    ("ext4", 1, True, "mpio"),
    ("ext4", 2, True, "gather"),
    ("nfs4", 1, True, "gather"),
    ("lustre", 1, False, "gather"),
])  # fmt: skip
def test_the_file_system_chooses(tmp_path, monkeypatch, kind, nodes, mpi, expected):
    monkeypatch.setattr(writers, "file_system", lambda folder: kind)
    monkeypatch.setattr(writers.h5py, "get_config", lambda: type("Config", (), {"mpi": mpi}))
    name, why = writers.choose_writer("auto", tmp_path / "a.h5", nodes)
    assert name == expected
    assert (kind in why) if mpi else (why == "h5py has no MPI")
    for wanted in ("mpio", "gather") if mpi else ("gather",):
        assert writers.choose_writer(wanted, tmp_path / "a.h5", nodes) == (
            wanted,
            "set by [run] writer",
        )


def test_the_file_system_of_a_folder(tmp_path):
    assert writers.file_system(tmp_path) not in ("", "unknown")
    assert writers.file_system(writers.Path("/proc/self")) == "proc"


def test_names_with_blanks_are_found_in_mountinfo(monkeypatch):
    """The kernel writes a blank as \\040."""
    line = "36 35 98:0 / /big\\040disk\\134x rw - lustre /dev/a rw\n"
    text = "35 1 8:0 / / rw - ext4 /dev/b rw\n" + line
    monkeypatch.setattr(writers.Path, "read_text", lambda *_, **__: text)
    assert writers.file_system(writers.Path("/big disk\\x/runs")) == "lustre"
    assert writers.file_system(writers.Path("/big")) == "ext4"


def test_a_file_that_has_gone_is_said(path):
    path.unlink()
    for kind in WRITERS:
        with pytest.raises(UserError, match=r"a.h5 cannot be opened for writing: No such file"):
            writers.open_writer(kind, path, G, RUNGS, WORLD)


NAMES = ["run-12:30.h5", "12:30/a.h5", "ufs:a.h5", "a:b:c.h5", "-a:.h5", "l\u00e4ufe 'x'.h5"]


@pytest.mark.parametrize("kind", WRITERS)
@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("relative", [False, True])
def test_names_with_colons_are_names(tmp_path, monkeypatch, kind, name, relative):
    """MPI-IO takes what stands before a colon for the prefix of a file system."""
    monkeypatch.chdir(tmp_path)
    path = Path(name) if relative else tmp_path / name
    path.parent.mkdir(exist_ok=True)
    attributes = {"config": TOML, "model_fingerprint": "none"}
    layout.create(path, G, layout.first_values(np.arange(4.0), np.arange(6.0)), attributes)
    there = sorted(tmp_path.rglob("*"))
    opened = writers.open_writer(kind, path, G, RUNGS, WORLD)
    opened.commit(0, values(3, 0), 1)
    opened.close()
    assert sorted(tmp_path.rglob("*")) == there
    with open_run(path) as run:
        assert run.rounds == 1


def test_mpi_io_that_h5py_lacks_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(h5py, "get_config", lambda: SimpleNamespace(mpi=False))
    assert writers.choose_writer("auto", tmp_path / "a.h5", 1)[0] == "gather"
    with pytest.raises(UserError, match=r'run.writer = "mpio", but h5py is built without MPI'):
        writers.choose_writer("mpio", tmp_path / "a.h5", 1)


@pytest.mark.parametrize("requested", ["auto", "mpio"])
def test_open_mpi_gets_names_with_colons_by_the_other_writer(tmp_path, monkeypatch, requested):
    monkeypatch.setattr(writers.comm, "library", lambda: "Open MPI v4.1.4, package: Debian")
    monkeypatch.setattr(h5py, "get_config", lambda: SimpleNamespace(mpi=True))
    kind, why = writers.choose_writer(requested, tmp_path / "12:30.h5", 1)
    assert kind == "gather" and "colon" in why
    assert writers.choose_writer("mpio", tmp_path / "1230.h5", 1)[0] == "mpio"


def test_libraries():
    assert writers.libraries()["h5py"] == h5py.__version__
    assert writers.libraries()["hdf5"] == h5py.version.hdf5_version
    assert writers.libraries()["parallel"] == ("yes" if h5py.get_config().mpi else "no")
