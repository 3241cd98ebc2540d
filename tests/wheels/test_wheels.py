"""README's first command where MPI comes from PyPI, as on a laptop without root.

jobscripts/setup.sh makes the .venv, in a folder of its own. It sees the packages of this Python, so
that only MPICH, mpi4py and h5py are fetched.
"""

import os
import shutil
import subprocess
import sys
import time

import leaving
import pytest
from run_tools import LATTICE, ROOT, environment

TIMES = 10
"""Runs in all; of MPICH 5.0.2 a third to a half of those on 4 ranks failed."""
PATIENCE = 1200

pytestmark = [pytest.mark.slow, pytest.mark.timeout(3 * PATIENCE)]


def done(*words, cwd, **more):
    """Run a command to its end."""
    return subprocess.run(
        list(map(str, words)), capture_output=True, text=True, timeout=PATIENCE, cwd=cwd,
        env={**environment(), "OMNIINPUT_MPI": "wheel", **more},
    )  # fmt: skip


@pytest.fixture(scope="module")
def checkout(tmp_path_factory):
    """A copy of the repository whose .venv has the wheels; README's first command has made it."""
    folder = tmp_path_factory.mktemp("wheels") / "omniinput_hpc"
    shutil.copytree(ROOT / "jobscripts", folder / "jobscripts")
    for name in ("LICENSE", "README.md", "analysis", "inputs", "omniinput_hpc", "omniinput_zoo",
                 "pyproject.toml", "setup.cfg"):  # fmt: skip
        (folder / name).symlink_to(ROOT / name)
    venv = folder / ".venv"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", venv], check=True)
    words = "import sysconfig; print(sysconfig.get_path('purelib'))"
    site = done(venv / "bin/python", "-c", words, cwd=folder).stdout.strip()
    below = [path for path in sys.path if path.endswith("-packages") and os.path.isdir(path)]
    with open(f"{site}/packages-of-the-tests.pth", "w") as file:
        file.write("\n".join(below) + "\n")
    first = done("bash", "jobscripts/local.sh", "inputs/toy.toml", "--check", cwd=folder)
    assert first.returncode == 0, first.stdout + first.stderr
    assert "MPICH 5" in first.stdout
    assert f"+ {venv}/bin/mpirun -n 4 " in first.stdout
    return folder


def mpirun(checkout, *words, cwd):
    venv = checkout / ".venv/bin"
    return done(venv / "mpirun", "-n", 4, venv / "python", "-m", *words, cwd=cwd)


def test_a_run_is_analysed(checkout, tmp_path):
    """The second of `TIMES` runs; README's first command was the first."""
    toml = tmp_path / "lattice.toml"
    toml.write_text(LATTICE.format(output=tmp_path / "run.h5"))
    ended = done("bash", checkout / "jobscripts/local.sh", toml, cwd=tmp_path)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert "the pictures:" in ended.stdout
    assert (tmp_path / "run.density.png").exists()


def test_complete_runs_end_with_0(checkout, tmp_path):
    toml, codes = tmp_path / "lattice.toml", []
    for i in range(TIMES - 2):
        toml.write_text(LATTICE.format(output=tmp_path / f"run{i}.h5"))
        ended = mpirun(checkout, "omniinput_hpc", toml, cwd=tmp_path)
        codes.append(ended.returncode)
        assert "complete: " in ended.stderr, ended.stderr
    assert codes == [0] * (TIMES - 2)


@pytest.mark.parametrize("how", leaving.WAYS)
def test_only_aborted_ranks_skip_the_handlers_of_exit(checkout, how, tmp_path):
    """As tests/cli/test_dying.py does with the MPI of the other tests."""
    begin = time.monotonic()
    ended = mpirun(checkout, "leaving", tmp_path, how, cwd=tmp_path)
    leaving.check(how, ended, tmp_path, time.monotonic() - begin)
