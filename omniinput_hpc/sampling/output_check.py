"""Whether inputs keep the outputs that they were found with, looked at while a run goes on."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from omniinput_hpc.config import Config
from omniinput_hpc.models.checked import (
    IS_NO_FUNCTION,
    MANY,
    RARE,
    WRONG_CHANGE,
    NotAFunction,
    no_rounding,
)
from omniinput_hpc.parallel.comm import World
from omniinput_hpc.sampling.rung import Rung

MOVES_PER_LOOK = 100
"""After so many moves the walkers' outputs are compared with new ones, where no kernel does."""

log = logging.getLogger("omniinput_hpc")


@dataclass
class OutputCheck:
    """What was looked at before.

    Attributes
    ----------
    n_compared : how often outputs had been compared when the last round ended
    told : whether it was said that an input differed by more than rounding usually does
    """

    n_compared: int = 0
    told: bool = False

    def look(self, world: World, config: Config, rungs: Sequence[Rung], rounds_before: int) -> None:
        """Check outputs at the end of a round, the burn-in counted (all ranks call this).

        Most kernels evaluate the walkers anew after an exchange, and compare. Where none does, the
        walkers are evaluated here, after `MOVES_PER_LOOK` moves at least. Raises a NotAFunction on
        all ranks where outputs differ by more than rounding explains.
        """
        if config.model.noise:
            return
        moves = config.sampler.moves_per_round
        looks = [n * moves // MOVES_PER_LOOK for n in (rounds_before, rounds_before + 1)]
        model = rungs[0].walkers.model  # of all rungs
        if looks[0] < looks[1] and model.n_compared == self.n_compared:
            for rung in rungs:
                rung.walkers.compare_again()
        self.n_compared = model.n_compared
        found = world.max(np.array([*model.apart(), *model.apart(summed=True)]))
        times, apart, times_summed, apart_summed = found.tolist()
        n_over, n_far, n = world.sum(np.array(model.take_counts())).tolist()
        if no_rounding(n_over, n_far, n):
            what = f"returned outputs for one input that differ by {apart:.3g}"
            raise _no_function(config, what, times, IS_NO_FUNCTION)
        if times_summed > 1.0:  # sums of changes are wrong for all that comes of an input
            what = f"has sums of changes and outputs that differ by {apart_summed:.3g}"
            raise _no_function(config, what, times_summed, WRONG_CHANGE)
        if times > 1.0 and not self.told:
            self.told = True
            log.warning(
                "warning: z of an input differed by %.2g when it was evaluated again, %.2g times "
                "what rounding usually explains; %d of %d did so in this round. The run goes on, "
                "and ends if z of one differs by more than %g + %g |z|, or of %.0f%% in a round",
                apart, times, n_over, n, *RARE, 100 * MANY,
            )  # fmt: skip


def _no_function(config: Config, what: str, times: float, remedy: str) -> NotAFunction:
    return NotAFunction(
        f"the model ({config.model.kind}) {what}, {times:.3g} times what rounding explains: "
        f"{remedy}"
    )
