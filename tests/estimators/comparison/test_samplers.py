"""Two samplers of one model: p-values are uniform where they agree; other laws are found."""

from dataclasses import replace

import model_pair
import numpy as np
import pytest
from decoder_chain import DecoderChain
from lattice import ArrayRun
from pair_runs import ABSOLUTE, EDGES, RELATIVE, draw
from scipy.stats import kstest

from omniinput_hpc.estimators import EstimateError
from omniinput_hpc.estimators.comparison.samplers import (
    compare_inputs,
    compare_samplers,
    judged_ranges,
    largest_chance,
    value_shares,
)
from omniinput_hpc.estimators.density.density import density_of_run, density_of_runs
from omniinput_hpc.results.comparison import sampler_lines

N_RUNS = 24


def compare(one, other):
    densities = density_of_run(one), density_of_run(other)
    found = compare_samplers(*densities)
    p, where, n = compare_inputs(([one], [other]), densities, found)
    return type(found)(**{**vars(found), "inputs_p": p, "inputs_where": where, "n_features": n})


@pytest.mark.slow
def test_p_values_are_uniform_where_both_are_right():
    """Also with another ladder; treating bins as independent would not give this."""
    p_values, inputs = [], []
    for seed in range(N_RUNS):
        found = compare(
            draw("worse", ABSOLUTE, 2 * seed), draw("worse", RELATIVE - 0.4, 2 * seed + 1)
        )
        p_values.append(found.p)
        inputs.append(found.inputs_p)
    assert kstest(p_values, "uniform").pvalue > 0.001, p_values
    assert np.mean(np.array(inputs) < 0.05) < 0.2
    assert found.n_features > 100


@pytest.mark.slow
def test_p_values_of_independent_draws_are_uniform():
    """Uneven weights: the wider errors of bins of few draws would make every p-value too large."""
    model, p_values, lenient = DecoderChain(0), [], []
    for seed in range(N_RUNS):
        densities = [
            density_of_run(model.ancestral_run(betas, run_seed))
            for betas, run_seed in (([0.0, 0.5, 1.5], seed), ([0.0, 0.8, 2.5], 10**6 + seed))
        ]
        p_values.append(compare_samplers(*densities).p)
        widened = [replace(d, plain_log_g_jb=d.log_g_jb) for d in densities]
        lenient.append(compare_samplers(*widened).p)
    assert kstest(p_values, "uniform").pvalue > 0.001, p_values
    assert (np.array(lenient) > p_values).all()
    assert np.mean(lenient) > np.mean(p_values) + 0.05


def test_another_law_is_found():
    """The other run's z is 3% too high for low outputs: a slightly wrong sampler."""
    run = draw("worse", ABSOLUTE, 1, moves=40)
    wrong = draw("worse", ABSOLUTE * 1.06, 2, moves=40)
    wrong.beta_k = ABSOLUTE  # says that it sampled by other betas than it did
    found = compare(run, wrong)
    assert found.p < 1e-4
    assert sampler_lines(found, "a", "b")[-1].startswith("a and b DISAGREE")
    right = compare(run, draw("worse", ABSOLUTE, 2, moves=40))
    assert sampler_lines(right, "a", "b")[-1] == "a and b agree within their errors."


def test_other_inputs_with_the_same_outputs_are_found():
    """A sampler that never leaves a part of each output's inputs: the density cannot show it."""
    run, other = draw("worse", ABSOLUTE, 1, moves=40), draw("worse", ABSOLUTE, 2, moves=40)
    stuck = other.x_rksd.copy()
    stuck[:, :, ::3, 2] = 1
    stuck_run = ArrayRun(stuck, other.z_rks, other.walkers, ABSOLUTE, EDGES, model_pair.N_VALUES)
    found = compare(run, stuck_run)
    assert found.p > 1e-3
    assert found.inputs_p < 1e-4
    assert " at site 2, " in found.inputs_where
    assert "DISAGREE" in sampler_lines(found, "a", "b")[-1]


def ancestral(seed, wrong=0.0):
    """Return a run of independent draws whose probabilities are known (or wrong, on one rung)."""
    run = draw("worse", ABSOLUTE, seed, moves=40)
    z_v = model_pair.table("worse").astype(float)
    log_z_k = np.logaddexp.reduce(-ABSOLUTE[:, None] * z_v, axis=1)
    run.log_q = -ABSOLUTE * run.z_rks[..., None] - log_z_k
    run.log_q[..., 3] += wrong * run.x_rksd[..., :1].mean(axis=-1)
    return run


def test_independent_draws_are_compared_with_chains():
    chain = draw("worse", ABSOLUTE, 1, moves=40)
    found = compare(chain, ancestral(2))
    assert min(found.p, found.inputs_p) > 1e-3 and found.n_features > 100
    assert compare(chain, ancestral(2, wrong=1.0)).inputs_p < 1e-4


def halves(seed, moves=40):
    """Return a hot and a cold run, which reach other outputs, and their joint density."""
    runs = [draw("worse", part, 10 * seed + i, moves=moves, walkers=16 - 4 * i)
            for i, part in enumerate((ABSOLUTE[:3], ABSOLUTE[2:]))]  # fmt: skip
    return runs, density_of_runs(runs)


