"""What `walkers = "auto"` finds: pure decisions, whole runs, several ranks."""

import mmap

import numpy as np
import pytest
from run_tools import LATTICE, assert_same, run
from runs_in_progress import WORLD, config_of

from omniinput_hpc.cli import run as launch
from omniinput_hpc.errors import UserError
from omniinput_hpc.models import device
from omniinput_hpc.runfile.reader import open_run
from omniinput_hpc.sampling import auto_walkers, build, trial
from omniinput_hpc.sampling.auto_walkers import FIRST_WALKERS, MAX_WALKERS, MemoryBudget
from omniinput_hpc.sampling.trial import BatchTrial, try_batch

MIB = 2**20


class Alone:
    """A world of one rank; `others` is what each further rank says, question by question."""

    rank = 0

    def __init__(self, others=()):
        self._others = iter(others)

    def all(self, ok):
        return bool(ok) and next(self._others, True)


def search(
    rate, others=(), peak=0, more=0, memory=np.inf, n_batches=1, records=0.0,
    most=MAX_WALKERS, moves=0,
):  # fmt: skip
    """Find W on a machine that moves rate(W) walkers a second; return all numbers that gained."""

    def try_walkers(n):
        return BatchTrial(n, n / rate(n), peak * n, more * n)

    budget = MemoryBudget(n_batches, memory, memory, records)
    return [t.n_walkers for t in auto_walkers.find(Alone(others), try_walkers, budget, most, moves)]


def saturating(n):
    """A device whose every batch takes as long as 100 walkers."""
    return 1e4 * n / max(n, 100)


def test_the_number_is_doubled_until_nothing_is_gained():
    assert search(saturating) == [16, 32, 64, 128]
    assert search(lambda n: n**0.1) == [16]  # 7% more for twice as many
    assert search(lambda n: n**0.2) == [16 * 2**i for i in range(9)]  # 15%
    assert search(lambda n: n**0.2)[-1] == MAX_WALKERS
    assert search(lambda n: n, most=100) == [16, 32, 64]


def test_no_round_is_longer_than_five_minutes():
    """Twice the walkers take 1.6 times as long, from a second for 16."""
    assert search(lambda n: 16 * (n / 16) ** 0.32, moves=100) == [16, 32, 64]
    assert search(lambda n: 16 * (n / 16) ** 0.32, moves=1000) == [16]  # the smallest in any case


def test_one_disturbed_trial_does_not_end_it():
    assert search(lambda n: n * (0.4 if n == 32 else 1.0), most=64) == [16, 64]
    disturbed_twice = search(lambda n: n * (0.1 if n in (32, 64) else 1.0))
    assert disturbed_twice == [16]


def test_memory_ends_it():
    assert search(lambda n: n, peak=MIB, memory=100 * MIB) == [16, 32, 64]
    assert search(lambda n: n, peak=MIB, more=MIB, memory=100 * MIB, n_batches=3) == [16, 32]
    assert search(lambda n: n, peak=MIB, memory=100 * MIB, records=MIB) == [16, 32]
    with pytest.raises(UserError, match="not even 16 walkers"):
        search(lambda n: n, peak=MIB, memory=15 * MIB)


def test_no_rank_takes_more_than_any_other():
    """Questions are: does it fit at all; then does it fit, did it fit, does it gain."""
    assert search(lambda n: n, others=[True, True, True, True, False]) == [16, 32]  # no budget
    assert search(lambda n: n, others=[True, True, True, False] + 2 * [True] + [False]) == [16]
    with pytest.raises(UserError, match="not even"):
        search(lambda n: n, others=[False])


def test_it_is_a_multiple_of_the_groups_of_lanes():
    assert all(n % FIRST_WALKERS == 0 for n in search(saturating)) and FIRST_WALKERS == 16


def test_a_hosts_memory_is_seen():
    free = device.free_bytes("cpu")
    assert 0 < free < 2**50
    before = device.held_bytes("cpu")
    device.reset_peak("cpu")
    with mmap.mmap(-1, 64 * MIB) as block:  # malloc may have so much left over
        block.write(b"1" * (64 * MIB))
        assert device.held_bytes("cpu") - before > 32 * MIB
    assert device.peak_bytes("cpu") - before > 32 * MIB


@pytest.mark.parametrize("prefix", ["", "total_"])
def test_memory_that_caches_files_counts_as_free(prefix, tmp_path):
    text = f"anon 7\n{prefix}active_file 30\n{prefix}inactive_file 12\nslab 5\n"
    (tmp_path / "memory.stat").write_text(text)
    assert device._cached_bytes(tmp_path / "memory.stat", prefix) == 42
    assert device._cached_bytes(tmp_path / "none", prefix) == 0


def auto(folder, name="run"):
    path = folder / f"{name}.toml"
    text = LATTICE.format(output=folder / f"{name}.h5")
    path.write_text(text.replace("walkers = 8", 'walkers = "auto"'))
    return path


def stored(path):
    with open_run(path) as run_:
        return run_.config.sampler.walkers, run_.walkers


@pytest.fixture
def quick(monkeypatch):
    """Trials as short as can be."""
    monkeypatch.setattr(trial, "BATCH_SECONDS", 0.0)


def call(*words):
    return launch.main(list(map(str, words)))


@pytest.mark.slow
def test_a_run_is_that_with_the_number_given(tmp_path, monkeypatch, quick):
    path = auto(tmp_path)
    monkeypatch.setattr(auto_walkers, "most_walkers", lambda config: 32)
    monkeypatch.setattr(auto_walkers, "MIN_GAIN", 0.0)
    assert call(path) == 0
    assert stored(tmp_path / "run.h5") == (32, 32)
    given = ["--set", "sampler.walkers=32", "--set", f"run.output={tmp_path / 'given.h5'}"]
    assert call(path, *given) == 0
    assert_same(tmp_path / "run.h5", tmp_path / "given.h5")


