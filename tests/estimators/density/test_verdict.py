"""Each check of the verdict on runs that it must find, and that are found by no other.

The runs are those of `hard_models`, whose densities are exact; see tests/benchmarks/referee.py and
docs/results/verdict.md for all of them.
"""

from dataclasses import replace

import numpy as np
import pytest
from configs import config_with
from lattice import BETA_K, MODEL, ArrayRun, Lattice, canonical, independent_run
from lattice import LEVEL_EDGES as EDGES
from run_tools import loaded

from omniinput_hpc.estimators import EstimateError
from omniinput_hpc.estimators.density import arrivals, checks, lanes_alike, observations
from omniinput_hpc.estimators.density.arrivals import MAX_OLD, follow
from omniinput_hpc.estimators.density.density import density_of_run, density_of_runs
from omniinput_hpc.estimators.density.lanes_alike import alike_at_equal_z
from omniinput_hpc.estimators.density.result import upper_bounds
from omniinput_hpc.estimators.density.rung_counts import FALSE_ALARMS, rungs_agree
from omniinput_hpc.estimators.run_data import RunData
from omniinput_hpc.histogram import lane_groups

RUNG_COUNTS = "counts of one rung and of the rest"
UNIFORM = int(np.flatnonzero(BETA_K == 0.0)[0])


def failed(run):
    return [check.name for check in density_of_run(run).verdict.checks if not check.passed]


def rung_counts(run, counts_kgb=None):
    density = density_of_run(run)
    counts_kgb = run.lane_counts_kgb if counts_kgb is None else counts_kgb
    return rungs_agree(counts_kgb, np.bincount(lane_groups(run.walkers)), run.weights, density)


def test_rungs_of_right_runs_agree():
    """The chance of the least likely counts is about uniform, so that few are below the limit."""
    p = [
        rung_counts(independent_run(MODEL, BETA_K, EDGES, walkers=16, seed=seed)).value
        for seed in range(12)
    ]
    assert np.min(p) >= FALSE_ALARMS and np.mean(p) > 0.3


def test_what_one_rung_alone_has_met_contradicts_the_rest():
    """Independent draws at beta = 0 meet a hidden part, in four lanes; colder rungs do not."""
    run = independent_run(MODEL, BETA_K, EDGES, walkers=16, seed=1)
    counts_kgb = run.lane_counts_kgb.copy()
    cold = int(np.argmax(BETA_K))
    b = int(np.flatnonzero(counts_kgb[cold].sum(axis=0) > 100)[0])  # where the coldest rung was
    assert rung_counts(run, counts_kgb).passed
    counts_kgb[UNIFORM, :4, b] += 3
    found = rung_counts(run, counts_kgb)
    assert not found.passed and "beta = 0 counted about" in found.sentence
    assert f"and {EDGES[b + 1]:.4g}" in found.sentence or f"z = {EDGES[b]:.4g}" in found.sentence


def test_a_contradiction_in_one_of_two_joined_runs_is_seen(monkeypatch):
    """24 and 16 walkers: by the sizes of the joined groups, counts of lanes would seem uneven."""
    runs = [
        independent_run(MODEL, BETA_K, EDGES, walkers=walkers, moves=200, seed=walkers)
        for walkers in (24, 16)
    ]

    def found():
        every = density_of_runs(runs).verdict.checks
        return next(check for check in every if check.name.startswith(RUNG_COUNTS))

    assert found().passed
    b = int(np.argmax(runs[0].counts_kb[UNIFORM]))  # a fifth more at the commonest output
    counts_rg = runs[0].counts_rkgb[:, UNIFORM, :, b]
    counts_rg += np.rint(0.2 * counts_rg).astype(np.int64)
    assert not found().passed
    joined = density_of_runs(runs).lanes_g
    monkeypatch.setattr(checks, "_group_sizes", lambda run: joined)
    assert found().passed


def test_counts_of_one_walker_that_stayed_are_few():
    """A cluster in one lane is no contradiction by itself: lanes say what counts are worth."""
    run = independent_run(MODEL, BETA_K, EDGES, walkers=16, seed=1)
    counts_kgb = run.lane_counts_kgb.copy()
    k, b = UNIFORM + 1, len(EDGES) - 3
    spread_kgb = counts_kgb.copy()
    counts_kgb[k, 0, b] += 64
    spread_kgb[k, :, b] += 4
    assert rung_counts(run, counts_kgb).value > 1e3 * max(rung_counts(run, spread_kgb).value, 1e-12)


