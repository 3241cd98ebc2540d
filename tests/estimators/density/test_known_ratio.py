"""The two constants of a language model: found, compared, and made use of."""

import numpy as np
import pytest
from configs import config_with
from lattice import ArrayRun, Lattice, independent_run
from scipy.special import logsumexp

from omniinput_hpc.estimators.density import density as density_module
from omniinput_hpc.estimators.density.density import density_of_run
from omniinput_hpc.estimators.density.known_ratio import (
    exact_difference,
    log_constants_apart,
)
from omniinput_hpc.results.density import constants_lines


class Unigram:
    """A language model that draws each of D tokens alike: p(v) = 1/2, 1/4, 1/8, 1/8.

    z, the mean of -ln p, is a whole number of ln 2 / D, so that log g is exact by convolution.
    """

    n_values, n_sites = 4, 24
    bits_v = np.array([1, 2, 3, 3])

    def z_l(self):
        return np.arange(3 * self.n_sites + 1) * np.log(2.0) / self.n_sites

    def log_g_b(self):
        count = np.ones(1)
        for _ in range(self.n_sites):
            count = np.convolve(count, np.bincount(self.bits_v))
        with np.errstate(divide="ignore"):
            return np.log(count)

    def draw(self, beta_k, n, rng):
        p_kv = np.exp(-np.outer(beta_k, self.bits_v * np.log(2.0) / self.n_sites))
        upto_kv = np.cumsum(p_kv / p_kv.sum(axis=1, keepdims=True), axis=1)[:, :-1]
        u = rng.random((len(beta_k), n, self.n_sites, 1))
        return (u >= upto_kv[:, None, None, :]).sum(axis=-1).astype(np.uint8)

    def z(self, x):
        return (self.bits_v[x].sum(axis=-1) * np.log(2.0) / self.n_sites).astype(np.float32)


MODEL = Unigram()
M = float(MODEL.n_sites)
EDGES = (np.arange(len(MODEL.z_l()) + 1) - 0.5) * np.log(2.0) / MODEL.n_sites
LADDER = (0.0, 6.0, 12.0, 18.0, 24.0)


def run_of(seed=1, beta_k=LADDER, m=M, **options):
    edges = options.pop("edges", EDGES)
    sizes = {"rounds": 16, "walkers": 16, "moves": 2} | options
    run = independent_run(MODEL, np.array(beta_k), edges, seed=seed, **sizes)
    run.config, run.model_beta = config_with(model={"kind": "causal-lm"}), m
    return run


def z_scores(density, log_g_b):
    firm = (density.effective_b >= 50) & np.isfinite(density.log_g_error_b)
    return (density.log_g_b[firm] - log_g_b[firm]) / density.log_g_error_b[firm]


@pytest.mark.slow
def test_the_constants_apart_are_the_exact_ones():
    scores = [
        (found.value - found.exact) / found.error
        for found in (density_of_run(run_of(seed)).ends for seed in range(30))
    ]
    assert 0.7 < np.sqrt(np.mean(np.square(scores))) < 1.4 and np.abs(scores).max() < 4.5


@pytest.mark.slow
def test_errors_hold_where_both_constants_are_made_use_of(monkeypatch):
    """Within t of 15 degrees of freedom, in 40 runs; a wrong log Z(m) is out of its errors."""
    runs = [run_of(seed) for seed in range(40)]
    found = [density_of_run(run) for run in runs]
    assert all(d.pinned for d in found)
    scores = np.concatenate([z_scores(d, MODEL.log_g_b()) for d in found])
    assert 0.9 < np.sqrt(np.mean(scores**2)) < 1.2
    monkeypatch.setattr(density_module, "exact_difference", lambda *_: np.nan)
    free = [density_of_run(run) for run in runs]
    low = MODEL.z_l() < 1.3  # where the model's own texts lie, far from beta = 0
    spread = [np.std([logsumexp(d.log_g_b[low]) for d in some]) for some in (found, free)]
    assert not any(d.pinned for d in free) and spread[0] < 0.75 * spread[1], spread
    wrong = np.concatenate([z_scores(d, MODEL.log_g_b() + 0.3) for d in found])
    assert np.sqrt(np.mean(wrong**2)) > 2.0


def test_the_density_at_m_is_the_models_own_probability():
    run = run_of(rounds=24)
    density = density_of_run(run)
    use_b = density.believed_b
    parts = (density.log_g_b, density.log_g_jb, density.inside, use_b, density.lanes_g)
    value, error = log_constants_apart(*parts, M)
    assert density.pinned and density.ends.agree
    assert abs(value - M * np.log(4)) < 3 * error
    assert error < 0.7 * density.ends.error
    assert "scaled at both ends" in constants_lines(density.ends, density.pinned)[0]


