"""Reading two runs together: one space of inputs, and both models' outputs of each run's samples.

Needs neither MPI nor torch.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from omniinput_hpc.estimators import EstimateError
from omniinput_hpc.estimators.comparison.normalization import Pairs, bennett_shift, pairs_of
from omniinput_hpc.estimators.comparison.side_by_side import normalize
from omniinput_hpc.estimators.density.density import Density
from omniinput_hpc.estimators.errors.jackknife import estimate
from omniinput_hpc.models import input_space
from omniinput_hpc.runfile.reader import RunReader
from omniinput_hpc.runfile.rescored import find, open_rescored

MOST = 5_000_000  # samples of a run that are read for a normalization


def require_one_space(runs: Sequence[RunReader]) -> None:
    """Check that all runs' models have one space of inputs.

    Raises
    ------
    UserError
        Two of them differ; the message says in what.
    """
    spaces = [
        input_space.space_of(str(run.path), run.config, run.n_sites, run.n_values) for run in runs
    ]
    for space in spaces[1:]:
        input_space.require_same(spaces[0], space)


def read_pairs(
    run: RunReader, other: RunReader, density: Density, most: int = MOST
) -> tuple[Pairs, str]:
    """Return a run's samples with both models' outputs, and a line on where those come from.

    Where fewer rounds were rescored than the run holds, those samples are used; of more than
    `most` samples, those of evenly spaced rounds, so that memory is bounded.

    Raises
    ------
    UserError
        The other model has not been asked (see `omniinput_hpc.rescore`).
    """
    path = find(run, other)
    with open_rescored(path) as side:
        rescored = min(side.rounds, run.rounds)
        n_rounds = min(rescored, max(1, most // (len(run.beta_k) * run.samples_per_round)))
        rounds = np.unique(np.linspace(0, rescored - 1, n_rounds).astype(int))
        other_rks = np.stack([side.z(r) for r in rounds])
    own_rks = np.concatenate([run.samples_z(slice(r, r + 1)) for r in rounds])
    pairs = pairs_of(density, own_rks, other_rks, run.walkers)
    missing = f", {rescored} of {run.rounds} rounds" if rescored < run.rounds else ""
    if len(rounds) < rescored:
        missing += f", {len(rounds)} evenly spaced rounds read"
    return pairs, f"{path}{missing}"


def shift_of(
    runs: tuple[RunReader, RunReader],
    densities: tuple[Density, Density],
    z_range: Sequence[float] | None,
) -> tuple[float, float, str]:
    """Return what to add to the second run's log g, its standard error, and how it was found.

    Absolute densities need nothing. Others need both models' outputs of both runs' samples: the
    papers' cross-model normalization where a range Z is given, else Bennett's acceptance ratio.

    Raises
    ------
    UserError
        Samples were not given to the other model.
    EstimateError
        The data do not determine it.
    """
    a, b = densities
    if z_range is None and a.absolute and b.absolute:
        return 0.0, 0.0, "absolute densities (beta = 0 on both ladders)"
    pairs_a, _ = read_pairs(runs[0], runs[1], a)
    pairs_b, _ = read_pairs(runs[1], runs[0], b)
    if z_range is None:
        shift, name = bennett_shift(a, b, pairs_a, pairs_b), "Bennett's ratio"
    else:
        row = normalize(a, b, pairs_a, pairs_b, *z_range).rows[0]
        if row.shift is None:
            raise EstimateError(row.refused)
        shift, name = row.shift, row.name
    result = estimate(shift, a.lanes_g, b.lanes_g)
    return float(result.value), float(result.error), name
