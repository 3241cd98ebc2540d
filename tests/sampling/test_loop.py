"""The central loop: the order of a round, totals, and what a stop drops."""

from collections import Counter

import numpy as np
import pytest
import torch
from launches import Counter as LaunchCounter
from launches import model_on_meta
from run_tools import assert_same
from runs_in_progress import FINGERPRINT, HeldLock, begin, config_of

from omniinput_hpc import kernels
from omniinput_hpc.config.kernels import LmConditional
from omniinput_hpc.errors import StopRun
from omniinput_hpc.kernels.parts.spans import SpanSchedule
from omniinput_hpc.models.checked import CheckedModel
from omniinput_hpc.runfile.reader import open_run
from omniinput_hpc.sampling import loop
from omniinput_hpc.sampling.restart import find_existing
from omniinput_hpc.sampling.rung import Rung
from omniinput_hpc.sampling.walkers import Recording, Walkers
from omniinput_hpc.tempering.ensembles import Canonical
from omniinput_hpc.tempering.ladder import Block

SMALL = ("run.rounds=3", "run.burn_in=2", "sampler.exchanges=2", "sampler.steps=4")


@pytest.fixture
def events(monkeypatch):
    """What the loop asks of rungs, the exchanger and the writer, in order."""
    found = []

    def note(owner, name, what):
        call = getattr(owner, name)

        def noted(*arguments, **options):
            found.append(what(arguments))
            return call(*arguments, **options)

        monkeypatch.setattr(owner, name, noted)

    for name in ("begin_round", "record", "adapt", "freeze"):
        note(Rung, name, lambda arguments, name=name: f"{name} {arguments[0].k}")
    note(loop.Exchanger, "swap", lambda arguments: f"swap {arguments[2]}")
    note(loop.GuardedWriter, "commit", lambda arguments: f"commit {arguments[1]}")
    return found


def round_of(number, burn_in=2, rungs=range(4)):
    """Return the events of a round, as they must come."""
    expected = [f"begin_round {k}" for k in rungs]
    for exchange in range(2):
        expected += [f"record {k}" for k in rungs]
        expected += [f"adapt {k}" for k in rungs if number < 0]
        expected.append(f"swap {2 * (number + burn_in) + exchange}")
    if number == -1:
        expected += [f"freeze {k}" for k in rungs]
    return [*expected, f"commit {number}"]


def test_the_order_of_every_round(tmp_path, events):
    run = begin(config_of(tmp_path, *SMALL))
    loop.sample(run)
    assert events == [event for number in range(-2, 3) for event in round_of(number)]
    assert run.next_round == 3


def test_ancestral_rounds_swap_nothing(tmp_path, events):
    changes = [
        "sampler.method=ancestral", "model.factory=markov_model:markov", "run.rounds=2",
        "ladder.betas=[0.0, 5.0]", "samples.every=1", "run.burn_in=0", "bins.upper=8.125",
    ]  # fmt: skip
    loop.sample(begin(config_of(tmp_path, *changes)))
    kinds = Counter(event.split()[0] for event in events)
    assert kinds == {"begin_round": 4, "record": 12, "commit": 2}


def spans_of_a_run(folder, monkeypatch):
    """Return the spans that a run redraws, [segments, rungs and blocks, steps]."""
    spans, draw = [], SpanSchedule.draw
    monkeypatch.setattr(
        SpanSchedule, "draw", lambda self, u: spans.append(draw(self, u)) or spans[-1]
    )
    changes = [
        *SMALL, "sampler.walkers=16", "sampler.blocks=2", "model.factory=markov_model:markov",
        "kernel.name=lm-conditional", "ladder.betas=[-2.0, 1.0, 5.0, 6.0]", "bins.upper=8.125",
    ]  # fmt: skip
    run = begin(config_of(folder, *changes))
    loop.sample(run)
    run.writer.close()
    ends = [(span.part, span.begin, span.end) for span in spans]
    return np.array(ends).reshape(-1, 4 * 2, 4, 3)


