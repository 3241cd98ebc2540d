"""Diagnosis and verdict of one run: both take R-hat and its limit from one place."""

import re
from dataclasses import replace
from types import SimpleNamespace

import h5py
import numpy as np
import pytest
from run_files import write_run

from omniinput_hpc.config import Config
from omniinput_hpc.config.method import Ladder, Sampler
from omniinput_hpc.estimators.density.density import density_of_run
from omniinput_hpc.estimators.errors.convergence import Check
from omniinput_hpc.plots import diagnosis as plot
from omniinput_hpc.results import diagnosis
from omniinput_hpc.results.density import check_lines
from omniinput_hpc.results.diagnosis import advice, diagnose, table
from omniinput_hpc.runfile.reader import open_run


@pytest.fixture
def wide_lanes(tmp_path):
    """Return a run whose lanes agree in their mean z, but half of them spread more, on rung 1."""
    run = write_run(tmp_path / "run.h5", walkers=16, seed=1)
    lane_s = np.arange(run.samples_per_round) % run.walkers
    with h5py.File(tmp_path / "run.h5", "r+") as file:
        z_rs = file["samples/z"][:, 1]
        file["samples/z"][:, 1] = np.where(lane_s < 8, 1.0, 2.2) * (z_rs - z_rs.mean()) + 1.0
    return tmp_path / "run.h5"


def test_r_hat_that_is_known_is_not_computed_again(wide_lanes, monkeypatch):
    with open_run(wide_lanes) as run:
        before = diagnose(run)
        monkeypatch.setattr(diagnosis, "chain_diagnostics", lambda run: pytest.fail("read again"))
        after = diagnose(run, before.rhat_k)
    np.testing.assert_array_equal(after.ess_k, before.ess_k)
    assert advice(after) == advice(before)


def test_the_limit_of_r_hat_is_in_its_panel(wide_lanes, monkeypatch):
    monkeypatch.setattr(plot, "rhat_limit", lambda n, lanes: 1.3)
    with open_run(wide_lanes) as run:
        found = diagnose(run)
    found = replace(found, rhat_k=np.ones_like(found.rhat_k))
    figure = plot.diagnosis_figure(found, {}, np.zeros((1, 1), np.int64), "z")
    assert figure.axes[-1].get_ylim()[1] > 1.3


def test_one_wording_of_the_rungs_needed(wide_lanes):
    with open_run(wide_lanes) as run:
        found = replace(diagnose(run), barrier=1.2, swapped_k=np.full(4, 0.95))
    words = f"about 3 rungs are needed (1 + 2 Lambda); the ladder has {len(found.beta_k)}"
    assert found.rungs_needed == 3 and replace(found, barrier=0.1).rungs_needed == 2
    assert any(words in line for line in advice(found))
    assert any(words in line for line in table(found))


def test_diagnosis_and_verdict_say_the_same_of_the_lanes(wide_lanes):
    with open_run(wide_lanes) as run:
        verdict, found = density_of_run(run.data).verdict, diagnose(run)
    assert found.rhat_k[1] > 1.05 > found.rhat_k[0]
    assert any("lanes disagree on rungs 1 (R-hat" in line for line in advice(found))
    (why,) = (r for r in verdict.reasons if "lanes disagree (R-hat over " in r)
    assert re.search(r"beta = -?[\d.]+, mean z -?[\d.]+ \(1\.\d\d\)", why)
    np.testing.assert_array_equal(verdict.rhat_k, found.rhat_k)


def test_a_diagnosis_has_converged_only_if_the_checks_have_passed(wide_lanes):
    with open_run(wide_lanes) as run:
        found, unchecked = diagnosis.diagnosis_of(run), diagnosis.diagnosis_of(run, checked=False)
    assert not found.converged and found.reasons == found.densities[0].verdict.reasons
    assert replace(found, checks=[Check("drift")]).converged
    assert not unchecked.converged and "density() makes them" in unchecked.reasons[0]


def test_the_table_of_checks_says_which_way_a_limit_holds():
    checks = [Check("drift", 1.0, 0.001, at_least=True), Check("R-hat", 2.0, 1.1).failed("lanes")]
    head, drift, rhat, none = (line.split() for line in check_lines([*checks, Check("stays")]))
    assert head == ["check", "found", "limit"] and none == ["stays", "not", "tested"]
    assert drift == ["drift", "1", "at", "least", "0.001"]
    assert rhat == ["R-hat", "2", "at", "most", "1.1", "FAILED"]


def test_flat_rungs_stand_beside_canonical_ones():
    """`[wang_landau]` adds rungs that the ladder's betas do not name."""
    config = Config.model_construct(
        ladder=Ladder(betas=[0.0, 0.5]), sampler=Sampler(walkers=2, steps=1, exchanges=1)
    )
    beta_k = np.array([np.nan, 0.0, 0.5])
    run = SimpleNamespace(kappa_k=lambda: np.zeros(3), beta_k=beta_k, model_beta=np.nan)
    assert diagnosis._drawn(run, config).tolist() == [False, True, False]
