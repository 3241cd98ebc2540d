"""The checks that a density has to pass."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from omniinput_hpc.estimators import FloatArray
from omniinput_hpc.estimators.density import equal_visits
from omniinput_hpc.estimators.density.arrivals import renewing_rungs
from omniinput_hpc.estimators.density.facts import (
    LogDensity,
    broken_facts,
    gaps,
    length_in_trips,
    swaps_that_never_happened,
)
from omniinput_hpc.estimators.density.lanes_alike import alike_at_equal_z
from omniinput_hpc.estimators.density.long_stays import long_stays
from omniinput_hpc.estimators.density.observations import Observations
from omniinput_hpc.estimators.density.rung_counts import rungs_agree
from omniinput_hpc.estimators.density.rung_weights import weights_of_run
from omniinput_hpc.estimators.errors.convergence import Check
from omniinput_hpc.estimators.run_data import RunData


def of_density(runs: Sequence[RunData], observed: Observations, found: LogDensity) -> list[Check]:
    """Check an absolute density against known facts about numbers of inputs."""
    visits = equal_visits.of_runs(runs, found.edges, found.highest_b, observed.effective_b)
    return [*broken_facts(found, runs), *visits]


def of_chains(runs: Sequence[RunData], observed: Observations, found: LogDensity) -> list[Check]:
    """Check whether the rungs, lanes and walkers of each run of chains agree."""
    asked = []
    for run in runs:
        if run.samples_log_q() is None:
            weights = weights_of_run(run)
            asked += gaps(run.counts_kb(), run.edges)
            never = swaps_that_never_happened(run.swaps_k2(), weights.label_k)
            asked.append(never)
            if never.passed:
                ends_renew = bool(renewing_rungs(run)[[0, -1]].all())
                asked.append(length_in_trips(run, weights.label_k, ends_renew))
            asked += [
                rungs_agree(run.lane_counts_kgb(), weights, observed.inside, found),
                alike_at_equal_z(run, weights.label_k),
                long_stays(run),
            ]
    return asked


def of_errors(observed: Observations, log_g_jb: FloatArray, why: str) -> list[Check]:
    """Check that errors are known, cold rungs equilibrated, and all rungs have counts in the bins.

    why : why the equations could not be solved without one group of lanes; empty if they could
    """
    lanes = Check("groups of lanes", len(log_g_jb), 2)
    if len(log_g_jb) < 2:
        said = "the run has one lane only (walkers = 1), so errors are not known"
        lanes = Check(lanes.name, lanes.value, 2, said, "raise sampler.walkers")
    elif why:
        said = f"errors are not known: without one of the groups of lanes, {why}"
        lanes = Check(lanes.name, lanes.value, 2, said)
    empty = [observed.rung_label_k[k] for k in np.flatnonzero(observed.inside_k == 0)]
    said = f"every move fell outside the bins at {', '.join(empty)}" if empty else ""
    return [
        Check("cold rungs equilibrated", sentence=observed.cold.reason),
        lanes,
        Check("rungs outside the bins", len(empty), 0, said, "widen [bins]" if empty else ""),
    ]