def test_cold_rungs_alone_are_absolute_by_the_models_own():
    density = density_of_run(run_of(beta_k=(24.0, 30.0, 36.0)))
    assert density.absolute and density.pinned and density.ends is None
    scores = z_scores(density, MODEL.log_g_b())
    assert len(scores) > 10 and np.sqrt(np.mean(scores**2)) < 1.6


def test_ends_outside_the_bins_are_not_compared():
    """A sum over the bins is then no Z; the rungs' own constants still scale the density."""
    middle = slice(int(np.searchsorted(EDGES, 0.9)), int(np.searchsorted(EDGES, 1.5)) + 1)
    density = density_of_run(run_of(edges=EDGES[middle], beta_k=(0.0, 8.0, 16.0, 24.0), rounds=40))
    assert density.outside_k2.sum() > 0.05 * density.n_k.sum()
    assert density.ends is None and not density.pinned
    assert not any("log Z(0)" in reason for reason in density.verdict.reasons)
    scores = z_scores(density, MODEL.log_g_b()[middle][:-1])
    assert np.sqrt(np.mean(scores**2)) < 1.6


def test_a_constant_that_does_not_fit_is_a_reason_and_not_made_use_of():
    """As if the rung at 20 were the model's own."""
    density = density_of_run(run_of(beta_k=(0.0, 5.0, 10.0, 15.0, 20.0), m=20.0))
    assert not density.pinned and not density.ends.agree and not density.verdict.converged
    assert any(r.startswith("impossible: log Z(0) - log Z(20)") for r in density.verdict.reasons)
    assert "NOT inside" in constants_lines(density.ends, density.pinned)[0]


def test_a_ladder_that_is_wrong_in_between_shows():
    run = run_of()
    run.beta_k = np.array([0.0, 8.0, 14.0, 20.0, 24.0])  # the inner rungs sampled another beta
    assert not density_of_run(run).pinned


def test_one_bin_tells_nothing_of_the_constants():
    """All replicates are then equal, although the spread of z inside the bin is an estimate."""
    density = density_of_run(run_of(edges=EDGES[[0, -1]]))
    assert density.ends.error == np.inf and not density.pinned
    assert not any("impossible" in reason for reason in density.verdict.reasons)


@pytest.mark.parametrize("edges", [[2.0, 2.5], [2.0, float(np.log(10)), 2.5]])
def test_equal_outputs_agree_up_to_rounding(edges):
    """A model of uniform rows: ln 10 of every input, in one bin or, by rounding, in two."""
    rng = np.random.default_rng(0)
    x = rng.integers(0, 10, (8, 3, 160, 8)).astype(np.uint8)
    z = (np.log(10) + 2.4e-7 * rng.integers(-1, 2, x.shape[:3])).astype(np.float32)
    run = ArrayRun(x, z, 16, np.array([0.0, 4.0, 8.0]), edges, 10)
    run.config, run.model_beta = config_with(model={"kind": "causal-lm"}), 8.0
    density = density_of_run(run)
    assert not any("impossible" in reason for reason in density.verdict.reasons)
    assert density.pinned == (len(edges) > 2)


def test_who_has_known_constants():
    """Decoders of whole vocabularies, and models whose rows were found to sum to 1."""
    run = run_of(rounds=1)
    for model, normalized, known in (
        ({"kind": "causal-lm"}, False, True),
        ({"kind": "causal-lm", "tokens": "no-special"}, False, False),
        ({"kind": "python"}, False, False),
        ({"kind": "python"}, True, True),
    ):
        run.config, run.rows_normalized = config_with(model=model), normalized
        found = exact_difference(run, 24.0)
        assert found == pytest.approx(24 * np.log(4)) if known else np.isnan(found)


def test_other_models_have_no_ends():
    edges = (np.arange(len(Lattice().z_l()) + 1) - 0.5) * Lattice().unit
    density = density_of_run(independent_run(Lattice(), np.array([0.0, 2.0]), edges))
    assert density.ends is None and not density.pinned
    assert constants_lines(density.ends, density.pinned) == []


def test_a_ladder_that_stays_far_from_m_is_not_judged_by_it():
    """What it visited holds little of Z(m), which no error of the visited bins shows."""
    for top in (1.0, 2.0):
        density = density_of_run(run_of(beta_k=np.linspace(0.0, top, 4), rounds=24, moves=10))
        assert density.ends is None and not density.pinned, density.ends
        assert not any("impossible" in reason for reason in density.verdict.reasons)
        assert 0.6 < np.sqrt(np.mean(z_scores(density, MODEL.log_g_b()) ** 2)) < 1.6
    # one that fills all bins of Z(m) is, though no rung is at m
    density = density_of_run(run_of(beta_k=(0.0, 8.0, 16.0, 22.0), rounds=64, moves=80))
    assert density.ends.agree and not density.pinned
    assert "scaled at both ends" not in constants_lines(density.ends, density.pinned)[0]
