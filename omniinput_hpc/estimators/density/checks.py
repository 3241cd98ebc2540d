"""The checks that a density has to pass."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from omniinput_hpc.estimators import FloatArray, IntArray
from omniinput_hpc.estimators.density import bin_width, equal_visits, facts
from omniinput_hpc.estimators.density.arrivals import renewing_rungs
from omniinput_hpc.estimators.density.lanes_alike import alike_at_equal_z
from omniinput_hpc.estimators.density.long_stays import long_stays
from omniinput_hpc.estimators.density.observations import Observations
from omniinput_hpc.estimators.density.result import MIN_EFFECTIVE_COUNT, Density
from omniinput_hpc.estimators.density.rung_counts import rungs_agree
from omniinput_hpc.estimators.errors.convergence import Check
from omniinput_hpc.estimators.run_data import RunData
from omniinput_hpc.estimators.samples import inputs_of_bins
from omniinput_hpc.histogram import lane_groups


def of_density(
    runs: Sequence[RunData],
    observed: Observations,
    density: Density,
    brought: Sequence[Check],
    why: str,
) -> list[Check]:
    """Return all checks of a density, apart from those of `check_convergence`.

    brought : checks of `arrivals`, one for each run or none
    why : why the equations could not be solved without one group of lanes; empty if they could
    """
    return [
        *density.outside.checks(density.edges),
        *(_of_numbers(runs, density) if density.absolute else []),
        *_of_gaps(runs, density),
        *(
            _of_run(check, run, runs)
            for run in runs
            if not run.ancestral
            for check in _of_chains(run, density)
        ),
        *(_of_run(check, run, runs) for check, run in zip(brought, runs, strict=False)),
        *([density.ends.check] if density.ends else []),
        *_of_errors(observed, density.log_g_jb, why),
        *_of_widths(observed, density),
    ]


def _group_sizes(run: RunData) -> IntArray:
    return np.bincount(lane_groups(run.walkers))


def _of_run(check: Check, run: RunData, runs: Sequence[RunData]) -> Check:
    """Return a check of one run, which names the run if several are joined."""
    if len(runs) == 1:
        return check
    sentence = f"{run.path.name}: {check.sentence}" if check.sentence else ""
    return replace(check, name=f"{check.name}, {run.path.stem}", sentence=sentence)


def _of_numbers(runs: Sequence[RunData], density: Density) -> list[Check]:
    """Check an absolute density against known facts about numbers of inputs.

    Under a law inputs of equal z are not equally likely, so it is not tested that they are.
    """
    asked_b = facts.bins_to_search(density)
    seen = [inputs_of_bins(run, density.edges, asked_b) for run in runs]
    total_b = sum(run.counts_kb.sum(axis=0) for run in runs)
    highest_b = facts.highest(density)
    return [
        *facts.broken_facts(density, seen),
        *(
            _of_run(
                equal_visits.unequal_visits(
                    run, inputs, highest_b,
                    density.effective_b * (run.counts_kb.sum(axis=0) / np.maximum(total_b, 1)),
                ),
                run, runs,
            )
            for run, inputs in zip(runs, seen, strict=True)
            if not run.ancestral and density.measure == "count"
        ),
    ]  # fmt: skip


def _of_gaps(runs: Sequence[RunData], density: Density) -> list[Check]:
    """Find gaps that no run bridges. All draws of a run are one row, since they have weights."""
    if all(run.ancestral for run in runs):
        return []
    rows = [run.counts_kb.sum(axis=0)[None] if run.ancestral else run.counts_kb for run in runs]
    return facts.gaps(np.concatenate(rows), density.edges, density.measure)


def _of_chains(run: RunData, density: Density) -> list[Check]:
    """Check whether the rungs, lanes and walkers of a run of chains agree."""
    never, trips = facts.swaps_that_never_happened(run), []
    if never.passed:
        ends_renew = bool(renewing_rungs(run)[[0, -1]].all())
        trips = [facts.length_in_trips(run, ends_renew)]
    return [
        never,
        *trips,
        rungs_agree(run.lane_counts_kgb, _group_sizes(run), run.weights, density),
        alike_at_equal_z(run),
        long_stays(run),
    ]


def _of_errors(observed: Observations, log_g_jb: FloatArray, why: str) -> list[Check]:
    """Check that cold rungs equilibrated, errors are known, and all rungs have counts in bins."""
    cold = Check("cold rungs not equilibrated", observed.cold.n_apart, 0)
    lanes = Check("groups of lanes", len(log_g_jb), 2, at_least=True)
    if len(log_g_jb) < 2:
        said = "the run has one lane only (walkers = 1), so errors are not known"
        lanes = lanes.failed(said, "raise sampler.walkers")
    elif why:
        said = f"errors are not known: without one of the groups of lanes, {why}"
        lanes = lanes.failed(said)
    empty = [observed.rung_label_k[k] for k in np.flatnonzero(observed.inside_k == 0)]
    outside = Check("rungs outside the bins", len(empty), 0)
    if empty:
        said = f"every move fell outside the bins at {', '.join(empty)}"
        outside = outside.failed(said, "widen [bins]")
    if all(part.ancestral for part in observed.parts) and not observed.cold.reason:
        return [lanes, outside]  # independent draws need no time to equilibrate
    return [cold.failed(observed.cold.reason), lanes, outside]


def _of_widths(observed: Observations, density: Density) -> list[Check]:
    """Check the bin width, unless all runs are independent draws."""
    if all(part.ancestral for part in observed.parts):
        return []
    firm_b = observed.effective_b >= MIN_EFFECTIVE_COUNT
    return [bin_width.too_wide(observed.width_bias_b, density.log_g_error_b, firm_b, density.edges)]
