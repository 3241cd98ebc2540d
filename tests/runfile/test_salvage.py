"""Salvaging: what is read of a file whose metadata is destroyed, and what is refused."""

import os
import shutil
from collections import Counter

import destroy
import numpy as np
import pytest
from run_tools import assert_same
from runs_in_progress import sampled

from omniinput_hpc.cli.salvage import salvage_file
from omniinput_hpc.errors import UserError
from omniinput_hpc.runfile import checksums, salvage, side_checkpoint
from omniinput_hpc.runfile.layout import checkpoint_of
from omniinput_hpc.runfile.reader import open_run

SMALL = ("run.rounds=5", "run.burn_in=2", "sampler.exchanges=1", "sampler.steps=4")


@pytest.fixture(autouse=True)
def _at_once(monkeypatch):
    """Read damaged counters at once again: no run that is live writes here."""
    monkeypatch.setattr(checksums, "PAUSE", 0.0)


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    return sampled(tmp_path_factory.mktemp("whole"), *SMALL)


@pytest.fixture(scope="module")
def begun(tmp_path_factory):
    """A run that ended after round 3 of 5; its side file is of the end of burn-in."""
    path = sampled(tmp_path_factory.mktemp("begun"), *SMALL, until=3)
    assert (side_checkpoint.read(path).rounds, side_checkpoint.read(path).burn_in) == (0, 2)
    return path


@pytest.fixture(scope="module")
def often(tmp_path_factory):
    """The same run, and its side file, as after round 2, of 3 rounds that are committed."""
    path = sampled(tmp_path_factory.mktemp("often"), *SMALL, until=2)
    with open_run(path) as run:
        of_two = side_checkpoint.of_run(run)
    sampled(path.parent, *SMALL, until=3)
    side_checkpoint.write(checkpoint_of(path), of_two)
    return path


def copy(path, folder):
    folder.mkdir(exist_ok=True)
    for file in (path, checkpoint_of(path)):
        shutil.copy(file, folder)
    return folder / path.name


def finished(new, folder):
    """Finish a salvaged run, in the place of run.h5."""
    folder.mkdir()
    shutil.copy(new, folder / "run.h5")
    return sampled(folder, *SMALL)


DAMAGE = {
    "superblock": destroy.superblock,
    "root": lambda path: destroy.header(path, "/"),
    "group": lambda path: destroy.header(path, "samples", seed=2),
    "dataset": lambda path: destroy.header(path, "histogram/counts"),
    "counter": lambda path: destroy.header(path, "progress/rounds_committed", seed=3),
    "all headers": destroy.all_headers,
    "all metadata": destroy.all_metadata,
}


@pytest.mark.slow
@pytest.mark.parametrize("damage", DAMAGE)
def test_every_round_comes_back(begun, whole, tmp_path, damage):
    path, new = copy(begun, tmp_path), tmp_path / "new.h5"
    DAMAGE[damage](path)
    with pytest.raises(UserError, match=r"can be brought back .* omniinput salvage"):
        open_run(path)
    before = path.read_bytes()
    assert salvage_file(path, new)[1] == []
    assert path.read_bytes() == before
    assert_same(new, begun)
    assert_same(finished(new, tmp_path / "more"), whole)
    assert side_checkpoint.read(new).rounds == 3
    assert sorted(p.name for p in tmp_path.glob("new*")) == ["new.h5", "new.h5.checkpoint"]


@pytest.mark.slow
@pytest.mark.parametrize("until", [-1, 0, 1, 5])
def test_a_run_of_any_length(whole, tmp_path, until):
    path, new = sampled(tmp_path / "old", *SMALL, until=until), tmp_path / "new.h5"
    begun = copy(path, tmp_path / "begun")
    destroy.all_metadata(path)
    assert salvage_file(path, new)[1] == []
    assert_same(new, begun)
    assert_same(finished(new, tmp_path / "more"), whole)


def flip(path, name, index=0):
    """Destroy the bytes of an entry of a dataset."""
    place = side_checkpoint.read(path).places[name]
    n_bytes = int(np.prod(place.shape[1:])) * np.dtype(place.dtype).itemsize
    destroy.overwrite(path, place.offset + index * n_bytes, n_bytes, seed=5)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["state/walker", "state/x", "histogram/lane_counts"])
