"""Reading two runs together: one space of inputs, and both models' outputs of each run's samples.

Needs neither MPI nor torch.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from omniinput_hpc import input_space
from omniinput_hpc.estimators.density import Density
from omniinput_hpc.estimators.normalization import Pairs, pairs_of
from omniinput_hpc.rescored import find, open_rescored
from omniinput_hpc.run_reader import RunReader


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


def read_pairs(run: RunReader, other: RunReader, density: Density) -> tuple[Pairs, str]:
    """Return a run's samples with both models' outputs, and a line on where those come from.

    Where fewer rounds were rescored than the run holds, those samples are used.

    Raises
    ------
    UserError
        The other model has not been asked (see `omniinput_hpc.rescore`).
    """
    path = find(run, other)
    with open_rescored(path) as side:
        rounds = min(side.rounds, run.rounds)
        other_rks = np.stack([side.z(r) for r in range(rounds)])
    pairs = pairs_of(density, run.samples_z()[:rounds], other_rks, run.walkers)
    missing = f", {rounds} of {run.rounds} rounds" if rounds < run.rounds else ""
    return pairs, f"{path}{missing}"
