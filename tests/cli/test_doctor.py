"""The doctor: nothing wrong on a healthy machine, and each fault is named with a remedy."""

import importlib.metadata
import tempfile
from pathlib import Path

import h5py
import numpy as np
import pytest
from run_tools import run

from omniinput_hpc.cli import doctor
from omniinput_hpc.cli import run as launch
from omniinput_hpc.parallel.comm import World
from omniinput_hpc.runfile import layout, writers

NAMES = ["versions", "MPI", "ranks", "HDF5", "torch", "exchange", "folder", "fsync", "writing"]


def examine(capsys, folder, world=None):
    """Run the doctor for a moment; return its exit code and its lines by name."""
    code = doctor.run(world or World(), folder, seconds=0.02)
    *lines, verdict = capsys.readouterr().out.splitlines()
    found = {line.split()[1]: line for line in lines}
    n_wrong = sum(line.startswith("WRONG") for line in lines)
    assert (code == 0) == (n_wrong == 0)
    assert verdict == (f"{n_wrong} problem(s) found" if n_wrong else "nothing wrong")
    return code, found


def test_a_healthy_machine(capsys, tmp_path):
    code, found = examine(capsys, tmp_path)
    assert code == 0
    assert list(found) == NAMES
    assert all(line.startswith("ok ") for line in found.values())
    assert f"numpy {np.__version__}" in found["versions"]
    assert f"HDF5 {h5py.version.hdf5_version}" in found["versions"]
    assert writers.file_system(tmp_path) in found["folder"]
    assert "one rank, nothing to exchange" in found["exchange"]
    assert "read back as written" in found["writing"]
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
@pytest.mark.parametrize("ranks", [1, 2])
def test_the_command(ranks, tmp_path):
    done = run("--doctor", tmp_path, ranks=ranks, cold=ranks == 1)
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"{ranks} rank(s)" in done.stdout
    assert ("exchanges/s" in done.stdout) == (ranks > 1)
    assert done.stdout.count("nothing wrong") == 1
    assert list(tmp_path.iterdir()) == []


def test_no_such_folder_is_bad_input(capfd, tmp_path):
    assert launch.main(["--doctor", str(tmp_path / "nowhere")]) == 2
    assert "no such folder" in capfd.readouterr().err


def raise_(error):
    def function(*arguments, **options):
        raise error

    return function


def no_torch(name, version=importlib.metadata.version):
    if name == "torch":
        raise importlib.metadata.PackageNotFoundError(name)
    return version(name)


def keep_nothing(self, round_, values, committed):
    """Claim rounds without writing them."""
    counter = self._file["progress/rounds_committed"]
    counter[0] = committed
    self._file.flush()


def full(folder):
    return 1000