def test_without_the_newest_state_the_side_files_is_taken(often, whole, tmp_path, name):
    path, new = copy(often, tmp_path), tmp_path / "new.h5"
    flip(path, name)  # of round 2, the last of three
    destroy.superblock(path)
    assert salvage_file(path, new)[1] == []
    with open_run(new) as run:
        assert run.rounds == 2
    assert_same(finished(new, tmp_path / "more"), whole)


@pytest.mark.slow
@pytest.mark.parametrize("value", [-1, 1, 6, 1 << 40])
def test_counters_that_cannot_be_right_are_not_believed(often, whole, tmp_path, value):
    path, new = copy(often, tmp_path), tmp_path / "new.h5"
    offset = side_checkpoint.read(path).places["progress/rounds_committed"].offset
    with open(path, "r+b") as file:
        file.seek(offset)
        file.write(value.to_bytes(8, "little", signed=True))
    destroy.superblock(path)
    assert salvage_file(path, new)[1] == []
    with open_run(new) as run:
        assert run.rounds == 2
    assert_same(finished(new, tmp_path / "more"), whole)


@pytest.mark.parametrize("name", ["histogram/counts", "samples/walker"])
def test_a_damaged_last_round_costs_that_round(begun, whole, tmp_path, name):
    path, new = copy(begun, tmp_path), tmp_path / "new.h5"
    flip(path, name, 2)  # the side file is of no round
    destroy.superblock(path)
    notes, findings = salvage_file(path, new)
    assert findings == []
    assert notes[0].startswith("rounds 2 to 2 are sampled again on resume, since")
    with open_run(new) as run:
        assert run.rounds == 2
    assert_same(finished(new, tmp_path / "more"), whole)


def test_a_damaged_round_before_the_checkpoint_is_told(often, tmp_path):
    path, new = copy(often, tmp_path), tmp_path / "new.h5"
    flip(path, "histogram/counts")
    destroy.superblock(path)
    assert any("round 0" in line for line in salvage_file(path, new)[1])
    with open_run(new) as run:
        assert run.rounds == 3  # going back to the side file's round mends nothing


def test_a_file_that_is_cut_short(often, tmp_path):
    path, new = copy(often, tmp_path), tmp_path / "new.h5"
    places = side_checkpoint.read(path).places
    for name, index in (("state/x", 0), ("samples/z", 2)):
        place = places[name]
        n_bytes = int(np.prod(place.shape[1:])) * np.dtype(place.dtype).itemsize
        with open(path, "r+b") as file:
            file.truncate(place.offset + index * n_bytes + 1)
        if name == "state/x":  # what the side file has
            assert salvage_file(path, new)[1] == []
            with open_run(new) as run:
                assert run.rounds == 2
            new.unlink()
            continue
        with pytest.raises(UserError, match=r"of round \d cannot be read.*nothing was written"):
            salvage_file(path, new)
        assert not list(tmp_path.glob("new.h5.salvaged*"))
        assert not new.exists()


def test_another_runs_side_file_is_refused(often, tmp_path):
    path, other = copy(often, tmp_path / "one"), sampled(tmp_path / "other", *SMALL, "run.seed=8")
    shutil.copy(checkpoint_of(other), checkpoint_of(path))
    destroy.superblock(path)
    with pytest.raises(UserError, match="is not the run that its side file describes"):
        salvage_file(path, tmp_path / "new.h5")
    longer = sampled(tmp_path / "longer", *SMALL, "run.rounds=9")
    shutil.copy(checkpoint_of(path), checkpoint_of(longer))
    with pytest.raises(UserError, match="is longer than the run file"):
        salvage_file(longer, tmp_path / "new.h5")
    assert not list(tmp_path.glob("new*"))


def test_another_runs_side_file_is_refused_if_walkers_never_swap(tmp_path):
    one_rung = (*SMALL, "ladder.betas=[1.5]", "run.rounds=2")
    path, other = (
        sampled(tmp_path / name, *one_rung, f"run.seed={seed}")
        for name, seed in (("one", 7), ("other", 8))
    )
    flip(path, "histogram/counts")  # the inputs still tell that it is this run
    destroy.superblock(path)
    assert any("round 0" in line for line in salvage_file(path, tmp_path / "new.h5")[1])
    shutil.copy(checkpoint_of(other), checkpoint_of(path))
    with pytest.raises(UserError, match="is not the run that its side file describes"):
        salvage_file(path, tmp_path / "newer.h5")


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", ["histogram/counts", "samples/walker", "exchange/walker", "state/walker", "samples/z"]
)
def test_what_is_read_in_a_wrong_place_is_not_kept(begun, tmp_path, monkeypatch, name):
    """A reader that is wrong on purpose: what it returns of a dataset is shifted."""
    path, new = copy(begun, tmp_path), tmp_path / "new.h5"
    read = salvage.OldFile.read

    def shifted(old, dataset, index=None):
        values = read(old, dataset, index)
        return np.roll(values, 1) if dataset == name else values

    monkeypatch.setattr(salvage.OldFile, "read", shifted)
    notes, findings = salvage_file(path, new)
    assert findings or "are sampled again on resume" in notes[0]


