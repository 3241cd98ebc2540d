"""Blocks of a rung's lanes: put together they are the rung, whoever held them."""

import numpy as np
import pytest
from run_tools import LATTICE, assert_same
from runs_in_progress import begin, config_of, sampled
from toy_models import LatticeModel

from omniinput_hpc.cli.run import main
from omniinput_hpc.config import input_file
from omniinput_hpc.errors import UserError
from omniinput_hpc.histogram import lane_groups
from omniinput_hpc.parallel.messages import Message, packed
from omniinput_hpc.runfile.layout import layout
from omniinput_hpc.runfile.reader import open_run
from omniinput_hpc.sampling import blocks, loop
from omniinput_hpc.tempering.ladder import Block

SMALL = ("run.rounds=3", "run.burn_in=2", "sampler.exchanges=2", "sampler.steps=4")
CUT = (*SMALL, "sampler.walkers=24", "sampler.blocks=3")  # a group of lanes is in two blocks


def of_a_round(folder, *changes):
    """Sample a run's first round; return the records of its blocks."""
    run = begin(config_of(folder, "run.burn_in=0", *changes))
    loop.begin_round(run)
    for exchange in range(run.config.sampler.exchanges):
        for rung in run.rungs:
            recorded = loop.move(run, rung, exchange)
            rung.record(recorded, run.config.samples.every, exchange * run.config.sampler.steps)
        run.exchanger.swap(run.rungs, exchange)
    run.writer.close()
    return [rung.record_of_round() for rung in run.rungs]


def test_a_rungs_record_is_that_of_its_blocks(tmp_path):
    parts = of_a_round(tmp_path, *CUT)
    whole = blocks.merged(parts[3:6])  # rung 1
    for b, part in enumerate(parts[3:6]):
        lanes = slice(8 * b, 8 * b + 8)
        for name in blocks.LANES:
            np.testing.assert_array_equal(whole[name][lanes], part[name])
        for name in blocks.SAMPLES[:3]:
            of_lanes = whole[name].reshape(-1, 24, *whole[name].shape[1:])
            of_part = part[name].reshape(-1, 8, *part[name].shape[1:])
            np.testing.assert_array_equal(of_lanes[:, lanes], of_part)
    counts_b, counts_gb = whole["histogram/counts"], whole[blocks.GROUPS]
    n_counted = counts_b.sum() + whole["histogram/outside"].sum()
    assert n_counted == 24 * 8 == whole["kernel/attempted"].sum()
    np.testing.assert_array_equal(counts_gb.sum(axis=0), counts_b)
    lanes_g = np.bincount(lane_groups(24))
    np.testing.assert_array_equal(counts_gb.sum(axis=1), 8 * lanes_g)
    sums = sum(part["histogram/z_sum"] for part in parts[3:6])
    np.testing.assert_allclose(whole["histogram/z_sum"], sums)
    assert blocks.merged(parts[:1]) is parts[0]


def test_a_whole_record_has_the_shapes_of_a_rung(tmp_path):
    """Of datasets that `merged` does not name, all blocks have the same values."""
    parts = of_a_round(tmp_path, *CUT)
    named = {blocks.GROUPS, *blocks.SUMS, *blocks.LANES, *blocks.SAMPLES}
    fields = layout(begin(config_of(tmp_path, "run.burn_in=0", *CUT)).geometry)
    for name, values in blocks.merged(parts[3:6]).items():
        once = fields[name].per == "burn-in"
        assert values.shape == fields[name].shape[1 if once else 2 :], name
        if name not in named:
            for part in parts[3:6]:
                np.testing.assert_array_equal(part[name], values, err_msg=name)


def test_what_is_sent_is_what_comes(tmp_path):
    parts = of_a_round(tmp_path, *CUT)
    message = Message(packed(blocks.to_send(parts)))
    for part in parts:
        found = blocks.received(message, parts[0], len(part[blocks.GROUPS]))
        for name in (blocks.GROUPS, *blocks.SUMS, *blocks.LANES, *blocks.SAMPLES[:3]):
            np.testing.assert_array_equal(found[name], part[name])
    assert not message.left


