"""The second copy of the checkpoint: what it holds, when it is written, and whose it is."""

import errno
import json
import os
import shutil
from dataclasses import replace

import numpy as np
import pytest
from runs_in_progress import WORLD, begin, config_of, sampled

from omniinput_hpc.errors import UserError
from omniinput_hpc.runfile import side_checkpoint
from omniinput_hpc.runfile.layout import checkpoint_of, layout
from omniinput_hpc.runfile.reader import open_run
from omniinput_hpc.runfile.side_checkpoint import ALWAYS, IN_TURN, SideWriter, fields_of
from omniinput_hpc.sampling import first_look, restart
from omniinput_hpc.sampling.restart import find_existing

SMALL = ("run.rounds=3", "run.burn_in=2", "sampler.exchanges=1", "sampler.steps=4")
ALONE = ("ladder.betas=[1.0]", "run.burn_in=0")


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    return sampled(tmp_path_factory.mktemp("side"), *SMALL)


@pytest.fixture
def path(whole, tmp_path):
    for file in (whole, checkpoint_of(whole)):
        shutil.copy(file, tmp_path)
    return tmp_path / whole.name


@pytest.fixture
def often(monkeypatch):
    """A copy after every round."""
    monkeypatch.setattr(side_checkpoint, "EVERY", 0.0)
    monkeypatch.setattr(side_checkpoint, "SHARE", np.inf)


def assert_copy(path):
    """Assert that a side file holds its run file's header and newest state, and where it lies."""
    side = side_checkpoint.read(path)
    with open_run(path) as run:
        assert (side.rounds, side.burn_in) == (run.rounds, run.burn_in_committed)
        for name in fields_of(run.geometry, ALWAYS):
            assert side.slabs[name].tobytes() == run.entry(name).tobytes(), name
        in_turn = IN_TURN if run.rounds else ("parity",)
        for name in fields_of(run.geometry, in_turn):
            assert side.slabs[name].tobytes() == run.entry(name, run.last_round % 2).tobytes(), name
        for name, place in side.places.items():
            stored = run.entry(name).tobytes()
            assert path.read_bytes()[place.offset : place.offset + len(stored)] == stored
        assert set(side.places) == set(layout(run.geometry))
        assert side.is_of(side_checkpoint.of_run(run))
    return side


@pytest.mark.parametrize("changes", [(), ALONE, ("ladder.tune=true", "run.burn_in=6")])
def test_after_the_last_round_it_is_a_copy(tmp_path, changes):
    side = assert_copy(sampled(tmp_path, *SMALL, *changes))
    assert side.rounds == 3


@pytest.mark.usefixtures("often")
def test_each_copy_is_of_a_committed_round(tmp_path, monkeypatch):
    seen = []
    write = side_checkpoint.write

    def writing(path, side):
        write(path, side)
        seen.append((side.burn_in, side.rounds))
        if side.has_state:
            assert_copy(tmp_path / "run.h5")

    monkeypatch.setattr(side_checkpoint, "write", writing)
    sampled(tmp_path, *SMALL)
    assert seen == [(0, 0), (1, 0), (2, 0), (2, 1), (2, 2), (2, 3)]


def test_copies_are_rare(tmp_path, monkeypatch):
    seen = []
    monkeypatch.setattr(side_checkpoint, "write", lambda path, side: seen.append(side.rounds))
    sampled(tmp_path, *SMALL, "run.rounds=9")
    assert seen == [0, 0, 9]  # at the start, after burn-in, at the end


def test_the_time_that_copies_take_is_bounded(monkeypatch, whole):
    now = [0.0]
    monkeypatch.setattr(side_checkpoint.time, "monotonic", lambda: now[0])
    monkeypatch.setattr(side_checkpoint, "write", lambda path, side: now.__setitem__(0, now[0] + 2))
    writer = SideWriter(whole, WORLD)
    taken, first = now[0], now[0]
    values = dict(side_checkpoint.read(whole).slabs)
    with open_run(whole) as run:
        g = replace(run.geometry, rounds=10**6)
    for round_ in range(10_000):
        now[0] += 1.0
        before = now[0]
        writer.after_commit(round_, values, range(g.n_rungs), g)
        taken += now[0] - before
    assert taken > 2 * first
    assert taken < 0.006 * now[0]


