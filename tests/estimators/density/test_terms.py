"""Terms of the equations: rows of some parts, and sums that span hundreds of nats."""

import numpy as np
import pytest

from omniinput_hpc.estimators.density.terms import ChainTerms, DrawSums, join_terms
from omniinput_hpc.estimators.errors.jackknife import jackknife_error

RANDOM = np.random.default_rng(4)
ALL, SOME = np.ones(3, bool), np.array([True, False, True])
SIZE_P = np.array([2, 1, 1])


def chains(n_rungs=2, n_bins=5):
    counts_pkb = RANDOM.integers(1, 50, size=(3, n_rungs, n_bins))
    total_k = counts_pkb.sum(axis=(0, 2)) + np.array([100.0, 0.0])[:n_rungs]
    space_f_k = np.array([-7.0, np.nan])[:n_rungs]
    log_w_kb = RANDOM.normal(size=(n_rungs, n_bins))
    return ChainTerms(counts_pkb, total_k, SIZE_P, log_w_kb, space_f_k)


@pytest.mark.parametrize("keep_p", [ALL, SOME])
def test_chains_rows(keep_p):
    terms = chains()
    rows = terms.equations(keep_p)
    counts_kb = terms.counts_pkb[keep_p].sum(axis=0)
    np.testing.assert_array_equal(rows.counts_kb, counts_kb)
    np.testing.assert_array_equal(rows.log_w_kb, terms.log_w_kb)
    total = terms.total_k[0] * SIZE_P[keep_p].sum() / 4  # moves outside the bins included
    assert rows.known_f_k[0] == pytest.approx(-7.0 + np.log(total / counts_kb[0].sum()))
    assert np.isnan(rows.known_f_k[1])


def draw_sums(n, shift=0.0):
    """Return sums of n draws over 3 parts and 6 bins (bin 4 empty), and the draws."""
    part_i, log_v_i = RANDOM.integers(3, size=n), RANDOM.normal(size=n) + shift
    bin_i = RANDOM.choice([0, 1, 2, 3, 5], size=n)
    log_v_i += 90.0 * bin_i  # bins hundreds of nats apart
    sums = DrawSums(3, 6)
    for some in np.array_split(np.arange(n), 7):
        sums.add(part_i[some], bin_i[some], log_v_i[some])
    return sums, part_i, bin_i, log_v_i


def test_sums_of_draws_do_not_depend_on_their_order():
    sums, part_i, bin_i, log_v_i = draw_sums(300)
    terms = sums.terms(400.0, SIZE_P)
    once = DrawSums(3, 6)
    order = np.argsort(log_v_i)
    once.add(part_i[order], bin_i[order], log_v_i[order])
    np.testing.assert_allclose(terms.first_pb, once.terms(400.0, SIZE_P).first_pb)
    np.testing.assert_allclose(terms.second_pb, once.terms(400.0, SIZE_P).second_pb)
    for b in (0, 1, 2, 3, 5):
        v = np.exp(log_v_i[bin_i == b] - terms.log_top_b[b])
        assert terms.log_top_b[b] == log_v_i[bin_i == b].max()
        assert terms.first_pb[:, b].sum() == pytest.approx(v.sum())
        own = v.sum() ** 2 / (v**2).sum()
        pooled = terms.number_pb[:, b].sum() / terms.uneven_b[b]
        assert terms.effective_b()[b] == pytest.approx(min(own, pooled))
    np.testing.assert_allclose(terms.uneven_b, once.terms(400.0, SIZE_P).uneven_b)
    assert terms.effective_b()[4] == 0.0 and terms.log_top_b[4] == -np.inf


def test_draws_row():
    """exp(log c_b) is the expected count of an input of bin b: a_b / d_b, over the row's sum."""
    sums, _, bin_i, log_v_i = draw_sums(300)
    terms = sums.terms(400.0, SIZE_P)
    rows = terms.equations(ALL)
    log_c_b = {}
    for b in (0, 1, 2, 3, 5):
        log_v = log_v_i[bin_i == b]
        assert rows.counts_kb[0, b] == pytest.approx(len(log_v) / terms.uneven_b[b])
        log_d = np.logaddexp.reduce(log_v) - np.log(400.0)
        log_c_b[b] = np.log(rows.counts_kb[0, b]) - log_d - np.log(rows.counts_kb.sum())
        assert rows.log_w_kb[0, b] == pytest.approx(log_c_b[b])
    assert rows.counts_kb[0, 4] == 0.0
    assert rows.log_w_kb[0, 4] == pytest.approx(0.5 * (log_c_b[3] + log_c_b[5]))
    assert rows.known_f_k.tolist() == [0.0]


def log_d(terms, keep_p):
    rows = terms.equations(keep_p)
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.log(rows.counts_kb / rows.counts_kb.sum() / np.exp(rows.log_w_kb))[0]


def uneven_draws(n_parts=4, alike=False):
    """Return sums of 5 bins of 40 draws; in bin 2 the heavy draw of every other bin is missing."""
    sums, rng = DrawSums(n_parts, 5), np.random.default_rng(1)
    for b in range(5):
        log_v_i = np.zeros(40) if alike else 0.2 * rng.normal(size=40)
        log_v_i[0] = 0.0 if alike or b == 2 else 4.0
        sums.add(np.arange(40) % n_parts, np.full(40, b), log_v_i)
    return sums.terms(200.0, np.arange(n_parts) % 2 + 1)


@pytest.mark.parametrize("alike", [False, True])
def test_the_jackknife_has_at_least_the_pooled_error(alike):
    """Parts of one or two lanes each; also where all parts agree to the last digit."""
    terms = uneven_draws(alike=alike)
    every = np.ones(4, bool)
    log_d_b = log_d(terms, every)
    log_d_pb = np.stack([log_d(terms, np.arange(4) != p) for p in range(4)])
    pooled_b = np.sqrt(terms.uneven_b / 40)
    error_b = jackknife_error(log_d_b, log_d_pb, terms.size_p)
    share_p = (terms.size_p.sum() - terms.size_p) / terms.size_p.sum()
    rest_pb = terms.first_pb.sum(axis=0) - terms.first_pb
    own_pb = np.log(rest_pb / share_p[:, None]) + terms.log_top_b - np.log(200.0)
    own_b = jackknife_error(log_d_b, own_pb, terms.size_p)
    np.testing.assert_allclose(error_b, np.maximum(own_b, pooled_b), rtol=1e-9)
    if not alike:
        assert own_b[2] < 0.25 < 0.4 < error_b[2]  # the bin by itself knows nothing of its lack
        np.testing.assert_allclose(log_d_pb[:, own_b > pooled_b], own_pb[:, own_b > pooled_b])


def test_a_part_alone_has_no_replicates():
    assert np.isfinite(log_d(uneven_draws(1), np.ones(1, bool))).all()


def test_draws_alone_of_a_function_of_z_count_every_one():
    sums = DrawSums(1, 2)
    sums.add(np.zeros(30, int), np.repeat([0, 1], [10, 20]), np.repeat([5.0, -3.0], [10, 20]))
    np.testing.assert_allclose(sums.terms(30.0, np.ones(1, int)).effective_b(), [10.0, 20.0])


def test_rows_of_several_runs_follow_one_another():
    first, second = chains(), chains(n_rungs=1)
    rows = join_terms([first, second], SOME)
    assert rows.counts_kb.shape == rows.log_w_kb.shape == (3, 5)
    np.testing.assert_array_equal(rows.counts_kb[:2], first.equations(SOME).counts_kb)
    np.testing.assert_array_equal(rows.known_f_k[2:], second.equations(SOME).known_f_k)
