"""After burn-in a run says where its ladder does not cross a transition, and what would."""

import re
import tomllib
from types import SimpleNamespace

import numpy as np
import pytest
import run_tools

from omniinput_hpc.cli import run as launch
from omniinput_hpc.sampling.transitions import warn_of_transitions
from omniinput_hpc.tempering.adaptation import LadderTuning

INPUT = """
[run]
output = "{output}"
seed = 3
rounds = 1
burn_in = 6
[model]
kind = "python"
factory = "known_answers:small_occupation"
[sampler]
walkers = 32
steps = 8
exchanges = 12
[ladder]
betas = {betas}
[kernel]
name = "metropolis"
[bins]
lower = -45.5
upper = 0.5
width = 1.0
[samples]
every = 96
"""
ACROSS = [0.0, 0.2, 0.4, 1.2]
"""At 1.2 all values are alike: the last pair never swaps."""
WARM = [0.0, 0.2, 0.4]


def run(folder, betas):
    toml = folder / "run.toml"
    toml.write_text(INPUT.format(output=folder / "run.h5", betas=betas))
    assert launch.main([str(toml)]) == 0
    return toml


def said(capsys):
    """Return what the run printed since this was asked last."""
    captured = capsys.readouterr()
    return captured.out + captured.err


def test_a_transition_is_told_with_the_lines_of_a_ladder_that_runs(tmp_path, capsys):
    toml = run(tmp_path, ACROSS)
    text = said(capsys)
    assert "rungs 2 and 3 (beta = 0.4 and 1.2) do not swap: inputs with z = " in text
    proposed = re.search(r"\[ladder\]\nbetas = .*\nkappa = .*\nz0 = .*\ntune = true", text).group()
    ladder = tomllib.loads(proposed)["ladder"]
    assert ladder["betas"][:3] == ACROSS[:3] and ladder["betas"][-1] == ACROSS[-1]
    old = re.search(r"\[ladder\]\nbetas = .*", toml.read_text()).group()
    toml.write_text(toml.read_text().replace(old, proposed).replace("run.h5", "bridged.h5"))
    assert launch.main([str(toml)]) == 0
    assert "do not swap" not in said(capsys), "the proposed ladder connects"


def test_a_ladder_without_one_is_told_nothing(tmp_path, capsys):
    run(tmp_path, WARM)
    assert "first-order" not in said(capsys)


@pytest.mark.parametrize(("fixed", "kept"), [((0.0, 2.0), True), ((0.0,), False)])
def test_a_rung_that_tuning_keeps_stays_in_the_proposed_ladder(log_lines, fixed, kept):
    """Tuning keeps beta = m whether or not texts can be drawn there: so does the proposal."""
    beta_k, counts_kb = np.array([0.0, 2.0, 4.0]), np.zeros((3, 64), dtype=int)
    counts_kb[:2, 60] = counts_kb[1:, 4] = 4000
    z_k, std_k, n_k = np.array([60.0, 32.0, 4.0]), np.array([1.0, 28.0, 1.0]), np.full(3, 8000.0)
    stats = SimpleNamespace(
        parameters_k3=np.column_stack([beta_k, 0 * beta_k, 0 * beta_k]), extremes=(0.0, 64.0),
        moments_k3=np.column_stack([n_k, n_k * z_k, n_k * (z_k**2 + std_k**2)]),
    )  # fmt: skip
    rungs = [
        SimpleNamespace(k=k, histogram=SimpleNamespace(counts_b=counts_b), model_beta=None)
        for k, counts_b in enumerate(counts_kb)
    ]
    tuning = LadderTuning(3, 4, True, fixed)
    tuning.resume(np.array([[1000, 500], [1000, 500]]))
    bins, sampler = (SimpleNamespace(edges=np.linspace(0.0, 64.0, 65)),
                     SimpleNamespace(method="parallel-tempering"))  # fmt: skip
    world = SimpleNamespace(rank=0, sum=lambda value: value)
    config = SimpleNamespace(bins=bins, sampler=sampler, ladder=SimpleNamespace(lambdas=[0, 1, 2]))
    warn_of_transitions(world, config, rungs, stats, tuning)
    assert not log_lines  # neighbours differ by lambda, too, and Gaussian rungs have none
    config.ladder.lambdas = None
    warn_of_transitions(world, config, rungs, stats, tuning)
    ladder = tomllib.loads(log_lines[-1].partition("\n")[2])["ladder"]
    canonical = [b for b, kappa in zip(ladder["betas"], ladder["kappa"], strict=True) if not kappa]
    assert canonical == ([0.0, 2.0, 4.0] if kept else [0.0, 4.0])


@pytest.mark.slow
@pytest.mark.skipif(not run_tools.LAUNCHER, reason="no MPI launcher")
def test_two_ranks_tell_the_same(tmp_path, capsys):
    toml = run(tmp_path, ACROSS)
    told = next(line for line in said(capsys).splitlines() if "do not swap" in line)
    (tmp_path / "run.h5").unlink()
    done = run_tools.run(toml, ranks=2)
    assert done.returncode == 0 and told in done.stdout + done.stderr
