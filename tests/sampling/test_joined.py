"""Rungs that move as one batch have the bits that they have one by one."""

from itertools import product

import pytest
from run_tools import assert_same
from runs_in_progress import WORLD, begun, sample_until

from omniinput_hpc.config import input_file
from omniinput_hpc.errors import UserError
from omniinput_hpc.kernels import joint
from omniinput_hpc.kernels.joint import BatchMover, CompiledMover
from omniinput_hpc.sampling import build, exchange, joined

INPUT = """
[run]
output = "{folder}/{name}.h5"
seed = 1
rounds = 2
burn_in = 6
[model]
kind = "python"
factory = "ising:{make}"
options = {{side = 4}}
[sampler]
walkers = 8
steps = 13
exchanges = 5
[ladder]
lowest = -3.0
highest = 20.0
rungs = 4
spacing = "linear"
tune = true
[bins]
lower = -2.03125
upper = 2.03125
width = 0.0625
[samples]
every = 7
"""
GAUSSIAN = [
    "ladder.betas=[0.0, 4.0, 8.0, 12.0]", "ladder.kappa=[0.0, 30.0, 0.0, 60.0]",
    "ladder.z0=[0.0, -0.5, 0.0, -0.9]",
]  # fmt: skip
CASES = {
    "plain": [],
    "from beta = 0": ["ladder.lowest=0.0"],
    "blocks": ["sampler.blocks=2", "ladder.lowest=0.0"],
    "Gaussian rungs": GAUSSIAN,
    "long segments": [
        "sampler.steps=1100",
        "sampler.exchanges=1",
        "samples.every=100",
        "run.rounds=1",
        "run.burn_in=0",
        "ladder.tune=false",
    ],
}
MOVERS = {"make_compiled": CompiledMover, "make": BatchMover, "make_whole": BatchMover}


def config_of(folder, name, make, changes=()):
    text = INPUT.format(folder=folder, name=name, make=make)
    changes = list(changes)
    if any("betas" in change for change in changes):
        begin_, rest = text.split("[ladder]")
        text = begin_ + "[ladder]\ntune = true\n[bins]" + rest.split("[bins]")[1]
    return input_file.parse(text, "ising.toml", changes)


def run_of(folder, name, make, changes=(), mover=None, until=None):
    """Run, or resume, to the end or `until` so many rounds; return the run file.

    The rungs move one by one, or by this kind of mover.
    """
    run = begun(config_of(folder, name, make, changes))
    assert type(getattr(run.joined, "_mover", None)) is (mover or type(None))
    sample_until(run, until)
    return folder / f"{name}.h5"


@pytest.fixture(autouse=True)
def short_lists_of_keys(monkeypatch):
    """A run reaches the end of its lists of keys, and of its records."""
    for module in (joined, exchange):
        monkeypatch.setattr(module, "KEYS_AT_ONCE", 4)
    monkeypatch.setattr(joint, "MAX_OUTPUTS", 160)
    monkeypatch.setattr(joint, "MAX_NUMBERS", 500)


def alone(folder, make, changes=()):
    """Return the file of a run whose rungs move one by one."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(joined, "join", lambda *_: None)
        return run_of(folder, "alone", make, changes)


@pytest.mark.parametrize(("make", "case"), [*product(MOVERS, CASES)])
def test_a_run_has_the_bits_of_rungs_that_move_one_by_one(make, case, tmp_path):
    """z of 4 x 4 spins is a binary fraction, so that no sum is rounded."""
    mover = MOVERS[make]
    joined_run = run_of(tmp_path, "joined", make, CASES[case], mover)
    assert_same(alone(tmp_path, make, CASES[case]), joined_run)


@pytest.mark.parametrize("make", MOVERS)
def test_other_betas_would_differ(make, tmp_path, monkeypatch):
    monkeypatch.setattr(joint, "parameters_of", lambda ensemble: (1.01 * ensemble.beta, 0.0, 0.0))
    joined_run = run_of(tmp_path, "joined", make, [], MOVERS[make])
    with pytest.raises(AssertionError, match="differ in"):
        assert_same(alone(tmp_path, make), joined_run)


@pytest.mark.parametrize("make", MOVERS)
def test_swaps_by_other_betas_would_differ(make, tmp_path, monkeypatch):
    monkeypatch.setattr(exchange, "parameters_of", lambda ensemble: (-ensemble.beta, 0, 0))
    joined_run = run_of(tmp_path, "joined", make, [], MOVERS[make])
    with pytest.raises(AssertionError, match="differ in"):
        assert_same(alone(tmp_path, make), joined_run)


@pytest.mark.parametrize("make", MOVERS)
def test_a_resumed_run_has_the_bits_of_one_that_was_not_stopped(make, tmp_path):
    """Of 5 x 5 spins, whose sums are rounded."""
    changes, mover = ["model.options.side=5"], MOVERS[make]
    whole = run_of(tmp_path, "whole", make, changes, mover)
    run_of(tmp_path, "resumed", make, changes, mover, until=1)
    assert_same(whole, run_of(tmp_path, "resumed", make, changes, mover))


def test_rungs_of_other_models_move_one_by_one(tmp_path):
    run_of(tmp_path, "plain", "make_plain")  # does not say that it is batch-invariant
    run_of(tmp_path, "gradients", "make", ['kernel.name="gibbs-with-gradients"'])


def test_a_model_that_is_not_batch_invariant_is_refused(tmp_path):
    for make in ("make", "make_whole", "make_compiled"):
        build.build(WORLD, config_of(tmp_path, "right", make), None).check_is_function()
    wrong = build.build(WORLD, config_of(tmp_path, "wrong", "make_variant"), None)
    with pytest.raises(UserError, match="batch_invariant = True, but output of an input has other"):
        wrong.check_is_function()
