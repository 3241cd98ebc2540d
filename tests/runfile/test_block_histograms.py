"""Histograms of blocks of rounds: the same counts as one a round, whenever a run is looked at."""

import h5py
import numpy as np
import pytest
from destroy import header
from run_tools import assert_same, contents
from runs_in_progress import sampled
from sealed_changes import changing

from omniinput_hpc.cli.salvage import salvage_file
from omniinput_hpc.cli.verify import verify_file
from omniinput_hpc.errors import UserError
from omniinput_hpc.estimators.density.density import density_of_run
from omniinput_hpc.runfile import block_histograms
from omniinput_hpc.runfile.block_histograms import MAX_COUNT, rounds_per_block
from omniinput_hpc.runfile.checked_datasets import BrokenRun, WrongChecksum
from omniinput_hpc.runfile.reader import open_run

SMALL = ("run.rounds=10", "run.burn_in=2", "sampler.exchanges=1", "sampler.steps=4")
BLOCKS = (*SMALL, "run.histogram_blocks=3")  # of 4, 4 and 2 rounds


@pytest.fixture(scope="module")
def by_round(tmp_path_factory):
    return sampled(tmp_path_factory.mktemp("by_round"), *SMALL)


@pytest.fixture(scope="module")
def by_block(tmp_path_factory):
    return sampled(tmp_path_factory.mktemp("by_block"), *BLOCKS)


def stored(path):
    with h5py.File(path, locking=False) as file:
        return file["histogram/counts"][...].astype(np.int64)


