"""Large slabs of which only what changed is written: the same file, with fewer bytes written."""

import numpy as np
import pytest
from machine import WRITERS
from run_tools import assert_same
from runs_in_progress import FINGERPRINT, begin, config_of, sampled

from omniinput_hpc.parallel.messages import Message, packed
from omniinput_hpc.runfile import changed_parts
from omniinput_hpc.runfile.changed_parts import PAGE, LastWritten
from omniinput_hpc.runfile.fields import Field
from omniinput_hpc.sampling import loop
from omniinput_hpc.sampling.restart import find_existing

FIELD = Field((2, 5, 3, 4 * PAGE + 7), np.uint64, "counted parity")
WHERE = (1, slice(2, 4))
SHAPE = (2, 3, 4 * PAGE + 7)
SMALL = ("run.rounds=6", "run.burn_in=2", "sampler.exchanges=1", "sampler.steps=4")


def changes(rng, values, n):
    """Return a copy of values with n more counts, in few places."""
    after = values.copy()
    np.add.at(after.reshape(-1), rng.integers(after.size, size=n), 1)
    return after


@pytest.mark.parametrize("n", [0, 1, 5, 2000])
def test_what_changed_is_all_that_is_needed(n):
    rng = np.random.default_rng(n)
    dataset = np.zeros(FIELD.shape, np.uint64)
    first = rng.integers(9, size=SHAPE).astype(np.uint64)
    last, second = LastWritten(), changes(rng, first, n)
    for round_, values in enumerate([first, first, second]):
        runs = last.changed("a", 2 * round_ + 1, values)
        some = changed_parts.parts(FIELD, WHERE, values, runs)
        for where, part in some:
            dataset[where] = part
        message = Message(np.append(packed(changed_parts.to_send(values, runs)), np.uint8(9)))
        again = changed_parts.received(FIELD, WHERE, message)
        assert message.left == 1
        assert [w for w, _ in again] == [w for w, _ in some]
        assert all(np.array_equal(a, b) for (_, a), (_, b) in zip(again, some, strict=True))
        np.testing.assert_array_equal(dataset[1, 2:4], values)
    written = sum(part.size for _, part in some)
    assert written <= n * PAGE and (n < 2000 or written < values.size + 1)
    assert not dataset[0].any() and not dataset[1, [0, 1, 4]].any()


def test_slabs_of_even_and_odd_rounds_are_apart():
    last, values = LastWritten(), np.zeros((1, 1, 9), np.uint64)
    assert len(last.changed("a", 4, values)) == 1
    assert len(last.changed("a", 5, values)) == 1  # nothing was written there yet
    assert len(last.changed("a", 6, values)) == 0
    assert len(last.changed("b", 6, values)) == 1


def test_only_large_slabs_of_counts_are_compared():
    large = Field((2, 1, 16, 100_000), np.uint64, "counted parity")
    assert changed_parts.is_sparse(large, (0, slice(0, 1)))
    assert not changed_parts.is_sparse(
        Field((2, 1, 16, 100), "f8", "counted parity"), (0, slice(1))
    )
    samples = Field((9, 1, 16, 100_000), np.uint64, "round")
    assert not changed_parts.is_sparse(samples, (0, slice(0, 1)))


def run_of(folder, writer, until=None):
    """Sample by a writer, stop after so many rounds; return the file."""
    folder.mkdir(exist_ok=True)
    config = config_of(folder, *SMALL, *([f"run.rounds={until}"] if until else []))
    run = begin(config, find_existing(config, FINGERPRINT, "auto"), writer=writer)
    loop.sample(run)
    run.writer.close()
    return folder / "run.h5"


@pytest.mark.parametrize("writer", WRITERS)
def test_the_same_file(writer, tmp_path, monkeypatch):
    (tmp_path / "all").mkdir()
    everything = sampled(tmp_path / "all", *SMALL)
    monkeypatch.setattr(changed_parts, "SPARSE_FROM_BYTES", 1)
    monkeypatch.setattr(changed_parts, "PAGE", 2)
    assert_same(run_of(tmp_path / "a", writer), everything)
    run_of(tmp_path / "b", writer, until=3)
    assert_same(run_of(tmp_path / "b", writer), everything)


def test_comparing_with_the_round_before_writes_another_file(tmp_path, monkeypatch):
    """The wrong variant: there are two slabs, each holds what was counted two rounds before."""
    (tmp_path / "all").mkdir()
    everything = sampled(tmp_path / "all", *SMALL)
    monkeypatch.setattr(changed_parts, "SPARSE_FROM_BYTES", 1)
    monkeypatch.setattr(changed_parts, "PAGE", 1)
    right = LastWritten.changed
    monkeypatch.setattr(LastWritten, "changed", lambda self, name, _, v: right(self, name, 0, v))
    with pytest.raises(AssertionError, match="lane_counts"):
        assert_same(run_of(tmp_path / "a", "gather"), everything)