def two_parts(n_other, seed=2):
    """Return a run some of whose lanes are in inputs whose first site is 0, the rest in others."""
    run = independent_run(MODEL, BETA_K, EDGES, walkers=16, seed=seed)
    x_rksd = run.x_rksd.copy()
    lane_s = np.arange(x_rksd.shape[2]) % 16
    extra = np.zeros_like(x_rksd[..., :1])
    extra[:, :, lane_s < n_other] = 1
    run.x_rksd = np.concatenate([x_rksd, extra], axis=3)
    return run


@pytest.mark.parametrize(("n_other", "passed"), [(0, True), (1, False), (8, False)])
def test_lanes_in_different_parts_of_equal_outputs_are_seen(n_other, passed):
    run = two_parts(n_other)
    assert alike_at_equal_z(run).passed is passed
    if not passed:
        assert (density_of_run(run).verdict.rhat_k < 1.05).all()  # z does not tell


def test_wide_rounds_are_not_judged_by_the_first_alone(monkeypatch):
    """In it, lanes stayed where they were; over the run they did not."""
    run = independent_run(MODEL, BETA_K, EDGES, rounds=64, walkers=16, seed=3)
    first = np.arange(run.x_rksd.shape[2]) % 16
    run.x_rksd, run.z_rks = run.x_rksd[:, :, first], run.z_rks[:, :, first]
    monkeypatch.setattr(lanes_alike, "MAX_VALUES", 1)
    assert alike_at_equal_z(run).passed
    monkeypatch.setattr(lanes_alike, "FEWEST_ROUNDS", 1)
    assert not alike_at_equal_z(run).passed


class Travelling:
    """A run of two rungs whose walkers swap when they are told to, in all lanes alike."""

    def __init__(self, rung_of_first_t, exchanges=1, lanes=2):
        self.beta_k = np.array([0.0, 2.0])
        self.walkers, self.model_beta, self.edges = lanes, np.nan, np.array([0.0, 1.0, 2.0])
        self._hot_t = np.asarray(rung_of_first_t)
        self.rounds, self.samples_per_round = len(self._hot_t), lanes
        self.config = config_with(sampler={"exchanges": exchanges})
        self.weights, self.source = canonical(self.beta_k, self.edges), self
        self.swaps_k2 = np.array([[self.rounds, self.rounds]])
        self.round_trips_v = np.zeros(2 * lanes, dtype=np.int64)

    z_of = RunData.z_of

    def z(self, rounds, rungs=slice(None)):
        z_ks = np.array([[0.5], [1.5]]).repeat(self.walkers, axis=1)
        return np.array([z_ks] * (rounds.stop - rounds.start), np.float32)

    def samples_walker(self, round_):
        first = self._hot_t[round_]  # which of the two walkers of each lane is on the hot rung
        return np.arange(self.walkers) + self.walkers * np.array([[first], [1 - first]])


def followed(run):
    return follow(run, run.edges, np.zeros(2), np.ones(2, dtype=bool))


def test_arrivals_are_counted_anew_after_each_visit_of_the_hot_end():
    """Ten rounds cold in a row are one arrival of each lane; with a visit between, two."""
    stays = followed(Travelling([0] * 10))
    assert stays.arrivals_b[1] == 2.0 and stays.old_k.tolist() == [0.0, 1.0]
    swaps = followed(Travelling([0] * 5 + [1] * 5))
    assert swaps.arrivals_b[1] == 4.0 and swaps.old_k.tolist() == [0.0, 0.5] and MAX_OLD == 0.5
    often = followed(Travelling([0, 1] * 6))
    assert np.isinf(often.arrivals_b[1])  # a sample each: how many there were is not known
    rarely = followed(Travelling([0] * 10, exchanges=4))
    assert rarely.arrivals_b[1] == 8.0 and np.isnan(rarely.old_k).all()


def test_long_runs_are_followed_to_their_end(monkeypatch):
    """Walkers that are renewed late are so in all lanes; the first rounds do not tell."""
    late = Travelling([0] * 30 + [1] * 70, lanes=8)
    whole = followed(late)
    monkeypatch.setattr(arrivals, "MAX_SAMPLES", 2 * 100 * 2)  # two lanes of eight
    some = followed(late)
    assert some.old_k.tolist() == whole.old_k.tolist() == [0.0, 0.3]
    assert some.arrivals_b[1] == pytest.approx(8 * 100**2 / (30**2 + 70**2))
    monkeypatch.setattr(arrivals, "MIN_LANES", 8)  # as if all lanes had to be followed
    assert followed(late).old_k[1] == 1.0