@pytest.mark.slow
def test_a_run_goes_on_with_the_number_in_its_file(tmp_path, monkeypatch, quick, capfd):
    path, whole = auto(tmp_path), tmp_path / "whole.h5"
    monkeypatch.setattr(auto_walkers, "most_walkers", lambda config: 16)
    assert call(path, "--set", "run.rounds=2") == 0

    def never(*_):
        raise AssertionError("it was looked for again")

    monkeypatch.setattr(auto_walkers, "try_batch", never)
    assert call(path, "--set", "run.rounds=3", "--restart", "require") == 0
    assert call(tmp_path / "run.h5", "--set", "run.rounds=4") == 0
    assert call(tmp_path / "run.h5", "--set", "sampler.walkers=auto", "--set", "run.rounds=5") == 0
    assert stored(tmp_path / "run.h5") == (16, 16)
    given = ["--set", "sampler.walkers=16", "--set", f"run.output={whole}"]
    assert call(path, *given) == 0
    assert_same(tmp_path / "run.h5", whole)
    assert call(path, "--set", "sampler.walkers=32") == 2
    assert "sampler.walkers is 16 in the file and 32 here" in capfd.readouterr().err
    assert call("--verify", tmp_path / "run.h5") == 0


@pytest.mark.slow
def test_check_says_what_it_found_and_measured(tmp_path, quick, capfd, monkeypatch):
    monkeypatch.setattr(auto_walkers, "most_walkers", lambda config: 32)
    assert call(auto(tmp_path), "--check") == 0
    text = capfd.readouterr().err
    assert 'found by "auto", moves/s of a rung with 16: ' in text
    assert "of host memory per rank" in text
    assert not (tmp_path / "run.h5").exists()


def test_a_check_alone_measures_only_what_does_not_take_long(tmp_path, quick, capfd, monkeypatch):
    number = ["--set", "sampler.walkers=8", "--check"]
    assert call(auto(tmp_path), *number) == 0
    assert "\nmeasured" in capfd.readouterr().err
    monkeypatch.setattr(auto_walkers, "MAX_TRIAL_SECONDS", 0.0)
    assert call(auto(tmp_path), *number) == 0
    assert "\nmeasured" not in capfd.readouterr().err


@pytest.mark.parametrize("kernel", ["discrete-langevin", "lm-conditional"])
def test_trial_moves_where_segments_end_in_draws_of_the_model(tmp_path, kernel):
    """A run's walkers are placed anew after each segment, and so are a trial's."""
    config = config_of(
        tmp_path, "model.factory=toy_models:normalized", "ladder.betas=[0.0, 2.0]",
        "ladder.anchors=true", f"kernel.name={kernel}",
    )  # fmt: skip
    built = build.build(WORLD, config, None)
    assert built.model_beta == 2.0
    assert auto_walkers.memory_of_moves(WORLD, built) is not None


def test_walkers_are_found_for_a_block(tmp_path, quick):
    """And a rung has so many times as many."""
    built = build.build(WORLD, config_of(tmp_path, "sampler.blocks=2"), None)
    found, trials, _ = auto_walkers.find_walkers(WORLD, built, 32)
    assert found.config.sampler.block_walkers == trials[-1].n_walkers in (16, 32)
    assert found.geometry.n_walkers == 2 * trials[-1].n_walkers
    assert [(rung.k, rung.block.number) for rung in found.rungs] == [
        (k, b) for k in range(4) for b in range(2)
    ]
    assert all(len(rung.walker_w) == trials[-1].n_walkers for rung in found.rungs)


def test_the_time_counts_in_which_a_model_waits(tmp_path, quick):
    """As for a server; CPU time would not show it."""
    keys = ("model.factory=slow_models:slow", "model.options.seconds=0.05")
    built = build.build(WORLD, config_of(tmp_path, *keys), None)
    assert try_batch(built, 4, 1, False).seconds > 0.04


def test_ranks_that_share_a_gpu_are_counted_by_the_gpu():
    eight = [f"GPU-{i}" for i in range(8)]
    one_each = ["a"] * 8
    assert [auto_walkers.sharers(one_each, eight, rank) for rank in range(8)] == [1] * 8
    assert auto_walkers.sharers(one_each * 2, eight * 2, 3) == 2
    assert auto_walkers.sharers(["a"] * 3, ["GPU-0", "GPU-0", "GPU-1"], 1) == 2
    assert (
        auto_walkers.sharers(["a", "a", "b"], ["", "", ""], 0) == 2
    )  # CPUs: a host's ranks share it
    assert auto_walkers.sharers(["a", "b"], ["/cuda:0", "/cuda:0"], 0) == 1  # no uuid: by host


def test_a_trials_memory_holds_what_graphs_take(tmp_path, monkeypatch):
    built = build.build(WORLD, config_of(tmp_path), None)
    monkeypatch.setattr(device, "peak_bytes", lambda name: 1000)
    monkeypatch.setattr(device, "held_bytes", lambda name: 300)
    outside = iter([50, 650, 50, 20])
    monkeypatch.setattr(device, "outside_bytes", lambda name: next(outside))
    assert try_batch(built, 4, 1, False).peak == 700 + 600
    assert try_batch(built, 4, 1, False).peak == 700  # another process gave memory back meanwhile


@pytest.mark.slow
def test_ranks_agree_on_one_number(tmp_path):
    done = run(auto(tmp_path), ranks=2, module="quick_trials")
    assert done.returncode == 0, done.stderr
    number, walkers = stored(tmp_path / "run.h5")
    assert number == walkers and number % FIRST_WALKERS == 0
