"""One rank of several fails in a run: all end, it prints why, and the run can be resumed.

What a rank does when it leaves: at once where it is aborted, by the C library's `exit` otherwise.
"""

import fcntl
import signal
import subprocess
import termios
import time

import leaving
import pytest
from failing_model import WAYS
from run_tools import LATTICE, ROOT, assert_same, command, environment, run, said_until_its_end

from omniinput_hpc.cli import run as launch
from omniinput_hpc.runfile.reader import open_run

pytestmark = pytest.mark.slow

WORDS = ["model.factory=failing_model:failing", "run.rounds=40"]
SETTINGS = [part for word in WORDS for part in ("--set", word)]
RANKS = {"exception": (4, 2)}
"""By the kind of failure, how many ranks there are and which one fails, in rung 2 of 4."""


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    folder = tmp_path_factory.mktemp("dying")
    toml = folder / "lattice.toml"
    toml.write_text(LATTICE.format(output=folder / "whole.h5"))
    done = run(toml, *SETTINGS)
    assert done.returncode == 0, done.stderr
    return folder / "whole.h5"


@pytest.mark.parametrize("how", WAYS)
def test_a_failing_rank_ends_all_and_says_why(how, whole, tmp_path, monkeypatch):
    n_ranks, rank = RANKS.get(how, (2, 1))
    toml, path, mark = tmp_path / "lattice.toml", tmp_path / "run.h5", tmp_path / "mark"
    toml.write_text(LATTICE.format(output=path))
    failure = {"FAILURE": how, "FAILING_RANK": str(rank), "FAILURE_MARK": str(mark)}
    process = subprocess.Popen(
        command(toml, *SETTINGS, ranks=n_ranks), stderr=subprocess.PIPE, text=True,
        env={**environment(), **failure}, cwd=ROOT, start_new_session=True,
    )  # fmt: skip
    text = said_until_its_end(process)
    assert mark.exists()
    assert process.returncode in (1, 1 | signal.SIGKILL)  # MPICH ors in its kill of the others
    assert WAYS[how] in text
    said = [line for line in text.splitlines() if line.startswith(f"[rank {rank} on ")]
    assert any("Traceback" in line for line in said)
    assert any("in rung 2 (beta = 1.5), round " in line for line in said)
    assert not any(line.startswith("[rank 0 on ") for line in text.splitlines())
    with open_run(path) as left:
        assert 0 < left.rounds < 40
    assert launch.main([str(toml), *SETTINGS]) == 0
    assert_same(path, whole)


@pytest.mark.parametrize("how", leaving.WAYS)
def test_only_aborted_ranks_skip_the_handlers_of_exit(how, tmp_path):
    """HDF5's handler hangs where a rank is gone, and MPICH's own tells mpirun of a good end."""
    begin = time.monotonic()
    done = run(tmp_path, how, ranks=4, module="leaving", timeout=2 * leaving.ASLEEP, cold=True)
    leaving.check(how, done, tmp_path, time.monotonic() - begin)


def test_a_rank_without_a_launcher_aborts_at_once(tmp_path):
    done = run(tmp_path, "all abort", module="leaving", cold=True)
    assert done.returncode == 1, done.stderr
    assert "RuntimeError: as it was told to" in done.stderr
    assert len(list(tmp_path.iterdir())) == 1


def test_a_launcher_that_reads_late_gets_the_traceback(tmp_path):
    """MPICH's drops what it has not read when a rank aborts, so that the rank waits for it."""
    process = subprocess.Popen(
        command(tmp_path, "all abort", module="leaving", cold=True), stderr=subprocess.PIPE,
        text=True, env=environment(), cwd=ROOT, start_new_session=True,
    )  # fmt: skip
    unread = bytearray(4)
    while not any(unread):
        fcntl.ioctl(process.stderr, termios.FIONREAD, unread)
        time.sleep(0.02)
        assert process.poll() is None, "it has ended"
    time.sleep(0.5)
    assert process.poll() is None
    assert "RuntimeError: as it was told to" in said_until_its_end(process)
    assert process.returncode == 1
