"""The difference of two models' outputs, and the tests of sameness, on an enumerated space."""

from dataclasses import replace

import model_pair
import numpy as np
import pytest
from pair_runs import ABSOLUTE, EDGES, OTHER, draw

from omniinput_hpc.estimators.comparison.difference import (
    at_ends,
    averages,
    divergence,
    model_beta,
    one_way,
    pair,
    reweighted,
    sameness,
    share_where,
    shares,
    spread,
)
from omniinput_hpc.estimators.density.density import density_of_run
from omniinput_hpc.estimators.density.wide_bins import in_bins
from omniinput_hpc.estimators.observables import joint_density

MODELS = ("good", "worse")
Z = {which: model_pair.table(which).astype(float) for which in MODELS}
D = Z["good"] - Z["worse"]
RANGE = EDGES[2:15:6]  # 2 to 5, in bins of 1.5
D_EDGES = np.linspace(-2.0, 3.0, 11)
N_RUNS, MOST, M = 24, 10**6, 2.0
ROUNDING = (2e-5, 3e-6)


def paired(which, seed, edges=RANGE, other=None, **size):
    """Return a run's density in its own bins, and its samples with D."""
    run = draw(which, ABSOLUTE, seed, **size)
    other = Z[OTHER[which]].astype(np.float32) if other is None else other
    z_rks = other[model_pair.number(run.x_rksd)]
    density = density_of_run(run.record())
    first = which == "good"
    return density, pair(run.record(), in_bins(density, edges), z_rks, first, MOST)


@pytest.fixture(scope="module", params=MODELS)
def many(request):
    """Return (model, [(density, pairs)]) of many runs of one of the models."""
    return request.param, [paired(request.param, seed) for seed in range(N_RUNS)]


def inside(which):
    return (Z[which] >= RANGE[0]) & (Z[which] <= RANGE[-1])


def rms_of_cells(which, all_seen):
    """Return the root mean square of the errors of cells of 20 inputs or more, in sigmas."""
    true_c = np.histogram(D[inside(which)], D_EDGES)[0]
    off = []
    for seen in all_seen:
        found = joint_density(seen, D_EDGES)
        use = (true_c >= 20) & np.isfinite(found.error_c)
        assert use.sum() >= 5
        off += list((found.log_g_c[use] - np.log(true_c[use])) / found.error_c[use])
    return np.sqrt(np.mean(np.square(off)))


def test_the_density_of_d(many):
    which, found = many
    assert 0.8 < rms_of_cells(which, [p.seen for _, p in found]) < 1.3


def test_weights_that_are_all_equal_fail(many):
    which, found = many
    alike = [replace(p.seen, log_w_i=np.zeros_like(p.seen.w_i)) for _, p in found]
    assert rms_of_cells(which, alike) > 1.6


def test_means_and_standard_deviations(many):
    which, found = many
    mine, z = D[inside(which)], Z[which][inside(which)]
    true_b, square_b, n_b = (
        np.histogram(z, RANGE, weights=w)[0] for w in (mine, mine**2, np.ones_like(mine))
    )
    true_b, sd_b = true_b / n_b, np.sqrt(square_b / n_b - (true_b / n_b) ** 2)
    held = []
    for _, p in found:
        means, sd, whole = spread(p.seen)
        known = np.isfinite(means.low_b)
        held += list(((means.low_b <= true_b) & (true_b <= means.high_b))[known])
        assert np.abs(sd / sd_b - 1)[known & (n_b > 50)].max() < 0.35
        assert whole == pytest.approx(mine.std(), rel=0.25)
    assert 0.89 < np.mean(held) < 1.0
    assert shares(found[0][1].seen).sum() == pytest.approx(1.0)


def test_shares_of_the_inputs(many):
    """Intervals hold the true share, for a common kind of inputs, a rare one, and for none."""
    which, found = many
    mine, of_z = inside(which), np.argsort(Z[which])
    common, rare = np.median(D[mine]) < D, np.quantile(D[mine], 0.997) < D
    for chosen, least in ((common, 20), (rare, 20), (rare & ~rare, N_RUNS)):
        held = 0
        for _, p in found:
            got = share_where(p.seen, chosen[of_z][np.searchsorted(Z[which][of_z], p.own_i)])
            assert 0 <= got.low <= got.value <= got.high < 0.7
            held += got.low <= chosen[mine].mean() <= got.high
        assert held >= least, (chosen.mean(), held)


def test_the_divergence_is_the_mean_under_the_model_s_own_law(many):
    which, _ = many
    w = np.exp(-M * Z[which])
    true = (w * (Z[OTHER[which]] - Z[which])).sum() / w.sum()
    off = []
    for seed in range(N_RUNS):
        density, p = paired(which, seed, EDGES[::4])
        got = divergence(p, density, M, which == "good")
        assert got.low < got.value < got.high
        off.append((float(got.value) - true) / float(got.error))
    assert 0.65 < np.sqrt(np.mean(np.square(off))) < 1.45