def test_a_bin_of_one_group_of_lanes_has_the_widest_bound():
    """Knowing less must not make a bound tighter."""
    log_g_b, effective_b = np.zeros(3), np.array([20.0, 20.0, 0.5])
    bound_b = upper_bounds(log_g_b, np.array([0.2, np.inf, np.inf]), effective_b, 16)
    assert bound_b[1] == pytest.approx(np.log(4.744), abs=1e-3)
    assert bound_b[1] > bound_b[0]
    assert bound_b[2] > bound_b[1]
    assert np.isnan(upper_bounds(log_g_b, log_g_b + 0.1, effective_b * 200, 16)).all()


def test_a_verdict_is_its_checks():
    verdict = density_of_run(independent_run(MODEL, BETA_K, EDGES, walkers=16, seed=1)).verdict
    names = [check.name for check in verdict.checks]
    assert verdict.converged and RUNG_COUNTS in names and len(names) >= 14
    worse = verdict.also(replace(verdict.checks[0], sentence="this is wrong", remedy="mend it"))
    assert not worse.converged and worse.reasons == ("this is wrong; mend it",)


@pytest.mark.slow
@pytest.mark.parametrize(("name", "setup", "seed", "says", "by"), [
    pytest.param("hidden10", "hurry", 1, "no", RUNG_COUNTS, marks=pytest.mark.release),
    ("longrange", "hand", 3, "no", "moves by walkers that were not renewed"),
    ("twoends", "hand", 1, "yes", ""),
    pytest.param("lattice", "hurry", 1, "yes", "", marks=pytest.mark.release),
])  # fmt: skip
def test_the_short_form_of_the_referee(tmp_path, name, setup, seed, says, by):
    """A hidden part, two phases as they were when counting began, and two sound runs."""
    bench = loaded("tests/benchmarks/referee.py")
    (case,) = [case for case in bench.CASES if case.name == name]
    path = tmp_path / f"{name}-{setup}.h5"
    bench.make_run(case, path, seed, setup, "pt")
    found = bench.judge(case, path)
    assert found.says == says and found.right is (says == "yes"), found
    assert by in found.failed if by else not found.failed
    if name == "longrange":
        assert found.failed == (by,), "no other check finds it"


def test_a_gap_that_another_run_bridges_is_none():
    model = Lattice(n_sites=24)
    edges = (np.arange(len(model.z_l()) + 1) - 0.5) * model.unit
    some = [
        independent_run(model, betas, edges, rounds=32, walkers=16, seed=seed)
        for seed, betas in enumerate(([0.0, 12.0], [0.0, 2.0, 4.0, 8.0, 12.0]))
    ]
    assert density_of_runs(some).verdict.converged
    with pytest.raises(EstimateError, match="share no bin"):
        density_of_run(some[0])


def test_a_run_too_short_for_its_correlations_weighs_as_the_others_do():
    """400 rounds of correlated moves and 5: the short run must not have the larger weight."""

    def correlated(rounds, seed, stay=20):
        run = independent_run(MODEL, BETA_K, EDGES, rounds=rounds, walkers=16, moves=1, seed=seed)
        first = np.arange(rounds) // stay * stay
        z_rks, x_rksd = run.z_rks[first], run.x_rksd[first]
        return ArrayRun(x_rksd, z_rks, 16, BETA_K, EDGES, MODEL.n_values)

    runs = correlated(400, 1), correlated(5, 2)
    weight_k = observations.observe(runs).weight_k
    longer, shorter = np.split(weight_k, 2)
    assert (longer < 0.2).all() and shorter == pytest.approx(longer.mean())
    joined, alone = density_of_runs(runs), density_of_run(runs[0])
    assert np.nanmin(joined.log_g_error_b) < 1.5 * np.nanmin(alone.log_g_error_b)


def test_errors_are_unknown_if_one_group_of_lanes_makes_the_density_absolute():
    """Without it the scale is not known; here beta = 0 has counts in one group of 16."""
    edges = EDGES[EDGES < 0.6]
    runs = (
        independent_run(MODEL, [0.0, 2.0, 4.0], edges, rounds=4, walkers=16, seed=seed)
        for seed in range(100)
    )
    run = next(r for r in runs if (r.lane_counts_kgb[0].sum(axis=1) > 0).sum() == 1)
    density = density_of_run(run)
    assert density.absolute and np.isinf(density.log_g_error_b[density.count_b > 0]).all()
    assert any("known normalizer" in reason for reason in density.verdict.reasons)


def test_blocks_without_the_first_rounds_may_lack_the_scale():
    """The only counts of beta = 0 inside the bins lie in rounds that the blocks leave out."""
    edges = EDGES[EDGES < 0.6]
    run = independent_run(MODEL, [0.0, 2.0, 4.0], edges, rounds=38, walkers=16, moves=1, seed=5)
    density = density_of_run(run)
    assert density.absolute and np.isinf(density.block_error_b).all()
