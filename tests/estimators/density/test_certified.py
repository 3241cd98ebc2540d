"""Certified bounds on numbers of inputs: they hold, and what is not bounded is refused."""

from dataclasses import replace

import numpy as np
import pytest
from configs import config_with
from lattice import ArrayRun, Lattice, independent_run
from law_runs import BETA_K, EDGES, LAW, N_VALUES, Q, X, outputs
from normalized_chain import NormalizedChain, by_the_normal_law
from run_files import CONFIG

from omniinput_hpc.config import input_file
from omniinput_hpc.estimators import EstimateError
from omniinput_hpc.estimators.density.certified import (
    KnownBelow,
    certify,
    mean_bounds,
    predicted_sites,
)

BETAS = (0.0, 0.5, 1.0, 1.2)


@pytest.fixture(scope="module")
def model():
    return NormalizedChain(0, sharpness=1.5, spread=0.5)


@pytest.mark.slow
def test_bounds_hold_in_95_percent_and_normal_intervals_do_not(model):
    """A short form of tests/benchmarks/certificates.py."""
    z_t = model.thresholds(6)
    exact_t, n_runs = model.log_up_to(z_t), 60
    held, normal, apart = np.zeros(6), np.zeros(6), np.zeros(6)
    for seed in range(n_runs):
        run = model.ancestral_run(BETAS, seed)
        found = certify(run, model.n_predicted, z_t=z_t)
        held += (found.low_t <= exact_t) & (exact_t <= found.high_t)
        low_t, high_t = by_the_normal_law(run, z_t)
        normal += (low_t <= exact_t) & (exact_t <= high_t)
        apart += found.high_t - found.low_t
    assert (held >= 0.95 * n_runs - 2).all()
    assert (normal < 0.92 * n_runs).any()  # uneven weights: a variance from the draws misleads
    assert (apart / n_runs < 4.0).all()  # of up to 50 nats: they say something


@pytest.mark.parametrize(("p", "value"), [(0.002, 1.0), (0.3, 1.0), (0.02, 1e-4), (1.0, 0.7)])
def test_means_of_uneven_numbers(p, value):
    """Bounds of the mean of numbers that are `value` with probability p, else 0."""
    rng, n_runs = np.random.default_rng(4), 400
    y_tj = value * (rng.random((n_runs, 300)) < p)
    low_t, high_t = mean_bounds(y_tj, 0.05)
    assert ((low_t <= p * value) & (p * value <= high_t)).mean() > 0.95
    assert (low_t <= y_tj.mean(axis=1)).all() and (y_tj.mean(axis=1) <= high_t).all()
    tighter = mean_bounds(y_tj, 0.5)
    assert (tighter[0] >= low_t).all() and (tighter[1] <= high_t).all()


def test_a_bound_that_is_too_small_would_show(model, monkeypatch):
    """Draws beyond the bound M are refused: rows whose probabilities add up to more than 1."""
    run = model.ancestral_run(BETAS, 1)
    run.z_rks = run.z_rks - np.float32(2.0 * model.offset + 0.5)
    run.beta_k = run.beta_k * 1.01  # no rung at b = 1, by which z could be put right
    with pytest.raises(EstimateError, match="add up to at most 1"):
        certify(run, model.n_predicted)


