"""analysis/diagnose.py on a real run: its numbers are those of the file, its advice names rungs."""

from dataclasses import replace

import numpy as np
import pytest
from arviz_stats.base import array_stats
from run_tools import LATTICE

from omniinput_hpc.cli import run as launch
from omniinput_hpc.results import diagnosis
from omniinput_hpc.runfile.reader import open_run


@pytest.fixture(scope="module")
def run_path(tmp_path_factory):
    folder = tmp_path_factory.mktemp("diagnose")
    (folder / "input.toml").write_text(LATTICE.format(output=folder / "run.h5"))
    changes = ["run.rounds=20", "ladder.betas=[-2.0, 0.0, 1.5, 40.0]", "samples.every=1"]
    words = [w for c in changes for w in ("--set", c)]
    assert launch.main([str(folder / "input.toml"), *words]) == 0
    return folder / "run.h5"


@pytest.mark.slow
def test_numbers_are_those_of_the_file(run_path):
    with open_run(run_path) as run:
        d = diagnosis.diagnose(run)
        paths_rv, six_rv = diagnosis.walker_paths(run, 32), diagnosis.walker_paths(run)
        traces = diagnosis.lane_traces(run)
        swaps = run.swaps_k2()
        z_wt = diagnosis.lane_series(run, 1)
    np.testing.assert_allclose(d.swapped_k, swaps[:, 1] / swaps[:, 0])
    assert d.barrier == pytest.approx(3 - d.swapped_k.sum())
    assert d.ideal_rate == pytest.approx(1 / (2 + 2 * d.barrier))
    assert d.trip_rate == d.trips_v.sum() / (8 * 20 * 3)
    assert (np.bincount(paths_rv[5], minlength=4) == 8).all()
    np.testing.assert_array_equal(six_rv, paths_rv[:, [0, 6, 12, 18, 24, 31]])
    assert list(traces) == [0, 1, 2, 3] and np.array_equal(traces[1], z_wt[0])
    assert z_wt.shape == (8, 20 * 15) and d.z_mean_k[1] == pytest.approx(z_wt.mean())
    assert 50 < d.ess_k[1] < 4000 and 0.98 < d.rhat_k[1] < 1.1


def test_advice_names_the_pair_that_does_not_exchange(run_path):
    with open_run(run_path) as run:
        d = diagnosis.diagnose(run)
    text = "\n".join(diagnosis.advice(d))
    assert "rungs 2 and 3 accept" in text and "between beta = 1.5 and 40" in text
    assert "rungs 0 and 1 accept" not in text


def test_round_trips_are_judged_only_where_there_was_time_for_some(run_path):
    with open_run(run_path) as run:
        d = diagnosis.diagnose(run)
    assert d.exchanges == 60 and d.swapped_k[2] == 0  # no swap: the limit of many rungs
    assert d.trip_time == pytest.approx(4 * (2 + 2 * d.barrier))
    assert replace(d, swapped_k=np.array([0.5, 0.25, 1.0])).trip_time == pytest.approx(40)
    none = replace(d, trips_v=np.zeros_like(d.trips_v), trip_rate=0.0)
    few = replace(none, exchanges=int(3 * d.trip_time) - 1)
    many = replace(none, exchanges=int(3 * d.trip_time) + 1)
    slow = replace(many, trips_v=d.trips_v + 1, trip_rate=0.1 * d.ideal_rate)
    words = ["too few to judge round trips", "no walker has gone up and down", "of the ideal rate"]
    for case, word in zip([few, many, slow], words, strict=True):
        said = "\n".join(diagnosis.table(case) + diagnosis.advice(case))
        assert [other in said for other in words] == [other == word for other in words]


def test_rungs_with_fresh_draws_are_marked(run_path, tmp_path):
    """Their share of accepted moves is not the kernel's."""
    with open_run(run_path) as run:
        assert not diagnosis.diagnose(run).drawn_k.any()  # anchors = false
    (tmp_path / "input.toml").write_text(LATTICE.format(output=tmp_path / "run.h5"))
    assert launch.main([str(tmp_path / "input.toml"), "--set", "ladder.anchors=true"]) == 0
    with open_run(tmp_path / "run.h5") as run:
        d = diagnosis.diagnose(run)
    assert d.drawn_k.tolist() == [False, True, False, False] and d.accepted_kn[1, 0] == 1.0
    assert [line for line in diagnosis.table(d) if " 0* " in line]
    assert any("fresh draws" in line for line in diagnosis.table(d))


def test_ess_falls_with_correlation():
    """arviz-stats' figure for an AR(1) series is n (1 - r) / (1 + r), within 4 sigma."""
    random, r, n = np.random.default_rng(3), 0.8, 5000
    z = np.zeros((8, n))
    for t in range(1, n):
        z[:, t] = r * z[:, t - 1] + random.normal(size=8)
    ess = array_stats.ess(z, chain_axis=0, draw_axis=1)
    assert ess == pytest.approx(8 * n * (1 - r) / (1 + r), rel=0.15)
