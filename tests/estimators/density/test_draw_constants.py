"""Known constants by ancestral draws, against sums over all inputs by dynamic programming."""

import numpy as np
import pytest
from configs import config_with
from decoder_chain import DecoderChain

from omniinput_hpc.estimators import EstimateError
from omniinput_hpc.estimators.density.draw_constants import constants_apart
from omniinput_hpc.results.density import draw_constants_lines

CHAIN = DecoderChain(3)
M = CHAIN.n_sites - 1.0
EXACT = np.log(CHAIN.count_l.sum()) - np.log((CHAIN.count_l * np.exp(-M * CHAIN.z_l)).sum())
BETAS = [0.0, 0.35, 0.7, 1.0]
SEEDS = range(40)


def scores(change=lambda run: run):
    """Return (estimate - exact) / error of some runs, [n]."""
    found = []
    for seed in SEEDS:
        value, error, n_groups = constants_apart(change(CHAIN.ancestral_run(BETAS, seed)), M)
        assert n_groups == 16
        found.append((value - EXACT) / error)
    return np.array(found)


def check(z):
    assert abs(z.mean()) < 4.0 / np.sqrt(len(z))  # 4 standard errors of the mean
    assert 0.7 < np.sqrt((z**2).mean()) < 1.4  # 3.5 standard errors of the root of 40 squares
    assert (np.abs(z) < 2.131).sum() >= 33  # 38 expected; fewer than 33 in 1 of 500


def test_the_difference_is_exact_within_its_errors():
    check(scores())


def test_draws_without_their_weights_fail():
    """A wrong variant: draws are taken for uniform ones."""

    def change(run):
        run.log_q = np.zeros_like(run.log_q)
        return run

    with pytest.raises(AssertionError):
        check(scores(change))


def test_a_line_where_the_constants_are_known():
    run = CHAIN.ancestral_run(BETAS, 1)
    assert draw_constants_lines(run) == []
    run.config = config_with(model={"kind": "causal-lm"})
    (line,) = draw_constants_lines(run)
    assert line.startswith("by the draws, without bins: log Z(0) - log Z(23) = ")
    assert "exact 23 ln 8 = 47.8272" in line
    for betas in (BETAS[1:], BETAS[:-1]):
        run = CHAIN.ancestral_run(betas, 1)
        run.config = config_with(model={"kind": "causal-lm"})
        assert draw_constants_lines(run) == [], "an end of the ladder is missing"


def test_chains_have_no_such_draws():
    run = CHAIN.chain_run([0.0, 1.0], 1)
    run.config = config_with(model={"kind": "causal-lm"})
    assert draw_constants_lines(run) == []
    with pytest.raises(EstimateError, match="no independent draws"):
        constants_apart(run, M)