@pytest.mark.parametrize(("rounds", "asked", "counts", "expected"), [
    (1, None, 1, 1), (200, None, 1, 1), (201, None, 1, 2), (10_000, None, 1, 50),
    (10, 3, 1, 4), (10, 10, 1, 1), (10, 99, 1, 1), (10, 1, 1, 10),
    (10_000, None, MAX_COUNT // 7, 7),  # more would not fit 32 bits
    (1000, 200, MAX_COUNT // 5, 5),
])  # fmt: skip
def test_rounds_that_share_a_histogram(rounds, asked, counts, expected):
    assert rounds_per_block(rounds, asked, counts) == expected


def test_histograms_that_overflow_are_refused():
    with pytest.raises(UserError, match=r"set run\.histogram_blocks = 200 or more"):
        rounds_per_block(1000, 199, MAX_COUNT // 5)


def test_blocks_hold_the_sums_of_their_rounds(by_round, by_block):
    one_rkb, blocks = stored(by_round), stored(by_block)
    expected = [one_rkb[:4].sum(axis=0), one_rkb[4:8].sum(axis=0), one_rkb[8:].sum(axis=0)]
    np.testing.assert_array_equal(blocks, expected)
    with h5py.File(by_block, locking=False) as file:
        assert file.attrs["rounds_per_block"] == 4
        assert file["checksum/block"].shape == (3, 4, 1)
    with h5py.File(by_round, locking=False) as file:
        assert file.attrs["rounds_per_block"] == 1 and "checksum/block" not in file


def test_all_else_is_the_same_but_the_checksums_of_rounds(by_round, by_block):
    one, other = contents(by_round), contents(by_block)
    differ = {name for name in one.keys() | other.keys() if one.get(name) != other.get(name)}
    assert differ == {"histogram/counts", "checksum/round", "checksum/block"}


def test_the_same_density_from_both(by_round, by_block):
    with open_run(by_round) as one, open_run(by_block) as other:
        a, b = density_of_run(one.data), density_of_run(other.data)
    np.testing.assert_array_equal(a.log_g_b, b.log_g_b)
    np.testing.assert_array_equal(a.z_b, b.z_b)


@pytest.mark.parametrize("until", range(1, 11))
def test_a_run_that_stopped_anywhere_counts_the_same(until, tmp_path, by_round, by_block):
    path = sampled(tmp_path, *BLOCKS, until=until)
    one_rkb = stored(by_round)
    with open_run(path) as run:
        np.testing.assert_array_equal(run.counts_kb(), one_rkb[:until].sum(axis=0))
        whole = until // 4
        parts = run.data.counts_nkb(min(whole, 2)) if whole else np.zeros((0, *one_rkb.shape[1:]))
        assert len(parts) == min(whole, 2)
        expected = [one_rkb[4 * i : 4 * i + 4].sum(axis=0) for i in range(whole)]
        np.testing.assert_array_equal(parts, np.reshape(expected, parts.shape))
    assert verify_file(path)[1] == []
    assert_same(sampled(tmp_path, *BLOCKS), by_block)  # resumed


def test_a_block_half_written_at_a_kill_is_written_again(tmp_path, by_block):
    path = sampled(tmp_path, *BLOCKS, until=7)
    with h5py.File(path, "r+", locking=False) as file:  # as the commit of round 7 left it
        file["histogram/counts"][1, :2] = 77
        file["checksum/block"][1] = 5
    assert verify_file(path)[1] == []
    assert_same(sampled(tmp_path, *BLOCKS), by_block)


@pytest.mark.parametrize("until", [6, 10])
def test_a_run_made_longer_keeps_its_rounds_per_block(until, tmp_path):
    """A block that was cut short by the run's end goes on."""
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    longer = sampled(tmp_path / "a", *BLOCKS, until=until)
    sampled(tmp_path / "a", *BLOCKS, "run.rounds=15", until=until + 1)
    assert verify_file(longer)[1] == []
    sampled(tmp_path / "a", *BLOCKS, "run.rounds=15")
    at_once = sampled(tmp_path / "b", *SMALL, "run.rounds=15", "run.histogram_blocks=4")
    assert stored(longer).shape[0] == 4
    assert_same(longer, at_once)


def test_counts_that_a_resume_forgets_are_found(tmp_path, monkeypatch):
    """The wrong variant: a block that begins at the resume, whatever was counted before."""
    path = sampled(tmp_path, *BLOCKS, until=6)
    nothing = lambda run, rungs: np.zeros((len(rungs), run.geometry.n_bins), np.int64)  # noqa: E731
    monkeypatch.setattr("omniinput_hpc.sampling.build.counts_before", nothing)
    sampled(tmp_path, *BLOCKS, until=8)
    findings = verify_file(path)[1]
    assert any(line.startswith("histogram: rounds 4 to 7, rung 0: ") for line in findings)
    with open_run(path) as run, pytest.raises(BrokenRun, match="of rounds 4 to 7, rung 0"):
        run.counts_kb()


def test_a_changed_block_is_found(tmp_path):
    path = sampled(tmp_path, *BLOCKS, until=9)
    with h5py.File(path, "r+", locking=False) as file:
        file["histogram/counts"][1, 2, 3] += 1
    with open_run(path) as run, pytest.raises(WrongChecksum, match="rounds 4 to 7, rung 2"):
        run.counts_kb()
    assert any("histogram/counts of rounds 4 to 7, rung 2" in w for w in verify_file(path)[1])
    with pytest.raises(UserError, match="rounds 4 to 7"), open_run(path) as run:
        run.check_round(7)


def test_lanes_that_counted_less_than_the_blocks_are_found(tmp_path):
    path = sampled(tmp_path, *BLOCKS, until=6)
    with changing(path) as file:
        counts_b = file["histogram/counts"][0, 1]
        full = int(counts_b.argmax())
        file["histogram/lane_counts"][:, 1, :, full] = 0
    with open_run(path) as run, pytest.raises(BrokenRun, match=r"counted less|counts for"):
        run.counts_kb()
    assert any("counted less" in words for words in verify_file(path)[1])


@pytest.mark.parametrize("until", [3, 6, 8, 10])
def test_salvaged(until, tmp_path, by_block):
    path, new = sampled(tmp_path, *BLOCKS, until=until), tmp_path / "new.h5"
    header(path, "histogram/counts", seed=3)
    _, findings = salvage_file(path, new)
    assert findings == []
    new.replace(path)
    assert_same(sampled(tmp_path, *BLOCKS), by_block)


def test_words():
    assert block_histograms.words_of(range(3, 4)) == "round 3"
    assert block_histograms.words_of(range(4, 8)) == "rounds 4 to 7"