def test_a_divergence_of_long_inputs_has_all_weights():
    """Weights that differ by more than float64 holds (exp(-745)) within one bin."""
    density, p = paired("good", 0, EDGES[::4])
    steep, z_i = 1000.0, p.own_i
    long = replace(p, seen=replace(p.seen, log_w_i=p.seen.log_w_i + (steep - M) * z_i))
    assert np.ptp(z_i[p.seen.bin_i == 1]) > 0.9
    long, usual = reweighted(long, density, steep), reweighted(p, density, M)
    np.testing.assert_allclose(averages(long).mean_b, averages(usual).mean_b, rtol=1e-6)


def test_an_anchor_is_needed():
    run = draw("good", ABSOLUTE, 0)
    assert np.isnan(model_beta(run.record()))
    run.model_beta = M
    assert model_beta(run.record()) == M
    run.outside_rk2[0, 3] += 99
    assert np.isnan(model_beta(run.record()))
    run = draw("good", ABSOLUTE, 0)
    run.model_beta = 3.0  # no rung there
    assert np.isnan(model_beta(run.record()))


def test_examples_come_from_both_ends(many):
    which, found = many
    p = found[0][1]
    low, high = np.quantile(D[inside(which)], [0.02, 0.98])
    chosen = p.d_i[at_ends(p, 3)]
    assert (chosen < low).sum() == 3 and (chosen > high).sum() == 3


def test_outputs_of_one_model_are_equal_and_the_bound_says_how_sure_that_is():
    """Rounding apart: it is not an alarm that a few inputs amplify it."""
    random = np.random.default_rng(0)
    off = np.where(random.random(len(D)) < 0.01, 2e-4, 1e-5) * random.choice([-1, 1], len(D))
    ways, densities = [], []
    for seed, which in enumerate(MODELS):
        density, p = paired("good", seed, other=(Z["good"] + off).astype(np.float32))
        ways.append(p if which == "good" else replace(p, seen=replace(p.seen, y_i=-p.d_i)))
        densities.append(density)
    found = sameness(tuple(ways), tuple(densities), ROUNDING)
    assert found.equal and 0 < found.beyond < 0.03 and found.p > 1e-3
    assert all(0.01 < bound < 0.03 for bound in found.differing)
    coarse = sameness(tuple(ways), tuple(densities), (5e-2, 1e-2))
    assert coarse.equal and coarse.beyond == 0  # half precision: none may exceed its rounding
    one = ways[0].d_i + 0.2 * (np.arange(len(ways[0].d_i)) == 7)
    one = replace(ways[0], seen=replace(ways[0].seen, y_i=one))
    for rounding in (ROUNDING, (5e-2, 1e-2)):
        assert not sameness((one, ways[1]), tuple(densities), rounding).equal
    more = replace(ways[0], seen=replace(ways[0].seen, y_i=ways[0].d_i + 1e-4))
    assert not sameness((more, ways[1]), tuple(densities), ROUNDING).equal


def test_densities_that_cannot_be_compared():
    (a, p), (b, q) = paired("good", 0), paired("worse", 1)
    b = replace(b, edges=b.edges + 0.25)
    found = sameness((p, q), (a, b), ROUNDING)
    assert np.isnan(found.p) and "different [bins]" in found.why and not found.equal


def test_what_only_one_model_puts_in_the_range(many):
    which, found = many
    other = Z[OTHER[which]][inside(which)]
    true = ((other < RANGE[0]) | (other > RANGE[-1])).mean()
    ways = [one_way(p, None, D_EDGES) for _, p in found]
    assert np.mean([w.outside.value for w in ways]) == pytest.approx(true, rel=0.3, abs=1e-3)
    assert sum(w.outside.low <= true <= w.outside.high for w in ways) >= 20
    assert ways[0].divergence is None
    assert ways[0].density.count_bc.sum() == len(ways[0].pairs.d_i)


@pytest.mark.slow
def test_false_alarms_of_the_densities():
    """Two runs of one model: p is below 5 % for 10 +- 3.1 of 200 pairs (three sigmas)."""
    size = {"rounds": 8, "walkers": 32, "moves": 8}
    runs = [density_of_run(draw("good", ABSOLUTE, seed, **size).record()) for seed in range(200)]
    worse = [density_of_run(draw("worse", ABSOLUTE, seed, **size).record()) for seed in range(5)]
    _, p = paired("good", 0)

    def alarms(pairs):
        return sum(sameness((p, p), two, ROUNDING).p < 0.05 for two in pairs)

    pairs = [(runs[i], runs[i - 1 - i // 100]) for i in range(200)]
    assert 1 <= alarms(pairs) <= 19
    assert alarms(zip(runs, worse, strict=False)) == 5


def test_a_part_of_the_rounds_is_worth_a_part_of_the_effective_counts():
    """Ten moves to an independent one: as correlated in a quarter of the rounds as in all."""
    run = draw("good", ABSOLUTE, 1)
    density = density_of_run(run.record())
    density = in_bins(replace(density, effective_b=0.1 * density.count_b), RANGE)
    other = Z["worse"].astype(np.float32)[model_pair.number(run.x_rksd)]
    every, some = (
        pair(run.record(), density, other[:n], True, MOST).seen.correlated_b
        for n in (len(other), len(other) // 4)
    )
    assert (every > 3).all()
    np.testing.assert_allclose(some, every, rtol=0.2)
