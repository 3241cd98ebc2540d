"""The run file: layout, creation, growth, slabs, and what a reader says of broken files."""

from dataclasses import replace

import h5py
import numpy as np
import pytest
from sealed_changes import changing

from omniinput_hpc.errors import UserError
from omniinput_hpc.runfile import layout
from omniinput_hpc.runfile.reader import open_run

G = layout.Geometry(
    rounds=4, n_rungs=4, n_walkers=20, n_bins=6, samples_per_round=40, n_sites=3, n_values=300,
    n_kernels=1, checksums=True,
)  # fmt: skip
BETA, EDGES = np.array([-1.0, 0.0, 1.0, 2.0]), np.arange(7.0)
TOML = '[run]\noutput = "a.h5"\nseed = 1\nrounds = 4\nburn_in = 3\n'


@pytest.fixture
def path(tmp_path):
    path = tmp_path / "a.h5"
    layout.create(
        path, G, layout.first_values(BETA, EDGES), {"config": TOML, "model_fingerprint": "none"}
    )
    return path


def test_layout_is_as_the_contract_says(path):
    with h5py.File(path, locking=False) as file:
        assert file.attrs["format"] == "omniinput-run"
        assert file["samples/x"].shape == (4, 4, 40, 3)
        assert file["samples/x"].dtype == np.uint16
        assert file["histogram/lane_counts"].shape == (2, 4, 16, 6)
        assert file["exchange/round_trips"].shape == (4, 80)
        for name in layout.layout(G):
            creation = file[name].id.get_create_plist()
            assert creation.get_layout() == h5py.h5d.CONTIGUOUS
            assert creation.get_alloc_time() == h5py.h5d.ALLOC_TIME_EARLY
        np.testing.assert_array_equal(file["ladder/beta"], BETA)
    assert not path.with_name("a.h5.partial").exists()
    assert path.stat().st_size >= layout.size_in_bytes(G)


def test_a_link_stays_one(tmp_path):
    """The file is made, and made longer, where the link leads to; so is what is not whole yet."""
    target, link = tmp_path / "disk" / "b.h5", tmp_path / "a.h5"
    target.parent.mkdir()
    link.symlink_to("disk/b.h5")  # dangling
    first = layout.first_values(BETA, EDGES)
    layout.create(link, G, first, {"config": TOML, "model_fingerprint": "none"})
    assert link.is_symlink() and target.is_file() and not target.is_symlink()
    layout.grow(link, replace(G, rounds=6), TOML)
    assert link.readlink().as_posix() == "disk/b.h5"
    with open_run(target) as run:
        assert run.rounds_planned == 6
    assert layout.partial_of(link) == tmp_path / "disk/b.h5.partial"
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["a.h5", "b.h5", "disk"]


def test_a_new_file_holds_no_rounds(path):
    with open_run(path) as run:
        assert (run.rounds, run.burn_in_committed, run.rounds_planned) == (0, 0, 4)
        assert run.checkpoint(range(4)) is None
        assert run.counts_kb().sum() == 0
        assert list(run.samples()) == []


@pytest.mark.parametrize("n_ranks", [1, 2, 4])
def test_slabs_of_all_ranks_tile_every_dataset(n_ranks):
    for name, field in layout.layout(G).items():
        if field.per == "once":
            continue
        covered = np.zeros(field.shape, dtype=int)
        rounds = {"round": range(4), "burn-in": range(-1, 2)}.get(field.per, range(2))
        for round_ in rounds:
            for rank in range(n_ranks):
                share = 4 // n_ranks
                rungs = range(rank * share, (rank + 1) * share)
                where = layout.slab(field, round_, rungs, 4)
                if where is not None:
                    covered[where] += 1
        assert (covered == 1).all(), name


def test_burn_in_writes_the_state_alone_and_alternates():
    fields = layout.layout(G)
    assert layout.slab(fields["histogram/counts"], -1, range(4), 4) is None
    assert layout.slab(fields["histogram/lane_counts"], -2, range(4), 4) is None
    slots = [layout.slab(fields["state/x"], r, range(4), 4)[0] for r in range(-3, 3)]
    assert slots == [1, 0, 1, 0, 1, 0]


def test_growing_keeps_everything(path):
    random = np.random.default_rng(2)
    before = {}
    with changing(path) as file:
        for name, field in layout.layout(G).items():
            if field.per != "once" and not name.startswith(("ladder/beta", "checksum/")):
                values = random.integers(100, size=field.shape).astype(field.dtype)
                file[name][...] = values
                before[name] = values
        file["progress/rounds_committed"][0] = 3
        file["progress/burn_in_committed"][0] = 3
    longer = layout.Geometry(**{**vars(G), "rounds": 9})
    layout.grow(path, longer, TOML.replace("rounds = 4", "rounds = 9"))
    with open_run(path) as run, h5py.File(path, locking=False) as file:
        assert (run.rounds, run.rounds_planned, run.config.run.rounds) == (3, 9, 9)
        for name, values in before.items():
            kept = 3 if layout.layout(G)[name].per == "round" else 2
            np.testing.assert_array_equal(file[name][:kept], values[:kept])


def broken(path, change):
    with h5py.File(path, "r+", locking=False) as file:
        change(file)
    with pytest.raises(UserError) as caught, open_run(path):
        pass
    assert str(path) in str(caught.value)
    return str(caught.value)


def test_readers_refuse_what_is_no_run(path, tmp_path):
    def rename(file):
        file.attrs["format"] = "something else"

    def delete(file):
        del file["state/z"]

    def widen(file):
        del file["bins/edges"]
        file["bins/edges"] = np.arange(30.0)

    def count(file):
        file["progress/rounds_committed"][0] = 77

    data = path.read_bytes()
    for change, words in [
        (rename, "not an omniinput_hpc run"),
        (delete, "not a valid run file"),
        (widen, "wrong shape"),
        (count, "out of range"),
    ]:
        path.write_bytes(data)
        assert words in broken(path, change)
    path.write_bytes(data[:1000])
    with pytest.raises(UserError, match="not a readable HDF5"):
        open_run(path)
    with pytest.raises(UserError, match="no such run file"):
        open_run(tmp_path / "nothing.h5")


def test_a_leftover_partial_file_is_overwritten(path):
    partial = path.with_name("a.h5.partial")
    partial.write_text("left by a killed run")
    path.unlink()
    layout.create(
        path, G, layout.first_values(BETA, EDGES), {"config": TOML, "model_fingerprint": "none"}
    )
    assert not partial.exists()
    with open_run(path) as run:
        assert run.rounds == 0
