"""The short form of tests/benchmarks/agreeing_pairs.py: correct runs agree, by single bins not."""

import importlib.util
import sys
from pathlib import Path

import numpy as np
import pytest

PAIRS = 10
BENCHMARKS = Path(__file__).resolve().parents[2] / "benchmarks"


def load(name):
    spec = importlib.util.spec_from_file_location(name, BENCHMARKS / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    before = list(sys.path)
    spec.loader.exec_module(module)
    sys.path[:] = before
    return module


@pytest.fixture(scope="module")
def pairs():
    return load("agreeing_pairs")


@pytest.mark.slow
def test_correct_runs_of_uneven_draws_agree_and_a_wrong_one_is_found(pairs, monkeypatch, capsys):
    found = pairs.campaign(pairs.uneven(1), PAIRS)
    assert np.isfinite(found[:, :3]).all() and (found[:, 4] >= 50 - 1e-6).all()
    assert pairs.print_row("uneven draws", found, 1.0)
    few = pairs.campaign(pairs.uneven(1, pairs.FEW), PAIRS)
    assert (few[:, 4] >= 50 - 1e-6).all() and (few[:, 1] < 0.01).sum() <= 1
    wrong = pairs.campaign(pairs.uneven(1, scale=pairs.WRONG), 5)
    assert (wrong[:, 0] < 0.05).all() and pairs.print_row("wrong", wrong, 1.0, wrong=True)
    assert not pairs.print_row("wrong", found, 1.0, wrong=True)
    assert "<-" in capsys.readouterr().out.splitlines()[-1]

    # single bins by the plain jackknife: correct runs are many standard errors apart
    monkeypatch.setattr(pairs.samplers, "MIN_EFFECTIVE_COUNT", 1e-9)
    with load("ancestral_coverage").plain_jackknife():
        alone = pairs.campaign(pairs.uneven(1, pairs.FEW), PAIRS)
    assert (alone[:, 1] < 0.01).mean() > 0.3