def test_groups_of_runs_are_compared():
    """Also where inputs of one of the four runs are wrong: the densities do not show it."""
    one, other = halves(1), halves(2)
    groups, densities = (one[0], other[0]), (one[1], other[1])
    found = compare_samplers(*densities)
    p, _, n = compare_inputs(groups, densities, found)
    assert min(found.p, p) > 1e-3 and n > 100
    stuck = other[0][1].x_rksd.copy()
    stuck[:, :, np.arange(stuck.shape[2]) % 7 < 3, 2] = 1  # in all lanes alike
    other[0][1].x_rksd = stuck
    assert compare_inputs(groups, densities, found)[0] < 1e-4


def test_shares_of_joined_runs_are_those_of_all_inputs():
    """In one range of all outputs, of which each run has reached a part: exact, within 4 sigmas."""
    runs, density = halves(3)
    edges = EDGES[[0, -1]]
    _, share_jmf, size_g = value_shares(runs, density, edges)
    z = model_pair.table("worse")
    inside = model_pair.X_ID[(z >= edges[0]) & (z <= edges[1])]
    values = np.arange(model_pair.N_VALUES)
    exact_f = (inside[:, :, None] == values).mean(axis=0).ravel()
    share_jf = share_jmf[:, 0]
    spread_f = np.sqrt(((share_jf[:-1] - share_jf[:-1].mean(axis=0)) ** 2).sum(axis=0))
    assert len(size_g) == 12 and (spread_f > 0).all()
    assert (np.abs(share_jf[-1] - exact_f) / spread_f).max() < 4.0


def test_what_cannot_be_compared():
    run = draw("worse", ABSOLUTE, 1)
    other = draw("worse", ABSOLUTE, 2, edges=EDGES[1:])
    with pytest.raises(EstimateError, match=r"different \[bins\]"):
        compare_samplers(density_of_run(run), density_of_run(other))
    alone = ArrayRun(run.x_rksd, run.z_rks, 1, run.beta_k, run.edges, run.n_values)
    with pytest.raises(EstimateError, match="no bin whose errors are known"):
        compare_samplers(density_of_run(run), density_of_run(alone))
    few = draw("worse", ABSOLUTE, 1, walkers=2, moves=64)
    found = compare_samplers(density_of_run(few), density_of_run(draw("worse", ABSOLUTE, 2)))
    assert np.isnan(found.p)
    for inputs_p in (np.nan, 0.5):  # inputs that agree do not make up for untested densities
        line = sampler_lines(replace(found, inputs_p=inputs_p), "a", "b")[-1]
        assert line.startswith("The data cannot tell") and "test their densities" in line
    apart = replace(found, chance_r=np.full_like(found.chance_r, 1e-9))
    for wrong in (apart, replace(found, inputs_p=1e-9)):
        assert "DISAGREE" in sampler_lines(wrong, "a", "b")[-1]


def some_density(log_g_b, effective_b, floor=-np.inf):
    """Return a density of which only counts and ranges matter."""
    run = draw("worse", ABSOLUTE, 1, edges=np.arange(len(log_g_b) + 1.0))
    effective_b = np.asarray(effective_b, float)
    log_g_b = np.where(effective_b > 0, np.asarray(log_g_b, float), -np.inf)
    return replace(
        density_of_run(run), edges=np.arange(len(log_g_b) + 1.0), log_g_b=log_g_b,
        count_b=np.ceil(effective_b).astype(int), effective_b=effective_b, floor=floor,
    )  # fmt: skip


def test_bins_are_joined_until_both_runs_have_50_effective_counts():
    log_g_b = np.zeros(8)
    one = some_density(log_g_b, [30, 30, 60, 200, 60, 40, 40, 40])
    other = some_density(log_g_b, [30, 30, 60, 100, 20, 60, 60, 60])
    assert judged_ranges(one, other).tolist() == [0, 2, 3, 4, 6, 8]
    assert judged_ranges(other, one).tolist() == [0, 2, 3, 4, 6, 8]
    cold = some_density(log_g_b, other.effective_b, floor=2.0)
    assert judged_ranges(one, cold).tolist() == [2, 3, 4, 6, 8]
    few = some_density(log_g_b, np.full(8, 5.0))
    assert judged_ranges(one, few).tolist() == [0, 8]
    gaps = some_density(log_g_b, [0, 0, 60, 100, 0, 60, 60, 0])
    assert judged_ranges(one, gaps).tolist() == [2, 3, 4, 7]


def test_a_tail_of_few_inputs_joins_a_range_and_a_bulk_hardly_reached_is_not_judged():
    effective_b = [3, 3, 60, 200, 60, 3, 3]
    tails = some_density([-9, -6, 0, 3, 0, -6, -9], effective_b)
    assert judged_ranges(tails, tails).tolist() == [0, 3, 4, 7]
    bulk = some_density([-9, -6, 0, 3, 5, 9, 12], effective_b)
    assert judged_ranges(bulk, bulk).tolist() == [0, 3, 4, 5]


def test_the_chance_of_the_largest_difference_counts_all_ranges():
    found = compare_samplers(*(density_of_run(draw("worse", ABSOLUTE, s)) for s in (1, 2)))
    n = len(found.first_r)
    assert n > 5 and (found.stop_r > found.first_r).all()
    alone = found.chance_r.min()
    assert alone < largest_chance(found) == pytest.approx(1.0 - (1.0 - alone) ** n)
    line = sampler_lines(found, "a", "b")[0]
    assert (
        line.startswith(f"{n} ranges of bins")
        and f"(probability {largest_chance(found):.2g}" in line
    )