def test_independent_draws_keep_their_probabilities(tmp_path):
    changes = [
        "sampler.method=ancestral", "model.factory=markov_model:markov", "sampler.blocks=4",
        "ladder.betas=[0.0, 5.0]", "samples.every=1", "bins.upper=8.125",
    ]  # fmt: skip
    parts = of_a_round(tmp_path, *changes)
    whole = blocks.merged(parts[:4])["samples/log_q"].reshape(-1, 4, 2, 2)
    for b, part in enumerate(parts[:4]):
        np.testing.assert_array_equal(whole[:, b], part["samples/log_q"].reshape(-1, 2, 2))
    message = Message(packed(blocks.to_send(parts[2:])))
    found = blocks.received(message, parts[0], len(parts[2][blocks.GROUPS]))
    np.testing.assert_array_equal(found["samples/log_q"], parts[2]["samples/log_q"])


def alike(folder):
    """Sample one rung in three blocks; return whether two of them went the same ways."""
    with open_run(sampled(folder, *CUT, "ladder.betas=[1.5]")) as run:
        x = np.stack([x for x, _ in run.samples()])
        x = x.reshape(run.rounds, -1, 3, 8, run.n_sites)
    return any((x[:, :, one] == x[:, :, other]).all() for one, other in ((0, 1), (0, 2), (1, 2)))


def test_blocks_have_random_numbers_of_their_own(tmp_path):
    assert not alike(tmp_path)


def test_blocks_that_share_their_random_numbers_are_noticed(tmp_path, monkeypatch):
    monkeypatch.setattr(Block, "key", ())
    assert alike(tmp_path)


@pytest.mark.parametrize("until", [-1, 1, 2])
def test_a_resumed_run_of_blocks_has_the_same_bytes(tmp_path, until):
    for name in ("whole", "resumed"):
        (tmp_path / name).mkdir()
    whole = sampled(tmp_path / "whole", *CUT)
    sampled(tmp_path / "resumed", *CUT, until=until)
    assert_same(whole, sampled(tmp_path / "resumed", *CUT))


@pytest.mark.parametrize(("changes", "words"), [
    (["sampler.blocks=3"], "blocks = 3 does not divide walkers = 8"),
    (["sampler.blocks=16"], "blocks = 16 does not divide walkers = 8"),
    (["sampler.blocks=0"], "blocks"),
    (["sampler.method=wang-landau", "sampler.blocks=4", "run.burn_in=4"],
     "sampler.blocks = 4: with sampler.method"),
])  # fmt: skip
def test_what_blocks_cannot_be(tmp_path, changes, words):
    with pytest.raises(UserError, match=words):
        config_of(tmp_path, *changes)


def test_one_block_is_the_default(tmp_path):
    text = LATTICE.format(output=tmp_path / "run.h5")
    assert input_file.parse(text, "x").sampler.blocks == 1
    once, again = tmp_path / "once", tmp_path / "again"
    once.mkdir(), again.mkdir()
    assert_same(sampled(once, *SMALL), sampled(again, *SMALL, "sampler.blocks=1"))


def test_a_run_keeps_its_blocks(tmp_path):
    sampled(tmp_path, *CUT, until=1)
    with pytest.raises(UserError, match=r"sampler.blocks is 3 in the file and 6 here"):
        sampled(tmp_path, *CUT, "sampler.blocks=6")


def test_outputs_are_evaluated_in_the_runs_own_batches(tmp_path, monkeypatch):
    """Also by --verify: the walkers of a rung of many blocks may not fit into memory at once."""
    toml, sizes, output = tmp_path / "lattice.toml", set(), LatticeModel.output

    def noted(self, x):
        sizes.add(len(x))
        return output(self, x)

    monkeypatch.setattr(LatticeModel, "output", noted)
    toml.write_text(LATTICE.format(output=tmp_path / "run.h5"))
    assert main([str(toml), *(word for change in CUT for word in ("--set", change))]) == 0
    assert main([str(tmp_path / "run.h5"), "--verify", "--rescore", "5"]) == 0
    assert sizes == {8}