def test_a_flipped_bit_or_a_missing_end_is_noticed(path):
    side_path = checkpoint_of(path)
    good = side_path.read_bytes()
    random = np.random.default_rng(3)
    for at in random.integers(8 * len(good), size=300):
        bad = bytearray(good)
        bad[at // 8] ^= 1 << (at % 8)
        side_path.write_bytes(bad)
        with pytest.raises(UserError, match="is not a valid side file"):
            side_checkpoint.read(path)
    for length in (0, 7, 100, len(good) - 1):
        side_path.write_bytes(good[:length])
        with pytest.raises(UserError, match="is not a valid side file"):
            side_checkpoint.read(path)
    side_path.unlink()
    with pytest.raises(UserError, match="has no side file"):
        side_checkpoint.read(path)


def test_a_side_file_that_contradicts_itself_is_refused(path):
    side = side_checkpoint.read(path)
    place = side.places["samples/x"]
    for wrong in (
        replace(side, attributes={**side.attributes, "format_version": 1}),
        replace(side, geometry=replace(side.geometry, n_bins=5)),
        replace(side, geometry=replace(side.geometry, n_rungs=-1)),
        replace(side, places={**side.places, "samples/x": replace(place, offset=1 << 59)}),
        replace(side, places={"samples/x": place}),
        replace(side, slabs={**side.slabs, "state/x": side.slabs["state/z"]}),
        replace(side, geometry=replace(side.geometry, n_walkers=3)),
        replace(side, attributes={}),
        replace(side, attributes={**side.attributes, "config": "a = ["}),
        replace(side, attributes={**side.attributes, "config": "a = 1"}),
        replace(side, attributes={**side.attributes, "config": "[run]\nburn_in = 'x'"}),
        replace(side, attributes={**side.attributes, "more": {"a": 1}}),
        replace(side, places={**side.places, "samples/x": replace(place, offset=side.n_bytes - 1)}),
        replace(side, rounds=4),
        replace(side, burn_in=3),
        replace(side, burn_in=1),
        replace(side, slabs={n: v for n, v in side.slabs.items() if n != "state/x"}),
        replace(side, rounds="many"),
    ):
        side_checkpoint.write(checkpoint_of(path), wrong)
        with pytest.raises(UserError, match="is not a valid side file"):
            side_checkpoint.read(path)


def test_another_runs_side_file_is_replaced(path, tmp_path):
    other = tmp_path / "other"
    sampled(other, *SMALL, "run.seed=8")
    shutil.copy(checkpoint_of(other / "run.h5"), checkpoint_of(path))
    with open_run(path) as run:
        assert not side_checkpoint.read(path).is_of(side_checkpoint.of_run(run))
    SideWriter(path, WORLD)
    assert_copy(path)


def full(path, side):
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


@pytest.mark.usefixtures("often")
def test_a_full_disk_is_one_warning(tmp_path, monkeypatch):
    warnings = []
    monkeypatch.setattr(
        side_checkpoint.log, "warning", lambda text, *words: warnings.append(text % words)
    )
    monkeypatch.setattr(side_checkpoint, "write", full)
    path = sampled(tmp_path, *SMALL)
    with open_run(path) as run:
        assert run.rounds == 3
    assert len(warnings) == 1
    assert "run.h5.checkpoint cannot be written: No space left on device; the run" in warnings[0]
    assert not checkpoint_of(path).exists()


def test_on_a_full_disk_another_runs_file_goes_and_the_runs_own_stays(path, tmp_path, monkeypatch):
    own, other = checkpoint_of(path).read_bytes(), tmp_path / "other"
    others = checkpoint_of(sampled(other, *SMALL, "run.seed=8")).read_bytes()
    monkeypatch.setattr(side_checkpoint, "write", full)
    SideWriter(path, WORLD)
    assert checkpoint_of(path).read_bytes() == own
    checkpoint_of(path).write_bytes(others)
    SideWriter(path, WORLD)
    assert not checkpoint_of(path).exists()


def test_a_longer_file_gets_a_new_side_file(tmp_path, monkeypatch):
    path = sampled(tmp_path, *SMALL)
    before = side_checkpoint.read(path)
    config = config_of(tmp_path, *SMALL, "run.rounds=5")
    found = find_existing(config, "lattice", "auto")
    assert isinstance(found, restart.Existing)
    run = begin(config, found)
    after = assert_copy(path)
    run.writer.close()
    assert not before.is_of(after)
    assert after.places != before.places


def test_it_lies_beside_the_target_of_a_link(tmp_path):
    (tmp_path / "there").mkdir()
    (tmp_path / "link.h5").symlink_to(tmp_path / "there/run.h5")
    assert checkpoint_of(tmp_path / "link.h5") == tmp_path / "there/run.h5.checkpoint"


def test_other_programs_can_read_it(path):
    from safetensors import safe_open

    with safe_open(checkpoint_of(path), framework="np") as file:
        about = json.loads(file.get_tensor("about").tobytes())
        assert file.get_tensor("state/x").shape == (4, 8, 6)
    assert about["rounds"] == 3
    assert about["attributes"]["config"].startswith("[run]")
    assert len(about["attributes"]["model_probe_z"]) == first_look.N_PROBES
