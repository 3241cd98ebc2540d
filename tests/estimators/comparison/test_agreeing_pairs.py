"""The short form of tests/benchmarks/agreeing_pairs.py: correct runs agree, by single bins not."""

import numpy as np
import pytest
from run_tools import loaded

PAIRS = 10


@pytest.fixture(scope="module")
def pairs():
    return loaded("tests/benchmarks/agreeing_pairs.py")


@pytest.mark.slow
def test_correct_runs_of_uneven_draws_agree_and_a_wrong_one_is_found(pairs, monkeypatch, capsys):
    found = pairs.campaign(pairs.uneven(1), PAIRS)
    assert np.isfinite(found[:, :3]).all() and (found[:, 4] >= 50 - 1e-6).all()
    assert pairs.print_row("uneven draws", found, 1.0)
    few = pairs.campaign(pairs.uneven(1, pairs.FEW), PAIRS)
    assert (few[:, 4] >= 50 - 1e-6).all() and (few[:, 1] < 0.01).sum() <= 1
    assert few[:, 3].sum() <= 1  # who is said to disagree
    wrong = pairs.campaign(pairs.uneven(1, scale=pairs.WRONG), 5)
    assert (wrong[:, 0] < 0.05).all() and pairs.print_row("wrong", wrong, 1.0, wrong=True)
    assert not pairs.print_row("wrong", found, 1.0, wrong=True)
    assert "<-" in capsys.readouterr().out.splitlines()[-1]

    # single bins by the plain jackknife: correct runs are many standard errors apart
    monkeypatch.setattr(pairs.samplers, "MIN_EFFECTIVE_COUNT", 1e-9)
    with loaded("tests/benchmarks/ancestral_coverage.py").plain_jackknife():
        alone = pairs.campaign(pairs.uneven(1, pairs.FEW), PAIRS)
    assert (alone[:, 1] < 0.01).mean() > 0.3

    # shares of few effective counts by the jackknife's error alone
    monkeypatch.undo()
    monkeypatch.setattr(pairs.samplers, "MIN_VALUE_COUNT", 0.0)
    monkeypatch.setattr(
        pairs.samplers, "joined_effective", lambda _, spans: np.full(len(spans), 1e9)
    )
    skew = pairs.campaign(pairs.uneven(1, pairs.FEW), PAIRS)
    assert skew[:, 3].sum() > few[:, 3].sum()
