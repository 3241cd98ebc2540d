"""Labels made for one model give another one's curve; two curves from the same labels are paired.

`tests/benchmarks/bank_coverage.py` is the long form, also on the Toys.
"""

from dataclasses import replace

import numpy as np
import pytest
from bank_worlds import coverage, paired, small_world

from omniinput_hpc.estimators import EstimateError
from omniinput_hpc.estimators.density.wide_bins import coarsen
from omniinput_hpc.estimators.errors.jackknife import N_DRAWS
from omniinput_hpc.estimators.precision_recall import banked
from omniinput_hpc.estimators.precision_recall.annotators import convergence
from omniinput_hpc.estimators.precision_recall.banked import BankedScores, log_mixture
from omniinput_hpc.estimators.precision_recall.from_scores import Scored, scored_curve

WORLD = small_world()
RUNS = 12


def test_the_mixture_adds_all_draws_that_can_find_an_input():
    draws_si = np.array([[3.0, 3.0, 0.0], [0.0, 5.0, 0.0]])
    log_g_si = np.log([[10.0, 10.0, 7.0], [7.0, 20.0, 1.0]])
    expected = [3 / 10, 3 / 10 + 5 / 20, 0.0]
    np.testing.assert_allclose(np.exp(log_mixture(draws_si, log_g_si)), expected)


def drawn(names, seed=1, per_bin=40):
    rng = np.random.default_rng(seed)
    densities = {name: WORLD.density(name, 1) for name in WORLD.z}
    lane_n = rng.integers(64, size=len(WORLD.x_id))
    return WORLD.draw(names, per_bin, densities, rng), densities, lane_n


def test_labels_of_the_model_itself_count_as_its_scores_do():
    labels, densities, lane_n = drawn(["good"])
    scored = WORLD.scored("good", labels, densities, lane_n)
    plain = Scored(
        scored.edges, scored.bin_i, scored.lane_i, labels[1].astype(float), scored.score_ai, ["ana"]
    )
    mine, theirs = scored.means(), plain.means()
    np.testing.assert_allclose(mine.r_b, theirs.r_b)
    np.testing.assert_allclose(mine.effective_b, theirs.effective_b)
    np.testing.assert_allclose(mine.represented_b[theirs.inputs_b > 0], 1.0)


def test_intervals_hold_the_truth_and_without_weights_do_not():
    for made_for, name in ((["good"], "worse"), (["worse"], "good")):
        assert (coverage(WORLD, made_for, name, RUNS) > 0.85).all()
    assert (coverage(WORLD, ["good"], "worse", RUNS, weighed=False) < 0.7).all()


def test_pairing_narrows_the_difference_and_holds_the_truth():
    (own, own_width), (bank, bank_width) = paired(WORLD, RUNS)
    assert own >= 0.8 and bank >= 0.85 and own_width > 1.15 * bank_width


def test_draws_of_equal_number_belong_together():
    labels, densities, lane_n = drawn(["good", "worse"])
    means = WORLD.scored("good", labels, densities, lane_n).means()
    some_b = np.isfinite(coarsen(densities["good"], WORLD.edges["good"]).log_g_b)
    log_g_b = coarsen(densities["good"], WORLD.edges["good"]).log_g_b[some_b]
    order = means.order(log_g_b, "low", lambda value_b: np.nan_to_num(value_b[..., some_b]))
    rng = np.random.default_rng(1)
    sorted_draws = [order(rng.random((N_DRAWS, some_b.sum()))) for _ in range(2)]
    ranks = [np.argsort(np.argsort(banked._auprs(log_g_b, r_mb, "low"))) for r_mb in sorted_draws]
    np.testing.assert_array_equal(*ranks)
    for name in WORLD.z:
        scored = WORLD.scored(name, labels, densities, lane_n)
        assert scored_curve(densities[name], scored, "low", 10, 2).curve.draws.paired


def test_bins_that_labels_do_not_reach_are_missing_and_end_the_curve():
    labels, densities, lane_n = drawn(["good"])
    number_u, count_u, draws_b = labels
    kept = WORLD.z["good"][number_u] < 4.0  # no labels of what the good model finds unlikely
    lost_b = WORLD.edges["good"][:-1] >= 4.0
    part = number_u[kept], count_u[kept], {"good": np.where(lost_b, 0.0, draws_b["good"])}
    scored = WORLD.scored("worse", part, densities, lane_n)
    density = densities["worse"]
    means = scored.means()
    missing_b = means.missing_b
    z = WORLD.z["worse"].astype(float)
    low_b, high_b = scored.edges[:-1], scored.edges[1:]
    ends = zip(low_b, high_b, strict=True)
    reached_b = np.array([np.mean(WORLD.z["good"][(z >= a) & (z < b)] < 4.0) for a, b in ends])
    assert (
        missing_b[reached_b < 0.5].all()
        and not missing_b[(reached_b > 0.95) & (means.inputs_b > 5)].any()
    )
    enough_b = means.enough(5, 2)
    assert not (enough_b & missing_b).any()
    with pytest.raises(EstimateError, match="some inputs cannot be among those that were drawn"):
        scored_curve(density, scored, "low", 5, 2)


def test_curves_of_fewer_labels_count_the_bins_of_the_whole():
    """Labels that represent a tenth of a bin's inputs: no step of the convergence counts it."""
    labels, densities, lane_n = drawn(["good"])
    scored = WORLD.scored("good", labels, densities, lane_n)
    tenth_b = scored.edges[:-1] >= 4.0
    scored = replace(scored, log_g_b=scored.log_g_b + np.where(tenth_b, np.log(10.0), 0.0))
    whole = scored_curve(densities["good"], scored, "low", 10, 2)
    assert whole.used_b.any() and not (whole.used_b & tenth_b).any()
    for curve in convergence(densities["good"], scored, "low", (10, 20), 2).values():
        np.testing.assert_array_equal(curve.bin_t, whole.curve.bin_t)


def test_what_is_represented_is_not_known_if_a_density_is_not_absolute():
    labels, densities, lane_n = drawn(["good"])
    scored = WORLD.scored("worse", labels, densities, lane_n, weighed=False)
    assert isinstance(scored, BankedScores) and np.isnan(scored.log_g_b).all()
    assert np.isnan(scored.means().represented_b).all() and not scored.means().missing_b.any()


@pytest.mark.parametrize("keep", [0.5, 1.0])
def test_a_part_keeps_the_numbers_in_the_bank(keep):
    labels, densities, lane_n = drawn(["good", "worse"])
    scored = WORLD.scored("good", labels, densities, lane_n)
    keep_i = np.random.default_rng(1).random(len(scored.bin_i)) < keep
    part = scored.part(keep_i)
    np.testing.assert_array_equal(part.number_i, scored.number_i[keep_i])
    assert len(part.draws_n) == len(scored.draws_n)
