"""Checksums: what they cover, that they do not depend on ranks, and counters after a kill."""

import h5py
import numpy as np
import pytest
from machine import WRITERS
from run_tools import assert_same
from runs_in_progress import WORLD

from omniinput_hpc.errors import UserError
from omniinput_hpc.runfile import checksums, layout, rescored, writers
from omniinput_hpc.runfile.fields import slab
from omniinput_hpc.runfile.reader import open_run

G = layout.Geometry(
    rounds=5, n_rungs=4, n_walkers=2, n_bins=5, samples_per_round=4, n_sites=3, n_values=5,
    n_kernels=1, n_tuned=2, flat=True, log_q=True, checksums=True,
)  # fmt: skip
TOML = '[run]\noutput = "a.h5"\nseed = 1\nrounds = 5\nburn_in = 2\n'
FIELDS = layout.layout(G)
ROUNDS = [(-2, 1), (-1, 2), (0, 1), (1, 2), (2, 3)]


@pytest.fixture(autouse=True)
def _at_once(monkeypatch):
    """Read damaged counters at once again: no run that is live writes here."""
    monkeypatch.setattr(checksums, "PAUSE", 0.0)


def slabs_of(round_, rungs=range(4)):
    """Return slabs of numbers that tell dataset, round and place, of some rungs."""
    found = {}
    for i, (name, field) in enumerate(FIELDS.items()):
        if slab(field, round_, range(4), 4) is None or name.startswith("checksum/"):
            continue
        shape = np.empty(field.shape, np.int8)[slab(field, round_, range(4), 4)].shape
        whole = (np.arange(np.prod(shape)) * (i + 3) + round_ + 7) % 5
        whole = whole.reshape(shape).astype(field.dtype)
        whole = np.arange(4.0) + round_ if name == "ladder/beta" else whole
        some = slice(rungs.start, rungs.stop)  # of pairs none, where only the last rung is held
        found[name] = whole if field.over == "bottom" else whole[some]
    return found


def make(path, ranks=1, rounds=ROUNDS, kind="gather"):
    """Commit rounds as so many ranks would: each hashes its own rungs."""
    first = layout.first_values(np.arange(4.0), np.arange(6.0))
    layout.create(path, G, first, {"config": TOML, "model_fingerprint": "none"})
    if ranks == 1:
        writer = writers.open_writer(kind, path, G, range(4), WORLD)
        for round_, committed in rounds:
            writer.commit(round_, slabs_of(round_), committed)
        writer.close()
        return path
    share = 4 // ranks
    with h5py.File(path, "r+", locking=False) as file:
        for round_, committed in rounds:
            for rank in range(ranks):
                rungs = range(rank * share, (rank + 1) * share)
                mine = checksums.with_sums(FIELDS, round_, rungs, slabs_of(round_, rungs))
                for name, values in mine.items():
                    if (where := slab(FIELDS[name], round_, rungs, 4)) is not None:
                        file[name][where] = values
            name = checksums.COUNTERS[round_ < 0]
            checksums.put_counter(file, name, committed)
    return path


@pytest.fixture
def path(tmp_path):
    return make(tmp_path / "a.h5")


def damage_of(path, change=None):
    """Return all that a reader finds in a file, after a change."""
    if change:
        with h5py.File(path, "r+", locking=False) as file:
            change(file)
    found = []
    with open_run(path, lambda _, words: found.append(words), lambda *_: None) as run:
        run.check_header()
        for round_ in range(run.rounds):
            run.check_round(round_)
        run.stored()
    return found


@pytest.mark.parametrize("kind", WRITERS)
def test_what_is_written_fits(tmp_path, kind):
    assert damage_of(make(tmp_path / "a.h5", kind=kind)) == []


@pytest.mark.parametrize("ranks", [2, 4])
def test_they_do_not_depend_on_the_number_of_ranks(tmp_path, path, ranks):
    assert_same(path, make(tmp_path / "b.h5", ranks))


NOT_EMPTY = [
    name for name, field in FIELDS.items()
    if 0 not in field.shape and not name.startswith("progress/") and name != checksums.PROGRESS
]  # fmt: skip


@pytest.mark.parametrize("name", NOT_EMPTY)
def test_every_dataset_is_covered(path, name):
    """A bit of what the last rounds wrote is changed: it is found, and its place is named."""
    field = FIELDS[name]
    where = {"round": (2,), "once": (), "burn-in": ()}.get(field.per, (0,))
    place = (*where, *(0 for _ in field.shape[len(where) :]))
    with h5py.File(path, "r+", locking=False) as file:
        bits = np.array(file[name][place], field.dtype).reshape(1).view(np.uint8)
        bits[0] ^= 1
        file[name][place] = bits.view(field.dtype)[0]
    found = damage_of(path)
    assert found and all("does not match its checksum" in words for words in found)
    if not name.startswith("checksum/"):
        assert len(found) == 1 and name in found[0]
        assert ("round 2" in found[0]) == (field.per not in ("once", "burn-in"))


