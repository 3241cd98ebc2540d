"""The short form of tests/benchmarks/ancestral_coverage.py, where the plain jackknife must fail."""

import numpy as np
import pytest
from decoder_chain import DecoderChain
from run_tools import loaded

WORLD = "b = 0.5, 2.5"


@pytest.fixture(scope="module")
def bench():
    return loaded("tests/benchmarks/ancestral_coverage.py")


def test_errors_of_few_effective_draws_are_honest_and_the_plain_jackknife_is_not(bench, capsys):
    plain, pooled = bench.campaign(WORLD, "", 24, 1)
    rows = [bench.summary(pooled, *limits) for limits in ((0.0, 5.0), (5.0, 20.0), (20.0, 50.0))]
    assert all(row["bins"] > 80 and bench.is_honest(row) for row in rows), rows
    old = bench.summary(plain, 5.0, 20.0)
    assert not bench.is_honest(old) and old["cover"] < 0.9 and old["rms z"] > 1.4, old
    assert bench.print_rows("draws", (plain, pooled))
    printed = capsys.readouterr().out.splitlines()
    assert len(printed) == 9 and not any("<-" in line for line in printed)
    assert not bench.print_rows("wrong", (plain, plain))


def test_two_runs_joined_are_not_drawn_to_the_one_that_lacks_heavy_draws(bench):
    plain, pooled = bench.campaign(WORLD, "two", 10, 1)
    assert bench.summary(plain, 5.0, 50.0)["mean z"] < -0.5
    assert bench.summary(pooled, 5.0, 50.0)["mean z"] > -0.4


def test_the_model_is_what_it_says():
    """Every input counted; its draws' probabilities are theirs; z from x."""
    small = DecoderChain(0, n_sites=5, n_values=4, n_bins=20)
    assert small.count_l.sum() == 4**5
    x = np.stack(np.meshgrid(*[np.arange(4)] * 5, indexing="ij"), axis=-1).reshape(-1, 5)
    level = small.cost[x[:, :-1], x[:, 1:]].sum(axis=1)
    np.testing.assert_array_equal(np.bincount(level, minlength=len(small.z_l)), small.count_l)
    log_p = small.log_p([0.5, 2.0])
    log_q = log_p[:, x[:, :-1], x[:, 1:]].sum(axis=2) - np.log(4)
    np.testing.assert_allclose(np.exp(log_q).sum(axis=1), 1.0)
    run = small.ancestral_run([0.5, 2.0], 1)
    number = run.x_rksd.astype(int) @ 4 ** np.arange(4, -1, -1)
    np.testing.assert_allclose(run.log_q, np.moveaxis(log_q[:, number], 0, -1))
    np.testing.assert_allclose(run.z_rks, small.z_l[level[number]], rtol=1e-6)
    share = np.bincount(number[:, 1].ravel(), minlength=4**5) / number[:, 1].size
    assert np.corrcoef(share, np.exp(log_q[1]))[0, 1] > 0.9
    chain = small.chain_run([0.0, 1.0], 1)
    shares = np.exp(small.log_g_b - np.log(4**5))
    found = chain.counts_kb[0] / (chain.counts_kb[0].sum() + chain.outside_k2[0].sum())
    np.testing.assert_allclose(found, shares, atol=0.06)
