"""A failing disk, the short form of `campaign.py`; and a writer that the campaign must catch."""

import pytest
from faults.campaign import launch, shim
from machine import needs_compiler, needs_parallel_hdf5

pytestmark = [pytest.mark.slow, needs_compiler]


@pytest.fixture
def library(tmp_path):
    return shim(tmp_path)


def failures(text):
    """Return how many calls failed in all, and how many of these were noticed."""
    rows = [line.split("|")[4:6] for line in text.splitlines() if line.startswith("| ")][2:]
    return [sum(int(cell) for cell in column) for column in zip(*rows, strict=True)]


@pytest.mark.timeout(1800)
def test_no_round_is_claimed_that_could_not_be_written(tmp_path, library):
    done = launch(tmp_path, library, modes="T", every=5)
    print(done.stdout)
    assert done.returncode == 0, done.stdout + done.stderr[-2000:]
    assert "WRONG" not in done.stdout
    failed, noticed = failures(done.stdout)
    assert noticed > 0.9 * failed > 40


def test_writing_continues_after_a_short_write(tmp_path, library):
    done = launch(tmp_path, library, modes="S", ranks=1, every=5)
    assert done.returncode == 0, done.stdout + done.stderr[-2000:]
    failed, noticed = failures(done.stdout)
    assert (failed > 20, noticed) == (True, 0)


@needs_parallel_hdf5  # the wrong writer is a parallel one
def test_a_writer_that_counts_first_is_caught(tmp_path, library):
    done = launch(tmp_path, library, modes="E", wrong="count-first", every=2)
    assert done.returncode == 1
    assert "is not there" in done.stdout


def test_a_gatherer_that_swaps_ranks_is_caught(tmp_path, library):
    done = launch(tmp_path, library, modes="E", wrong="swapped", every=20)
    assert done.returncode == 1
    assert "WRONG  ('a commit, gather, rank 0'" in done.stdout