@pytest.mark.slow
def test_a_flipped_bit_is_found_or_mended(begun, whole, tmp_path):
    """One in each dataset, wherever a run has written; the superblock is gone, too."""
    random, places = np.random.default_rng(9), side_checkpoint.read(begun).places
    names = [name for name, place in places.items() if np.prod(place.shape)]
    counts = Counter()
    for name in names:
        path, new = copy(begun, tmp_path / "old"), tmp_path / "new.h5"
        place = places[name]
        n_bytes = int(np.prod(place.shape)) * np.dtype(place.dtype).itemsize
        written = n_bytes * 3 // 5 if place.shape[0] == 5 else n_bytes  # 3 of 5 rounds
        destroy.flip(path, 8 * place.offset + int(random.integers(8 * written)))
        destroy.superblock(path)
        notes, findings = salvage_file(path, new)
        counts["found"] += bool(findings)
        counts["mended"] += bool(notes)
        counts["harmless"] += not findings and not notes
        if not findings:
            assert_same(
                finished(new, tmp_path / f"finished-{len(list(tmp_path.iterdir()))}"), whole
            )
        new.unlink()
    assert counts.total() == len(names)
    assert counts["found"] == 0  # of no round before the side file's: it was written before round 0
    assert counts["mended"] > 10


@pytest.mark.parametrize(("name", "round_", "kept"), [
    ("samples/x", 2, 2),  # the newest: its walkers of the round before are there
    ("samples/z", 1, 0),  # the one before: only the side file's state is left
    ("histogram/counts", 0, 0),
])  # fmt: skip
def test_rounds_that_the_disk_does_not_give_are_sampled_again(
    begun, whole, tmp_path, monkeypatch, name, round_, kept
):
    path, new = copy(begun, tmp_path), tmp_path / "new.h5"
    bad = bad_sector(path, name, round_)
    monkeypatch.setattr(salvage.os, "pread", bad)
    notes, findings = salvage_file(path, new)
    assert findings == []
    words = f"rounds {kept} to 2 are sampled again on resume, since {name} of round {round_} cannot"
    assert notes[0].startswith(words)
    with open_run(new) as run:
        assert run.rounds == kept
    monkeypatch.undo()
    assert_same(finished(new, tmp_path / "more"), whole)


def bad_sector(path, name, index):
    """Return a `pread` that fails at an entry of a dataset."""
    place, pread = side_checkpoint.read(path).places[name], salvage.os.pread
    n_bytes = int(np.prod(place.shape[1:])) * np.dtype(place.dtype).itemsize
    begin = place.offset + index * n_bytes

    def bad(descriptor, n, offset):
        if offset < begin + n_bytes and offset + n > begin:
            raise OSError(5, "Input/output error")
        return pread(descriptor, n, offset)

    return bad


def test_a_bad_sector_before_the_checkpoint_is_refused(often, tmp_path, monkeypatch):
    path, new = copy(often, tmp_path), tmp_path / "new.h5"
    monkeypatch.setattr(salvage.os, "pread", bad_sector(path, "samples/x", 1))
    with pytest.raises(UserError, match=r"samples/x of round 1 cannot be read.*nothing was writ"):
        salvage_file(path, new)
    assert not list(tmp_path.glob("new*"))


def test_no_descriptor_is_left_where_the_counters_cannot_be_read(begun, tmp_path, monkeypatch):
    path = copy(begun, tmp_path)
    monkeypatch.setattr(salvage.checksums, "counter", lambda *_: 1 / 0)
    before = os.listdir("/proc/self/fd")
    with pytest.raises(ZeroDivisionError):
        salvage.OldFile(path)
    assert len(os.listdir("/proc/self/fd")) == len(before)
