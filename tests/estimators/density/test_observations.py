"""What runs have observed: refusals, cuts in lanes and blocks, and effective counts."""

from dataclasses import replace

import numpy as np
import pytest
from configs import config_with
from lattice import Lattice, ancestral_run, independent_run

from omniinput_hpc.estimators import EstimateError
from omniinput_hpc.estimators.density.observations import observe
from omniinput_hpc.estimators.density.terms import ChainTerms, DrawTerms
from omniinput_hpc.estimators.errors.chains import dispersion

MODEL = Lattice(n_sites=6, unit=0.25)
BETA_K = np.array([-2.0, 0.0, 2.0])
EDGES = (np.arange(len(MODEL.z_l()) + 1) - 0.5) * MODEL.unit


def run_of(seed=1, **options):
    run = independent_run(MODEL, BETA_K, EDGES, seed=seed, **options)
    run.config = config_with(run={"seed": seed})
    return run


def test_one_run():
    run = run_of(walkers=16, rounds=32)
    found = observe([run])
    np.testing.assert_array_equal(found.count_b, run.counts_kb.sum(axis=0))
    np.testing.assert_array_equal(found.n_k, run.counts_kb.sum(axis=1))
    seen = found.count_b > 0
    np.testing.assert_allclose(found.z_b[seen], MODEL.z_l()[seen], atol=1e-6)
    assert found.log_measure == pytest.approx(6 * np.log(4)) and found.share_inside == 1.0
    assert found.rows_k.tolist() == [0, 1, 2] and not found.ancestral
    (lanes,), (blocks,) = found.lanes, found.blocks
    assert isinstance(lanes, ChainTerms) and len(lanes.size_p) == len(found.lanes_g) == 16
    for terms in (lanes, blocks):
        np.testing.assert_array_equal(terms.counts_pkb.sum(axis=0), run.counts_kb)
        fewest = terms.counts_pkb.sum(axis=1).min(axis=0)
        assert (found.fewest_b <= fewest).all()
    np.testing.assert_array_equal(found.rung_f_k(np.array([1.0, 2.0, 3.0])), [1.0, 2.0, 3.0])


def test_independent_moves_count_nearly_as_they_are():
    found = observe([run_of(walkers=16, rounds=32, moves=50)])
    ratio = found.effective_b[found.count_b > 500] / found.count_b[found.count_b > 500]
    assert (ratio <= 1.0).all() and ratio.mean() > 0.7


def test_two_runs_follow_one_another():
    runs = [run_of(1), run_of(2)]
    found = observe(runs)
    np.testing.assert_array_equal(found.beta_k, [*BETA_K, *BETA_K])
    np.testing.assert_array_equal(found.count_b, sum(r.counts_kb.sum(axis=0) for r in runs))
    assert found.rows_k.tolist() == list(range(6)) and found.rung_weights is None
    assert len(found.lanes) == 2 and found.lanes_g.sum() == 16


def test_ancestral_draws_are_one_row():
    run = ancestral_run(MODEL, np.outer([0.0, 2.0], np.ones(6)), EDGES)
    found = observe([run])
    assert isinstance(found.lanes[0], DrawTerms) and found.ancestral
    assert found.rows_k.tolist() == [-1, -1] and found.label_k == ["the ancestral draws"]
    np.testing.assert_array_equal(found.rung_f_k(np.array([5.0])), [0.0, 0.0])
    np.testing.assert_array_equal(found.weight_k, [1.0])
    run.z_rks = run.z_rks + np.float32(0.25)  # samples that are not the counted draws
    with pytest.raises(EstimateError, match="not every draw was recorded"):
        observe([run])


def other(run, **changes):
    for name, value in changes.items():
        setattr(run, name, value)
    return run


@pytest.mark.parametrize(("second", "words"), [
    (lambda: run_of(1), "have the same [run] seed"),
    (lambda: other(run_of(2), fingerprint="x"), "have different models"),
    (lambda: other(run_of(2), n_sites=7), "have different spaces of inputs"),
    (lambda: other(run_of(2), edges=EDGES + 0.01), "have different bins"),
    (lambda: other(run_of(2), rounds=0), "holds no committed round yet"),
])  # fmt: skip
def test_runs_that_do_not_belong_together(second, words):
    with pytest.raises(EstimateError) as caught:
        observe([run_of(1), second()])
    assert words in str(caught.value)


def test_damage_is_refused():
    lanes = replace(run_of().record(), lane_counts_kgb=run_of(3).lane_counts_kgb)
    with pytest.raises(EstimateError, match="lanes do not add up"):
        observe([lanes])
    sums = run_of()
    sums.z_sum_kb[1, 3] = np.nan
    with pytest.raises(EstimateError, match="sums of z are not finite"):
        observe([sums])
    with pytest.raises(EstimateError, match=r"fell outside the bins .*; widen \[bins\]"):
        observe([independent_run(MODEL, BETA_K, EDGES + 50.0)])


def test_dispersion_is_one_of_independent_counts_and_that_of_repeated_ones():
    random = np.random.default_rng(6)
    size_g = np.ones(16, int)
    independent = random.poisson(200, size=(16, 40))
    np.testing.assert_allclose(dispersion(independent, size_g), 1.0, atol=0.25)
    repeated = dispersion(9 * random.poisson(200, size=(16, 40)), size_g)
    assert repeated.mean() == pytest.approx(9.0, rel=0.1)
    rarely = independent.copy()
    rarely[:, 7] = 0
    rarely[0, 7] = 1
    assert (dispersion(9 * rarely, size_g)[7] > 5.0).all()  # from its neighbours
