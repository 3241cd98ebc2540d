"""A disk that is full in the middle of a run: one message, exit 1, no round claimed in vain."""

import subprocess

import pytest
from machine import needs_mount
from run_tools import LATTICE, assert_same, run

from omniinput_hpc.cli.run import main
from omniinput_hpc.runfile.reader import open_run

pytestmark = [pytest.mark.slow, needs_mount]

WORDS = [part for word in ("run.rounds=150", "sampler.walkers=64") for part in ("--set", word)]


def mount(folder, *options):
    words = ["mount", "-t", "tmpfs", "-o", ",".join(options), "tmpfs", str(folder)]
    return subprocess.run(words, capture_output=True).returncode == 0


@pytest.fixture
def small_disk(tmp_path):
    """A file system of 1.6 MB."""
    folder = tmp_path / "small"
    folder.mkdir()
    assert mount(folder, "size=1600k")
    yield folder
    subprocess.run(["umount", str(folder)], check=True)


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """The same run on a disk with room."""
    folder = tmp_path_factory.mktemp("whole")
    (folder / "l.toml").write_text(LATTICE.format(output=folder / "whole.h5"))
    assert main([str(folder / "l.toml"), *WORDS]) == 0
    return folder / "whole.h5"


@pytest.mark.parametrize("writer", ["mpio", "gather"])
def test_full_disk(writer, small_disk, whole, tmp_path):
    toml, path = tmp_path / "l.toml", small_disk / "run.h5"
    toml.write_text(LATTICE.format(output=path))
    words = [*WORDS, "--set", f"run.writer={writer}"]
    done = run(toml, *words, ranks=2)
    assert done.returncode == 1, done.stderr
    assert done.stderr.count("no committed round is lost: free some space and run again") == 1
    assert "No space left on device" in done.stderr
    assert "Traceback" not in done.stderr
    with open_run(path) as left:
        assert 0 < left.rounds < 150
        assert left.counts_kb().sum() == left.rounds * 4 * 64 * 15
        assert left.lane_counts_kgb().sum() == left.rounds * 4 * 64 * 15
    assert mount(small_disk, "remount", "size=20m")
    assert run(toml, *words, ranks=2).returncode == 0
    assert_same(path, whole)