def test_all_rungs_and_blocks_make_moves_of_the_same_length(tmp_path, monkeypatch):
    """So that none waits for another; segments differ."""
    spans = spans_of_a_run(tmp_path, monkeypatch)
    assert len(spans) == (3 + 2) * 2
    assert (spans == spans[:, :1]).all()
    assert len(np.unique(spans[:, 0].reshape(len(spans), -1), axis=0)) == len(spans)


def keyed_by_rung(seed, block, rounds_before, exchange):
    """A wrong variant: the lengths of moves as they were drawn before."""
    indices = (block.k, rounds_before, exchange, *block.key)
    return tuple(loop.rng.generator(seed, purpose, *indices) for purpose in ("moves", "choices"))


def test_schedules_that_know_their_rung_would_differ(tmp_path, monkeypatch):
    """The test above would notice."""
    monkeypatch.setattr(loop, "streams", keyed_by_rung)
    spans = spans_of_a_run(tmp_path, monkeypatch)
    assert (spans != spans[:, :1]).any(axis=(0, 2, 3))[1:].all()


def work_of_segments(streams):
    """Return what three rungs' segments launch on a GPU, [segments][rungs]."""
    model, recording = model_on_meta(1, length=7), Recording(3, 3, np.dtype(np.uint16))
    counters = [[LaunchCounter() for _ in range(3)] for _ in range(3)]
    for k, beta in enumerate((-1.0, 3.0, 6.0)):
        kernel = kernels.build(LmConditional(name="lm-conditional"), model, 4)
        checked = CheckedModel(model, "model", (2e-5, 3e-6))
        walkers = Walkers(kernel, checked, Canonical(beta), "meta", recording)
        for exchange, of_rungs in enumerate(counters):
            walkers.place(np.zeros((4, 7), dtype=np.uint16), np.zeros(4, dtype=np.float32))
            segment = walkers.begin_segment(*streams(7, Block(k), 2, exchange), 0)
            of_rungs[k].record(model.kv_cache(4), warm=True)
            with torch.no_grad(), of_rungs[k]:
                for _ in range(3):
                    segment.step()
    return [[counter.work for counter in of_rungs] for of_rungs in counters]


def test_segments_of_all_rungs_are_equal_work():
    works = work_of_segments(loop.streams)
    for of_rungs in works:
        assert of_rungs[0].kernels > 300
        assert of_rungs == [of_rungs[0]] * 3
    assert len({of_rungs[0].kernels for of_rungs in works}) == 3
    assert all(len({work.kernels for work in some}) > 1 for some in work_of_segments(keyed_by_rung))


def test_what_walkers_draw_is_their_own_and_apart_from_schedules_and_swaps():
    blocks = [Block(k, b, 2) for k in range(3) for b in range(2)]
    drawn = [[one.random(64) for one in loop.streams(7, block, 4, 1)] for block in blocks]
    own, shared = (np.array(numbers) for numbers in zip(*drawn, strict=True))
    assert (shared == shared[0]).all()
    swaps = [loop.rng.generator(7, "exchange", k, 1).random(64) for k in range(3)]
    later = [other.random(64) for other in loop.streams(7, blocks[0], 4, 2)]
    different = np.array([*own, shared[0], *swaps, *later])
    assert len(np.unique(different)) == different.size


def test_totals_are_those_of_the_counted_rounds(tmp_path):
    run = begin(config_of(tmp_path, *SMALL))
    loop.sample(run)
    run.writer.close()
    with open_run(tmp_path / "run.h5") as done:
        inside_k = done.counts_kb().sum(axis=1)
        outside_k = done.outside_k2().sum(axis=1)
        np.testing.assert_array_equal(run.observer.counted.swaps_k2, done.swaps_k2())
    moves_k2 = np.stack([inside_k + outside_k, inside_k], axis=1)
    np.testing.assert_array_equal(run.observer.counted.moves_k2, moves_k2)
    assert (moves_k2[:, 0] == 3 * 2 * 4 * 8).all()


