"""One rank of several fails in a run: all end, it prints why, and the run can be resumed."""

import signal
import subprocess
import time

import pytest
from failing_model import WAYS
from run_tools import LATTICE, ROOT, assert_same, command, environment, run, said_until_its_end

from omniinput_hpc.cli import run as launch
from omniinput_hpc.runfile.reader import open_run

pytestmark = pytest.mark.slow

WORDS = ["model.factory=failing_model:failing", "run.rounds=60"]
SETTINGS = [part for word in WORDS for part in ("--set", word)]
RANKS = {"exception": (4, 2)}
"""By the kind of failure, how many ranks there are and which one fails, in rung 2 of 4."""
LIMIT = 10.0


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
    text = said_until_its_end(process, 100)
    seconds = time.time() - mark.stat().st_mtime
    assert seconds < LIMIT
    assert process.returncode in (1, 1 | signal.SIGKILL)  # MPICH ors in its kill of the others
    assert WAYS[how] in text
    said = [line for line in text.splitlines() if line.startswith(f"[rank {rank} on ")]
    assert any("Traceback" in line for line in said)
    assert any("in rung 2 (beta = 1.5), round " in line for line in said)
    assert not any(line.startswith("[rank 0 on ") for line in text.splitlines())
    with open_run(path) as left:
        assert 0 < left.rounds < 60
    assert launch.main([str(toml), *SETTINGS]) == 0
    assert_same(path, whole)