FAULTS = {
    "a package is missing": (
        [("importlib.metadata.version", no_torch)],
        "versions",
        ["missing: torch", "-> pip install torch"],
    ),
    "torch computes wrongly": (
        [("torch.arange", lambda *a, **o: np.ones(3))],
        "torch",
        ["computes 3.0 instead of 499500", "-> install torch"],
    ),
    "torch does not start": (
        [("omniinput_hpc.models.device.choose", raise_(RuntimeError("CUDA driver too old")))],
        "torch",
        ["rank 0 on ", "CUDA driver too old", "->"],
    ),
    "torch does not see the GPU": (
        [("omniinput_hpc.cli.doctor._try_device", lambda rank: ("cpu", "", "unseen"))],
        "torch",
        ["has a GPU that torch does not see", "-> install torch with CUDA"],
    ),
    "a folder in memory": (
        [("omniinput_hpc.runfile.writers.file_system", lambda folder: "tmpfs")],
        "folder",
        ["lost at a restart", "-> choose a disk"],
    ),
    "a folder that cannot be written": (
        [("tempfile.mkdtemp", raise_(PermissionError(13, "Permission denied")))],
        "folder",
        ["nothing can be created there: Permission denied", "-> choose a folder"],
    ),
    "a disk that cannot fsync": (
        [("omniinput_hpc.cli.doctor._write", raise_(OSError(5, "Input/output error")))],
        "fsync",
        ["cannot be stored", "Input/output error", "->"],
    ),
    "a disk that forgets": (
        [("pathlib.Path.read_bytes", lambda path: b"something else")],
        "fsync",
        [
            "rank 0's file is missing or differs",
            "differs from what was written",
            "-> choose a folder",
        ],
    ),
    "a writer that fails": (
        [("omniinput_hpc.runfile.writers.open_writer", raise_(OSError("no MPI-IO here")))],
        "writing",
        ["fails", "no MPI-IO here", "-> set [run] writer"],
    ),
    "a full disk": (
        [("h5py.Dataset.__setitem__", raise_(OSError(28, "No space left on device")))],
        "writing",
        ["fails", "No space left"],
    ),
    "a writer that loses rounds": (
        [
            ("omniinput_hpc.runfile.writers.MpioWriter.commit", keep_nothing),
            ("omniinput_hpc.runfile.writers.GatherWriter.commit", keep_nothing),
        ],
        "writing",
        ["loses data", "does not match its checksum", "-> set [run] writer"],
    ),
    "too little room": (
        [("omniinput_hpc.runfile.layout.free_bytes", full)],
        "writing",
        ["too little free space", "-> free 5"],
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("fault", FAULTS)
def test_faults(fault, capsys, tmp_path, monkeypatch):
    changes, name, expected = FAULTS[fault]
    for target, value in changes:
        monkeypatch.setattr(target, value)
    code, found = examine(capsys, tmp_path)
    assert code == 1
    assert [n for n, line in found.items() if line.startswith("WRONG")] == [name]
    for words in expected:
        assert words in found[name]
    monkeypatch.undo()
    assert list(tmp_path.iterdir()) == []


def test_a_launcher_that_does_not_fit(capsys, tmp_path, monkeypatch):
    monkeypatch.setenv("SLURM_STEP_NUM_TASKS", "4")
    code, found = examine(capsys, tmp_path)
    assert code == 1
    assert "4 processes were launched (SLURM_STEP_NUM_TASKS)" in found["MPI"]
    assert "--mpi=pmi2" in found["MPI"]


def test_serial_hdf5_is_no_fault(capsys, tmp_path, monkeypatch):
    serial = type("Config", (), {"mpi": False})()
    monkeypatch.setattr(h5py, "get_config", lambda: serial)
    code, found = examine(capsys, tmp_path)
    assert code == 0
    assert "serial HDF5; writer gather (h5py has no MPI) -> " in found["HDF5"]
    assert "writer gather, 1 rank(s)" in found["writing"]


class Others:
    """A world of several ranks, of which only the first is real."""

    def __init__(self, size, texts=(), received=None):
        self.rank, self.size, self._texts, self._received = 0, size, list(texts), received

    def texts(self, text):
        return [text if t is None else t for t in self._texts.pop(0)]

    def all(self, ok):
        return ok

    def max(self, values):
        return values

    def barrier(self):
        pass

    def local_rank(self):
        return 0

    def swap(self, outgoing):
        return {r: self._received(r, len(data)) for r, (_, data) in outgoing.items()}


def test_exchanges_that_change_bytes_are_noticed():
    line = doctor.exchanges(Others(2, received=doctor.random_bytes), 0.01)
    assert not line.wrong
    assert "exchanges/s" in line.text
    line = doctor.exchanges(
        Others(2, received=lambda rank, n: doctor.random_bytes(rank + 1, n)), 0.01
    )
    assert line.wrong
    assert "bytes arrive changed" in line.text


def test_slow_exchanges_are_noticed(monkeypatch):
    monkeypatch.setattr(doctor, "SLOW_EXCHANGE", 0.0)
    line = doctor.exchanges(Others(2, received=doctor.random_bytes), 0.01)
    assert line.wrong
    assert "fewer ranks than cores" in line.remedy


@pytest.mark.parametrize(
    ("cores", "total", "wrong", "words"),
    [
        (["0", "1", "2", "3"], "4", False, ""),
        (["0 1 2 3"] * 4, "4", False, ""),
        (["0"] * 4, "4", True, "4 ranks on a share 1 of its 4 cores"),
        (["0 1"] * 4, "2", False, "4 ranks share the 2 cores of a"),
    ],
)
def test_ranks_bound_to_one_core_are_noticed(cores, total, wrong, words):
    line = doctor.ranks(Others(4, [cores, [total] * 4]), ["a"] * 4)
    assert line.wrong == wrong
    assert words in line.text + line.remedy


def test_ranks_with_other_versions_are_noticed():
    line = doctor.packages(Others(3, [[None, "Python 2.7", None]]))
    assert line.wrong
    assert "but on rank 1 Python 2.7" in line.text


def test_ranks_that_share_a_gpu_get_a_hint(monkeypatch):
    monkeypatch.setattr(doctor, "_try_device", lambda rank: ("H200", "gpu-1", ""))
    line = doctor.devices(Others(2, [["H200"] * 2, ["gpu-1"] * 2, ["", ""]]), ["a", "a"])
    assert (line.wrong, "2 ranks share a GPU" in line.remedy) == (False, True)
    assert line.text == "2 rank(s) on H200"
    line = doctor.devices(Others(2, [["H200"] * 2, ["gpu-1"] * 2, ["", ""]]), ["a", "b"])
    assert line.remedy == ""


def test_an_fault_of_another_rank_is_named():
    other = Others(2, [["", "rank 1 on node7: no such file"]])
    other.all = lambda ok: False
    _, failure = doctor.attempt(other, lambda: None)
    assert failure == "rank 1 on node7: no such file"


def test_the_trial_file_is_a_run_file_like_any(tmp_path):
    """What is tried is what a run does: same creation, same writers, same reader."""
    folder = Path(tempfile.mkdtemp(dir=tmp_path))
    line = doctor.writing(World(), folder, "gather", 0.0)
    assert not line.wrong
    with h5py.File(folder / "trial.h5", locking=False) as file:
        assert file.attrs["format"] == layout.FORMAT
        assert file["progress/rounds_committed"][0] == 2
