"""Where rungs colder than a language model itself start."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch
from exactness import exact_distribution
from planted_passages import PlantedPassages
from run_tools import assert_same
from runs_in_progress import begin, config_of, sampled

from omniinput_hpc.config import kernels
from omniinput_hpc.histogram import lane_groups, starting_parts
from omniinput_hpc.kernels.independent import AutoregressiveSampler
from omniinput_hpc.kernels.parts.categorical import pick
from omniinput_hpc.kernels.parts.device_rng import DeviceStream
from omniinput_hpc.sampling import anchors as anchors_module
from omniinput_hpc.sampling import loop
from omniinput_hpc.sampling.anchors import (
    COLD_STARTS,
    Anchors,
    found_texts,
    try_rows,
    uniform_every_move,
)
from omniinput_hpc.sampling.rung import Rung
from omniinput_hpc.sampling.walkers import Walkers
from omniinput_zoo.exact import markov

RARE = PlantedPassages(12, 64, n_passages=6, enter_bits=9, n_rare=1, leave_bits=6, seed=2)
"""Whose passages begin with a step of probability 1 / 512."""


def like(model, n_walkers):
    return torch.zeros((n_walkers, model.n_sites), dtype=torch.int64)


def stream(n_walkers=16):
    return DeviceStream(np.random.default_rng(5), torch.device("cpu"), n_walkers * 64)


def anchors_of(model, n_walkers):
    rows = try_rows(model, n_walkers, "cpu")
    return Anchors(model, like(model, n_walkers), True, rows, None)


@pytest.mark.parametrize("n_walkers", [6, 16, 48, 100])
def test_parts_are_whole_groups_of_lanes(n_walkers):
    part_w, group_w = starting_parts(n_walkers, COLD_STARTS), lane_groups(n_walkers)
    assert np.unique(part_w).tolist() == [0, 1, 2] and (np.diff(part_w) >= 0).all()
    assert len(np.unique(np.stack([part_w, group_w]), axis=1).T) == len(np.unique(group_w))
    assert np.bincount(part_w).min() >= n_walkers // 3 - n_walkers // 16 - 1


def test_a_search_finds_passages_that_the_model_itself_hardly_ever_draws():
    own = anchors_of(RARE, 48).cold_start(14.0, np.random.default_rng(1), range(16), 48)
    assert (RARE.in_passage(own) < 6).all()  # the first lanes: the model's own texts
    found = found_texts(RARE, like(RARE, 48), 14.0 / 11.0, 16, stream(48))
    ends = found[RARE.in_passage(found) >= 6, -1]
    assert len(ends.unique()) >= 2


def test_the_drawn_half_is_resampled_to_the_target():
    """Means over many draws are those of the target, and not those of the proposal."""
    model, b = markov("cpu"), 3.0
    m = model.n_sites - 1
    x = torch.cat([found_texts(model, like(model, 512), b, 256, stream(512))[:128]])
    target = exact_distribution(model, b * m)
    z_all = model.output(model.all_inputs()).numpy()
    mean, sd = target @ z_all, np.sqrt(target @ z_all**2 - (target @ z_all) ** 2)
    z = model.output(x).numpy()
    # of 256 weighted draws, resampled: some three times the error of independent ones
    assert abs(z.mean() - mean) < 4 * 3 * sd / np.sqrt(len(z))


def test_repetitions_are_evaluated_once_for_all_cold_rungs(monkeypatch):
    """And the starts are those of rungs that evaluate them themselves."""
    evaluated, output = [], type(RARE).output

    def counted(self, x):
        evaluated.append(len(x))
        return output(self, x)

    monkeypatch.setattr(type(RARE), "output", counted)
    anchors = anchors_of(RARE, 16)

    def start(of, beta):
        evaluated.clear()
        return of.cold_start(beta, np.random.default_rng(1), range(8), 48)  # no search: parts 0, 1

    first = start(anchors, 12.0)
    assert first is not None
    n_values, n_pairs = -(-RARE.n_values // 16), -(-16 * 15 // 16)
    assert len(evaluated) == n_values + n_pairs + 1  # batches of 16, and the texts that are drawn
    again = start(anchors, 14.0)
    assert len(evaluated) == 1
    assert torch.equal(again, start(anchors_of(RARE, 16), 14.0))


class WithPrefixes(PlantedPassages):
    """The same with `begin` and `extend`, and without any evaluation of more inputs than asked."""

    def begin(self, x):
        whole = torch.nn.functional.pad(x, (0, self.n_sites - x.shape[1]))
        return SimpleNamespace(x=x, log_p=self.conditional_logits(whole)[1][:, x.shape[1]])

    def extend(self, state, values):
        return self.begin(torch.cat([state.x, values[:, None]], dim=1))


def repeated(most, monkeypatch, screened=2):
    """Return z of the repetitions of single values that are evaluated, of 64, ascending."""
    monkeypatch.setattr(anchors_module, "MAX_REPEATED", most)
    monkeypatch.setattr(anchors_module, "N_SCREENED", screened)
    model = WithPrefixes(12, 64, n_passages=6, enter_bits=9, n_rare=1, leave_bits=6, seed=2)
    found = anchors_module.Repetitions(model, like(model, 16))
    values, z = found._constant
    assert torch.equal(z, model.output(values[:, None].expand(-1, 12)))
    assert len(found.best(12)) == 12
    return z


def test_of_a_large_vocabulary_only_likely_repetitions_are_evaluated(monkeypatch):
    """In a Markov chain p(v | v) says all of it: the best are those of evaluating all."""
    every, some = repeated(64, monkeypatch), repeated(24, monkeypatch)
    assert (len(every), len(some)) == (64, 24)
    assert torch.equal(every[:8], some[:8])


def test_repetitions_screened_the_wrong_way_round_are_others(monkeypatch):
    every = repeated(64, monkeypatch)
    monkeypatch.setattr(anchors_module, "pick", lambda rows, values: -pick(rows, values))
    assert not torch.equal(every[:8], repeated(24, monkeypatch)[:8])


def test_inputs_too_short_to_screen_are_evaluated_whole(monkeypatch):
    assert len(repeated(24, monkeypatch, screened=12)) == 64


class Ended(Exception):
    """A start was ended."""


def test_a_start_is_ended_between_batches_and_can_begin_again():
    calls = []

    def end_at_the_third():
        calls.append(None)
        if len(calls) == 3:
            raise Ended

    anchors = anchors_of(RARE, 16)
    words = (14.0, np.random.default_rng(1), range(16), 16)
    with pytest.raises(Ended):
        anchors.cold_start(*words, end_at_the_third)
    assert len(calls) == 3
    again = anchors.cold_start(14.0, np.random.default_rng(1), range(16), 16)
    fresh = anchors_of(RARE, 16).cold_start(14.0, np.random.default_rng(1), range(16), 16)
    assert torch.equal(again, fresh)


def test_each_third_is_in_its_place_and_blocks_have_theirs():
    anchors = anchors_of(RARE, 48)
    start = anchors.cold_start
    x = start(14.0, np.random.default_rng(1), range(48), 48)
    part_w = starting_parts(48, COLD_STARTS)
    repeated = x[torch.from_numpy(part_w == 1)]
    assert all(len(row.unique()) <= 2 for row in repeated)
    assert any(len(row.unique()) > 2 for row in x[torch.from_numpy(part_w == 2)])
    halves = [
        anchors_of(RARE, 24).cold_start(14.0, np.random.default_rng(1), lanes, 48)
        for lanes in (range(24), range(24, 48))
    ]
    blocks = torch.cat(halves)
    assert torch.equal(blocks[torch.from_numpy(part_w == 1)], repeated)
    assert start(11.0, np.random.default_rng(1), range(48), 48) is None  # the model's own rung


@pytest.mark.parametrize("n_sites", [2, 3, 4, 5])
def test_spaces_of_few_sites_are_searched_too(n_sites):
    model = markov("cpu", n_sites=n_sites)
    x = anchors_of(model, 48).cold_start(2.0 * n_sites, np.random.default_rng(1), range(48), 48)
    assert x.shape == (48, n_sites)
    z_all = model.output(model.all_inputs())
    found = x[torch.from_numpy(starting_parts(48, COLD_STARTS) == 2)]
    assert model.output(found).min() == z_all.min()


AHEAD = (
    "model.factory=markov_model:drawn_together", "ladder.betas=[0.0, 5.0]", "ladder.anchors=true",
    "kernel.name=lm-conditional", "bins.upper=8.125", "sampler.exchanges=6", "run.rounds=3",
    "run.burn_in=1",
)  # fmt: skip
"""Of 6 segments a round, 3 are drawn at once: 24 inputs of 8 walkers each."""


@pytest.mark.parametrize(("blocks", "at_once"), [(1, 3), (2, 6)])
def test_each_segment_ends_with_its_own_draws(tmp_path, monkeypatch, blocks, at_once):
    drawn, ends, draw, record = [], [], AutoregressiveSampler.draw, Rung.record

    def noted_draw(self, like, stream):
        drawn.append(draw(self, like, stream))
        return drawn[-1]

    def noted_record(self, recorded, every, first_move):
        ends.append((self.k, self.block.number, recorded.z_tw[-1].copy()))
        record(self, recorded, every, first_move)

    monkeypatch.setattr(AutoregressiveSampler, "draw", noted_draw)
    monkeypatch.setattr(Rung, "record", noted_record)
    run = begin(config_of(tmp_path, *AHEAD, f"sampler.blocks={blocks}"))
    loop.sample(run)
    run.writer.close()
    assert len(drawn) == 4 * 6 // at_once * blocks
    assert {len(batches) for batches in drawn} == {at_once}
    for b in range(blocks):  # blocks draw in turn
        mine = [batch.z.numpy() for batches in drawn[b::blocks] for batch in batches]
        found = [z_w for k, number, z_w in ends if (k, number) == (1, b)]
        np.testing.assert_array_equal(found, mine)
    z = np.concatenate([batch.z.numpy() for batches in drawn for batch in batches])
    assert len(np.unique(z)) > len(z) / 2


@pytest.mark.parametrize("outlive", [False, True])
def test_draws_that_outlive_a_round_would_change_a_resumed_run(tmp_path, monkeypatch, outlive):
    folders = [tmp_path / "stopped", tmp_path / "whole"]
    for folder in folders:
        folder.mkdir()
    if outlive:  # wrong: a round begins with what is left of the one before
        draw_ahead = Walkers._draw_ahead
        monkeypatch.setattr(
            Walkers, "_draw_ahead", lambda self, n, stream: draw_ahead(self, n + 1, stream)
        )
    sampled(folders[0], *AHEAD, until=1)
    stopped, whole = (sampled(folder, *AHEAD) for folder in folders)
    if outlive:
        with pytest.raises(AssertionError):
            assert_same(stopped, whole)
    else:
        assert_same(stopped, whole)


def mixture(*names):
    return kernels.Mixture(name="mixture", parts=[{"name": name} for name in names])


@pytest.mark.parametrize(
    ("options", "in_parts"),
    [
        (kernels.Metropolis(), True),
        (kernels.LmConditional(name="lm-conditional"), True),
        (kernels.GibbsWithGradients(name="gibbs-with-gradients"), False),
        (kernels.DiscreteLangevin(name="discrete-langevin"), False),
        (mixture("metropolis", "lm-conditional"), True),
        (mixture("metropolis", "gibbs-with-gradients"), False),
    ],
)
def test_on_a_gpu_whole_inputs_are_drawn_where_moves_take_no_less(options, in_parts):
    cached, plain = SimpleNamespace(kv_cache=lambda n: None), SimpleNamespace()
    assert uniform_every_move(options, cached, "cuda:0") == (not in_parts)
    assert uniform_every_move(options, plain, "cuda:0")
    assert uniform_every_move(options, cached, "cpu")


@pytest.mark.parametrize("every_move", [True, False])
def test_the_rung_at_beta_0_is_drawn_at_every_move_or_at_the_last(
    tmp_path, monkeypatch, every_move
):
    drawn, record = [], Rung.record

    def noted_record(self, recorded, every, first_move):
        if self.k == 0:
            drawn.append((recorded.n_exact, len(np.unique(recorded.z_tw, axis=0))))
        record(self, recorded, every, first_move)

    monkeypatch.setattr(Rung, "record", noted_record)
    monkeypatch.setattr(anchors_module, "uniform_every_move", lambda *_: every_move)
    run = begin(config_of(tmp_path, *AHEAD))
    loop.sample(run)
    run.writer.close()
    steps, n_walkers = run.config.sampler.steps, run.config.sampler.walkers
    assert steps > 1 and len(drawn) == 4 * 6
    n_exact = {True: steps * n_walkers, False: n_walkers}[every_move]
    assert {n for n, _ in drawn} == {n_exact}
    assert all(n_different > 1 for _, n_different in drawn)  # the other moves are moves