def test_what_a_census_knows_is_exact(model):
    run = model.ancestral_run(BETAS, 3)
    last = int(np.searchsorted(np.cumsum(model.count_l), 10**4))
    half = 0.5 * (model.z_l[1] - model.z_l[0])
    z_t = model.z_l[[last // 2, last, last + 2]] + half
    z_i = np.repeat(model.z_l[: last + 1], model.count_l[: last + 1].astype(int))
    found = certify(run, model.n_predicted, KnownBelow(z_t[1], z_i), z_t)
    without = certify(run, model.n_predicted, z_t=z_t)
    exact_t = model.log_up_to(z_t)
    assert found.exact_t.tolist() == [True, True, False]
    np.testing.assert_allclose(found.low_t[:2], exact_t[:2])
    np.testing.assert_array_equal(found.low_t[:2], found.high_t[:2])
    assert found.low_t[2] <= exact_t[2] <= found.high_t[2]
    assert found.high_t[2] - found.low_t[2] < 0.9 * (without.high_t[2] - without.low_t[2])


def test_nothing_up_to_there_has_an_upper_bound_alone(model):
    run = model.ancestral_run((0.0, 0.2), 5)
    found = certify(run, model.n_predicted, z_t=model.thresholds(12)[:1])
    assert found.log_n_t[0] == found.low_t[0] == -np.inf
    assert model.log_up_to(found.z_t)[0] < found.high_t[0] <= 24 * np.log(8)


def test_chains_are_refused():
    run = independent_run(Lattice(n_sites=6), np.array([0.0, 1.0]), np.linspace(0, 7, 8))
    with pytest.raises(EstimateError, match="ancestral"):
        certify(run, 5)


def test_predicted_sites(model):
    run = model.ancestral_run(BETAS, 1)
    assert predicted_sites(run) == 23
    run.config = config_with(model={"kind": "causal-lm", "prefix": "a"})
    assert predicted_sites(run) == 24
    run.config, run.beta_k = config_with(), np.array([0.0, 2.0])
    with pytest.raises(EstimateError, match="number of predicted sites"):
        predicted_sites(run)


def test_found_is_the_mean_of_the_draws(model):
    """The estimate is the plain mean of 1 / q of the draws up to Z."""
    run, z_t = model.ancestral_run(BETAS, 7), model.thresholds(4)
    found = certify(run, model.n_predicted, z_t=z_t)
    low_t, high_t = by_the_normal_law(run, z_t)
    assert (low_t < found.log_n_t).all() and (found.log_n_t < high_t).all()
    assert (found.low_t < found.log_n_t).all() and (found.log_n_t < found.high_t).all()
    assert not replace(found).exact_t.any() and found.n_groups == 640


def under_law(seed, steps=8, every=1, more="", betas=BETA_K):
    """Return a run under a law; only the last of `steps` moves at beta = 0 is drawn from it."""
    rng, z, walkers, moves, rounds = np.random.default_rng(seed), outputs(), 8, 24, 4
    p_kn = Q * np.exp(-np.outer(betas, z - z.max()))
    p_kn[0] = np.where(z < -2, 3.0, 1.0) * Q  # what a kernel has not mixed
    shape = (rounds, moves // every * walkers)
    i_rks = np.stack([rng.choice(len(X), shape, p=p / p.sum()) for p in p_kn], axis=1)
    move = every * np.arange(1, moves // every + 1).repeat(walkers)
    drawn = move % steps == 0
    i_rks[:, 0, drawn] = rng.choice(len(X), (rounds, int(drawn.sum())), p=Q)
    run = ArrayRun(X[i_rks].astype(np.uint8), z[i_rks].astype(np.float32), walkers, betas, EDGES,
                   N_VALUES)  # fmt: skip
    model = 'kind = "python"\nfactory = "law_models:events"'
    text = CONFIG.format(
        rounds=rounds, seed=1, model=f"{model}\n{LAW}", walkers=walkers, moves=steps,
        betas=f"{betas.tolist()}\n{more}", lower=EDGES[0], upper=EDGES[-1], width=1.0,
    )  # fmt: skip
    text = text.replace("exchanges = 1", f"exchanges = {moves // steps}")
    run.config = input_file.parse(text.replace("every = 1", f"every = {every}"), "")
    return run


def test_bounds_under_a_law_hold_in_95_percent_and_without_weights_do_not():
    """The wrong variant takes the samples of all rungs as draws of the law."""
    z_t = EDGES[1:]
    exact_t, n_runs = np.log([Q[outputs() <= z].sum() for z in z_t]), 400
    held, forgotten, width = np.zeros((3, len(z_t)))
    for seed in range(n_runs):
        run = under_law(seed)
        found = certify(run, 0)
        assert found.n_groups == 3 * 8 * 4 and not found.exact_t.any()
        held += (found.low_t <= exact_t + 1e-12) & (exact_t - 1e-12 <= found.high_t)
        run.beta_k = np.zeros_like(run.beta_k)
        wrong = certify(run, 0)
        forgotten += (wrong.low_t <= exact_t + 1e-12) & (exact_t - 1e-12 <= wrong.high_t)
        width += found.high_t - exact_t
    assert (held >= 0.95 * n_runs).all(), held
    assert (forgotten[:-1] < 0.05 * n_runs).all()
    assert exact_t[0] < -5 and (width[3:] / n_runs < 0.8).all()  # they say something


@pytest.mark.parametrize("given", [
    {"more": "anchors = false"}, {"betas": BETA_K + 1.0}, {"steps": 3, "every": 8},
])  # fmt: skip
def test_samples_that_may_not_be_draws_of_the_law_have_no_bounds(given):
    run = under_law(1, **({"more": ""} | given))
    if given.get("every") == 8:  # move 24 is the last of a segment
        assert certify(run, 0).n_groups == 8 * 4
        return
    with pytest.raises(EstimateError, match="surely a draw of the law"):
        certify(run, 0)