def test_bytes_of_another_place_do_not_fit(path):
    """Two rungs, two rounds, or two slabs in turn that change places."""

    def swap(name, one, other):
        def change(file):
            a, b = file[name][one], file[name][other]
            file[name][one], file[name][other] = b, a

        return change

    with h5py.File(path, "r+", locking=False) as file:
        for name in ("samples/walker", "checksum/round"):  # equal bytes, but of other rounds
            file[name][1] = file[name][0]
    assert any("samples/walker of round 1" in words for words in damage_of(path))
    assert damage_of(path, swap("state/x", 0, 1))
    assert any("rung 2" in w for w in damage_of(path, swap("samples/x", (0, 2), (0, 3))))


def flip(name, index, bit):
    def change(file):
        file[name][index] = int(file[name][index]) ^ (1 << bit)

    return change


@pytest.mark.parametrize("name", checksums.COUNTERS)
def test_a_counter_with_another_bit_is_found_or_read_rightly(path, name):
    column, right = checksums.COUNTERS.index(name), [3, 2]
    with h5py.File(path, "r+", locking=False) as file:
        written = int(file[name][0])
        for bit in range(64):
            value = written ^ (1 << bit)
            file[name][0] = value - (1 << 64) if value >= 1 << 63 else value
            found, fits = checksums.counter(file, name)
            assert not fits or found == right[column] or bit < 2, bit


def test_a_counter_one_too_high_is_found_by_the_round_that_is_not_there(path):
    """3 rounds and the checksum of 3; the counter says 4, as if killed before the checksum."""
    with h5py.File(path, "r+", locking=False) as file:
        file["progress/rounds_committed"][0] = 4
    assert any("round 3" in words for words in damage_of(path))


@pytest.mark.parametrize("behind", ["counter", "checksum"])
@pytest.mark.parametrize("then", ["open", "grow"])
def test_a_kill_between_a_counter_and_its_checksum(tmp_path, path, behind, then):
    """The round was written, as all ranks had agreed: it counts, and a writer settles the file."""
    killed = make(tmp_path / "b.h5")
    name, value = "progress/rounds_committed", 3
    with h5py.File(killed, "r+", locking=False) as file:
        if behind == "counter":
            file[name][0] = value - 1
        else:
            file[checksums.PROGRESS][0, value % 2] = 12345  # half of it was written
    with open_run(killed) as run:
        assert (run.rounds, run.is_settled) == (value, False)
    assert damage_of(killed) == []
    if then == "open":
        writers.open_writer("gather", killed, G, range(4), WORLD).close()
    else:
        for one in (path, killed):
            layout.grow(one, layout.Geometry(**{**vars(G), "rounds": 9}), TOML)
    with open_run(killed) as run:
        assert (run.rounds, run.is_settled) == (value, True)
    assert_same(path, killed)


@pytest.mark.parametrize("name", ["config", "model_fingerprint", "n_sites", "created"])
def test_attributes_are_covered(path, name):
    def change(file):
        old = file.attrs[name]
        file.attrs[name] = old.replace("1", "2") + " " if isinstance(old, str) else old

    found = damage_of(path, change)
    assert (found == []) == (name == "n_sites")  # stored again as it was
    assert not found or "its attributes" in found[0]


def test_a_dataset_that_lies_elsewhere_is_found(path):
    def move(file):
        file["elsewhere"] = file["samples/walker"][...]
        del file["samples/walker"]
        file.move("elsewhere", "samples/walker")

    assert "the list of its datasets" in damage_of(path, move)[0]


def test_files_without_checksums_are_read_and_continued_as_they_are(tmp_path):
    old, path = layout.Geometry(**{**vars(G), "checksums": False}), tmp_path / "old.h5"
    first = layout.first_values(np.arange(4.0), np.arange(6.0))
    layout.create(path, old, first, {"config": TOML, "model_fingerprint": "none"})
    writer = writers.open_writer("gather", path, old, range(4), WORLD)
    for round_, committed in ROUNDS:
        writer.commit(round_, slabs_of(round_), committed)
    writer.close()
    assert damage_of(path) == []
    layout.grow(path, layout.Geometry(**{**vars(old), "rounds": 9}), TOML)
    with h5py.File(path, locking=False) as file:
        assert file.attrs["format_version"] == 2 and "checksum" not in file
        file_attributes = set(file.attrs)
    assert not any(name.startswith("checksum") for name in file_attributes)
    assert damage_of(path) == []


def test_a_file_that_hides_its_checksums_is_refused(path):
    with h5py.File(path, "r+", locking=False) as file:
        file.attrs["format_version"] = 2
    with pytest.raises(UserError, match="it has checksums"):
        open_run(path)


def test_side_files_have_checksums(tmp_path, path):
    side = tmp_path / "a.rescored.b.h5"
    with open_run(path) as run:
        rescored.create(side, run, {"config": TOML, "model_fingerprint": "other"})
    fields = rescored.fields_of(G)
    writer = writers.open_writer("gather", side, G, range(4), WORLD, fields)
    values = {"samples/z": np.ones((4, 4), np.float32), rescored.INPUTS: np.zeros(4, np.uint64)}
    writer.commit(0, values, 1)
    writer.close()
    with rescored.open_rescored(side) as whole:
        assert whole.rounds == 1 and (whole.z(0) == 1).all()
    with h5py.File(side, "r+", locking=False) as file:
        file["samples/z"][0, 2, 1] = 2.0
    match = "round 0, rung 2"
    with rescored.open_rescored(side) as damaged, pytest.raises(UserError, match=match):
        damaged.z(0)
