"""Another model's outputs of independent draws: exact on a space that is enumerated."""

import numpy as np
import pytest
from configs import config_with
from lattice import ancestral_run, first_is_zero, independent_run
from two_outputs import EDGES, MODEL, OTHER, TILT_KD, X_ID, Z, drawn, other_of

from omniinput_hpc.estimators import EstimateError
from omniinput_hpc.estimators.comparison import other_outputs
from omniinput_hpc.estimators.comparison.other_outputs import (
    aupr_change,
    changes,
    log_g_change,
    with_outputs,
)
from omniinput_hpc.estimators.density.density import density_of_run
from omniinput_hpc.estimators.precision_recall import curves

RECALL = (4.5, 6.6)
N_RUNS = 24


def pair(seed):
    """Return the draws with both outputs."""
    run, config = drawn(seed), config_with()
    own = with_outputs(run.record(), run.z_rks, config, "own")
    return run, own, with_outputs(run.record(), other_of(run.x_rksd), config, "other")


@pytest.fixture(scope="module")
def many():
    """Return (own density, other density, changes, AUPR's change) of many runs."""
    found = []
    for seed in range(N_RUNS):
        _, own, other = pair(seed)
        densities = density_of_run(own), density_of_run(other)
        c = changes(densities[0], own, other.z(), EDGES)
        aupr = aupr_change((own, other), densities, first_is_zero, "low", RECALL)
        found.append((*densities, c, aupr))
    return found


def in_bins(z, value=None):
    return np.histogram(z.astype(float), EDGES, weights=value)[0]


COUNT_B = in_bins(Z)
MEAN_B = in_bins(Z, OTHER.astype(float) - Z) / np.maximum(COUNT_B, 1)


def scores(value, error, exact, use):
    """Return (value - exact) / error where it is to be used."""
    return (value[use] - exact[use]) / error[use]


def test_own_outputs_give_the_run_s_own_density_bit_for_bit():
    run, own, _ = pair(0)
    expected, found = density_of_run(run), density_of_run(own)
    for name in ("log_g_b", "log_g_error_b", "block_error_b", "log_g_jb", "count_b", "z_b"):
        np.testing.assert_array_equal(getattr(found, name), getattr(expected, name))
    np.testing.assert_array_equal(own.counts_nkb(3), run.counts_nkb(3))
    np.testing.assert_array_equal(own.lane_counts_kgb, run.lane_counts_kgb)
    np.testing.assert_array_equal(own.outside_k2, run.outside_k2)


def test_mean_changes_are_those_of_all_inputs(many):
    z = np.concatenate(
        [scores(c.mean_b, c.error_b, MEAN_B, c.effective_b > 30) for _, _, c, _ in many]
    )
    assert len(z) > 150 and 0.8 < np.sqrt((z**2).mean()) < 1.3
    sd_b = np.sqrt(in_bins(Z, (OTHER.astype(float) - Z) ** 2) / np.maximum(COUNT_B, 1) - MEAN_B**2)
    sd = np.mean([c.sd_b for _, _, c, _ in many], axis=0)
    use = np.mean([c.effective_b for _, _, c, _ in many], axis=0) > 30
    np.testing.assert_allclose(sd[use], sd_b[use], rtol=0.06)
    c = many[0][2]
    assert c.z_k[0] > c.z_k[-1] and (c.error_k > 0).all() and c.draws_b.sum() == 10 * 4 * 128


def test_means_without_weights_are_not(monkeypatch):
    """The wrong variant: each draw of a bin counts alike, whatever it was drawn by."""
    wrong = []
    for seed in range(N_RUNS):
        _, own, other = pair(seed)
        density = density_of_run(own)
        with monkeypatch.context() as patched:
            patched.setattr(type(density), "log_mixture", lambda self, z, *_: 0.0 * z)
            c = changes(density, own, other.z(), EDGES)
        wrong.append(scores(c.mean_b, c.error_b, MEAN_B, c.draws_b > 100))
    assert np.sqrt((np.concatenate(wrong) ** 2).mean()) > 1.5


def test_the_change_of_the_density_is_exact_and_known_better_than_either(many):
    with np.errstate(divide="ignore"):
        exact_b = np.log(in_bins(OTHER)) - np.log(COUNT_B)
    z, shrunk = [], []
    for own, other, _, _ in many:
        change_b, error_b = log_g_change(own, other)
        use = (np.minimum(own.effective_b, other.effective_b) > 50) & np.isfinite(exact_b)
        z.append(scores(change_b, error_b, exact_b, use))
        shrunk.append(error_b[use] / np.hypot(own.log_g_error_b, other.log_g_error_b)[use])
    z = np.concatenate(z)
    assert len(z) > 150 and 0.8 < np.sqrt((z**2).mean()) < 1.3
    assert np.median(np.concatenate(shrunk)) < 0.85


def test_two_independent_runs_do_not_share_their_errors(many):
    """The wrong variant: the difference of two runs' densities with the errors of one run's."""
    with np.errstate(divide="ignore"):
        exact_b = np.log(in_bins(OTHER)) - np.log(COUNT_B)
    wrong = []
    for (own, _, _, _), (first, second, _, _) in zip(many, many[1:] + many[:1], strict=True):
        error_b = log_g_change(first, second)[1]
        use = np.minimum(own.effective_b, second.effective_b) > 50
        with np.errstate(invalid="ignore"):
            wrong.append(scores(second.log_g_b - own.log_g_b, error_b, exact_b, use))
    assert np.sqrt((np.concatenate(wrong) ** 2).mean()) > 1.35


def exact_aupr(z, ends):
    right_b = in_bins(z, first_is_zero(X_ID))
    count_b = in_bins(z)
    with np.errstate(divide="ignore", invalid="ignore"):
        p, log_recall = curves.accumulate(np.log(count_b), right_b / np.maximum(count_b, 1), "low")
    return curves.area(p, log_recall, *ends)


def test_the_change_of_the_aupr(many):
    z, exact = [], exact_aupr(OTHER, RECALL) - exact_aupr(Z, RECALL)
    assert abs(exact) > 0.02
    for *_, a in many:
        assert (a.lower, a.upper) == RECALL
        z.append((float(a.change.value) - exact) / float(a.change.error))
        assert float(a.change.value) == pytest.approx(a.other - a.own)
    assert 0.75 < np.sqrt(np.mean(np.square(z))) < 1.4
    assert np.mean([a.change.low <= a.change.value <= a.change.high for *_, a in many]) == 1.0


def test_chains_have_no_known_probabilities():
    run = independent_run(MODEL, np.array([0.0, 1.0]), EDGES)
    with pytest.raises(EstimateError, match="holds chains"):
        with_outputs(run.record(), run.z_rks, run.config, "other")


def test_only_the_rounds_that_were_given_count():
    run = ancestral_run(MODEL, TILT_KD, EDGES, rounds=6, seed=1)
    part = with_outputs(run.record(), run.z_rks[:4], run.config, "own")
    source = part.source
    assert len(list(source.samples())) == len(list(source.samples_log_q())) == part.rounds == 4
    assert part.counts_kb.sum() + part.outside_k2.sum() == run.z_rks[:4].size
    assert other_outputs.changes(
        density_of_run(part), part, run.z_rks[:4] + np.float32(0.5), EDGES
    ).mean_k == pytest.approx(0.5)