@pytest.mark.parametrize("ancestral", [False, True])
def test_pairs_that_a_round_does_not_try_are_not_shown(tmp_path, monkeypatch, ancestral):
    """With one exchange a round, even and odd pairs take turns."""
    changes = [*SMALL, "sampler.exchanges=1", "samples.every=1"]
    if ancestral:
        changes = [
            "sampler.method=ancestral", "model.factory=markov_model:markov", "run.rounds=2",
            "ladder.betas=[0.0, 5.0]", "samples.every=1", "run.burn_in=0", "bins.upper=8.125",
        ]  # fmt: skip
    run, told = begin(config_of(tmp_path, *changes)), []
    monkeypatch.setattr(run.progress, "committed", lambda round_, rate_p: told.append(rate_p))
    loop.sample(run)
    run.writer.close()
    assert [len(rate_p) for rate_p in told] == ([0, 0] if ancestral else [2, 1, 2, 1, 2])
    assert all((rate_p > 0).all() for rate_p in told)


class StopAfter:
    """A request to stop that comes after so many moves."""

    def __init__(self, moves):
        self.moves = moves

    def start(self, work):
        work(lambda: None)

    def after_move(self):
        self.moves -= 1
        if self.moves == 0:
            raise StopRun("asked to")


@pytest.mark.slow
@pytest.mark.parametrize(("moves", "rounds"), [(31, -1), (32 * 3 + 17, 1), (32 * 4, 1)])
def test_a_stop_drops_the_unfinished_round(tmp_path, moves, rounds):
    """A round is 32 moves of rungs; the first two are burn-in."""
    config = config_of(tmp_path, *SMALL)
    run = begin(config, stopping=StopAfter(moves))
    with pytest.raises(StopRun):
        loop.sample(run)
    run.writer.close()
    found = find_existing(config, FINGERPRINT, "require")
    assert (found.rounds, found.burn_in) == ((0, 0) if rounds < 0 else (rounds, 2))
    resumed = begin(config, found)
    assert resumed.next_round == (rounds if rounds > 0 else -2)
    loop.sample(resumed)
    resumed.writer.close()
    (tmp_path / "whole").mkdir()
    whole = begin(config_of(tmp_path / "whole", *SMALL))
    loop.sample(whole)
    whole.writer.close()
    assert_same(tmp_path / "run.h5", tmp_path / "whole/run.h5")


def test_an_error_names_its_rung_and_round(tmp_path):
    run = begin(config_of(tmp_path, *SMALL, "model.factory=toy_models:nan"))
    with pytest.raises(Exception, match="finite") as caught:
        loop.sample(run)
    (note,) = caught.value.__notes__
    assert note.startswith("in rung ") and "(beta = " in note and "), round " in note


def test_a_lost_lock_commits_nothing(tmp_path):
    lock = HeldLock()
    lock.is_held = False
    run = begin(config_of(tmp_path, *SMALL), lock=lock)
    with pytest.raises(RuntimeError, match="lock lost"):
        loop.sample(run)
    run.writer.close()
    with open_run(tmp_path / "run.h5") as done:
        assert (done.rounds, done.burn_in_committed) == (0, 0)


def test_a_lost_walker_is_not_committed(tmp_path, monkeypatch):
    from omniinput_hpc.sampling.exchange import Exchanger, LostWalker

    def spoil(self, rungs, exchange):
        self.imbalance_w[3] += 1

    monkeypatch.setattr(Exchanger, "swap", spoil)
    run = begin(config_of(tmp_path, *SMALL))
    with pytest.raises(LostWalker, match=r"lanes \[3\]"):
        loop.sample(run)
    run.writer.close()
    with open_run(tmp_path / "run.h5") as done:
        assert (done.rounds, done.burn_in_committed) == (0, 0)
