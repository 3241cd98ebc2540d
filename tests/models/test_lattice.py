"""Outputs on the edges of bins: seen, said, and counted by the model's own rounding."""

import logging

import numpy as np
import pytest
import torch
from hard_models import Lattice

from omniinput_hpc.models.checked import CheckedModel
from omniinput_hpc.models.lattice import better_lower, keep_off_edges, unit_of
from omniinput_hpc.pilot.settings import BinRange, off_lattice

RNG = np.random.default_rng(1)
TENTHS = (RNG.integers(30, size=300) * np.float32(0.1)).astype(np.float32)


def test_the_unit_of_outputs():
    assert unit_of(TENTHS) == pytest.approx(0.1, rel=1e-5)
    assert unit_of(TENTHS + np.float32(0.033)) == pytest.approx(0.1, rel=1e-4)
    assert unit_of(RNG.integers(9, size=100).astype(np.float32)) == 1.0
    assert unit_of(RNG.normal(size=300)) == 0.0  # nearly all differ
    assert unit_of(np.zeros(9)) == 0.0
    assert unit_of(np.array([0.0, 1.0, 2.3] * 9)) == 0.0


def test_bins_that_begin_between_outputs():
    assert better_lower(TENTHS, 0.0, 0.1) == pytest.approx(-0.05)
    assert better_lower(TENTHS, -0.05, 0.1) is None
    assert better_lower(np.rint(TENTHS * 10), 0.0, 1.0) is None  # exactly on edges
    assert better_lower(RNG.normal(size=300).astype(np.float32), 0.0, 0.1) is None


def test_a_proposal_has_its_edges_between_outputs():
    found = off_lattice(BinRange(0.0, 3.0, 0.1), TENTHS.astype(float))
    assert (found.lower, found.upper, found.width) == (-0.05, 3.05, 0.1)
    wide = off_lattice(BinRange(-1.0, 4.0, 0.5), TENTHS.astype(float))
    assert wide.lower == -1.05 and wide.n_bins == 11
    free = BinRange(-0.03, 3.0, 0.5)
    assert off_lattice(free, RNG.normal(size=300)) == free


@pytest.mark.parametrize(("unit", "lower", "kept"), [
    (0.1, 0.0, False), (0.1, -0.05, True), (0.25, 0.0, True), (1.0, 0.0, True),
])  # fmt: skip
def test_changes_are_used_where_their_sums_are_exact_or_no_matter(caplog, unit, lower, kept):
    model = CheckedModel(Lattice(n=11, unit=unit), "a lattice")
    with caplog.at_level(logging.WARNING):
        keep_off_edges(model, lower, unit, 16, "cpu")
    assert (model.offers.change is not None) is kept
    assert ("bins.lower = -0.05 to put the edges between outputs" in caplog.text) is not kept
    assert ("changes are not used" in caplog.text) is not kept


def test_sums_of_changes_do_straddle_edges():
    """Why: after some changes the sum is another float32 number than the output."""
    model, x = Lattice(n=11), torch.zeros(64, 11, dtype=torch.int64)
    generator, total = torch.Generator().manual_seed(1), model.output(x).double()
    for _ in range(50):
        site = torch.randint(11, (64,), generator=generator)
        value = torch.randint(4, (64,), generator=generator)
        total += model.change(x, site, value).double()
        x = x.scatter(1, site[:, None], value[:, None])
    below = [np.floor(z.double().numpy() / 0.1) for z in (total.float(), model.output(x))]
    assert (below[0] != below[1]).any()


@pytest.mark.parametrize("lower", [-1234.5, -10000.0, -123.4])
def test_better_edges_far_from_zero_are_better(lower):
    z = np.float32(lower + 0.1 * RNG.integers(50, 90, 1000))
    found = better_lower(z, lower, 0.1)
    assert found == pytest.approx(lower - 0.05, abs=2e-3)  # z are float32
    assert better_lower(z, found, 0.1) is None
