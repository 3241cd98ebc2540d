"""The public benchmark: right methods give right rows, and a wrong sampler is seen."""

import numpy as np
import pytest
import torch

from omniinput_hpc.estimators import EstimateError
from omniinput_hpc.kernels import metropolis
from omniinput_zoo.benchmark.cases import CASES
from omniinput_zoo.benchmark.command import Row, main, run_case


@pytest.mark.slow
@pytest.mark.parametrize(("model", "method"), [
    ("lattice", "metropolis"), pytest.param("markov", "ancestral", marks=pytest.mark.release),
])  # fmt: skip
def test_a_row_of_the_table(capsys, model, method):
    assert main(["--models", model, "--methods", method, "--runs", "1"]) == 0
    head, row = (line.split() for line in capsys.readouterr().out.splitlines())
    assert head[:2] == ["model", "method"] and row[:2] == [model, method]
    bins, rms, held = (float(row[i].rstrip("%")) for i in (4, 6, 8))
    assert bins >= 12 and 0.4 < rms < 1.9 and held > 80


@pytest.mark.slow
def test_a_sampler_that_accepts_everything_is_seen(tmp_path, monkeypatch):
    """A variant that is wrong on purpose."""
    monkeypatch.setattr(metropolis, "decide", lambda *_: torch.ones(32, dtype=torch.bool))
    row = run_case(CASES["lattice"], "metropolis", 1, tmp_path)
    assert np.sqrt(np.mean(np.concatenate(row.z) ** 2)) > 3.0


def test_counts_where_no_input_is_are_an_error():
    class Found:
        count_b = np.array([3, 1])

    with pytest.raises(EstimateError, match="no input belongs to"):
        Row().add(Found(), np.array([2.0, -np.inf]))
