"""Check during a run that the model still returns the same output for the same input."""

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
"""If no kernel evaluates the walkers again, the check does so, at most once per this many moves."""

log = logging.getLogger("omniinput_hpc")


@dataclass
class OutputCheck:
    """The state of the check.

    Attributes
    ----------
    n_compared : the number of comparisons up to the end of the last round
    told : whether the user was warned that an input differed by more than usual rounding
    """

    n_compared: int = 0
    told: bool = False

    def look(self, world: World, config: Config, rungs: Sequence[Rung], rounds_before: int) -> None:
        """Check outputs at the end of a round (all ranks call this).

        `rounds_before` is the number of earlier rounds, including burn-in. Most kernels evaluate
        the walkers again after an exchange, and compare. If none does, the walkers are evaluated
        here, at most once per `MOVES_PER_LOOK` moves. Raises a NotAFunction on all ranks if outputs
        differ by more than rounding explains.
        """
        if config.noisy:
            return
        moves = config.sampler.moves_per_round
        looks = [n * moves // MOVES_PER_LOOK for n in (rounds_before, rounds_before + 1)]
        # One for all rungs, except that each rung of a second direction has its own
        models = list({id(rung.walkers.model): rung.walkers.model for rung in rungs}.values())
        if looks[0] < looks[1] and sum(m.n_compared for m in models) == self.n_compared:
            for rung in rungs:
                rung.walkers.compare_again()
        self.n_compared = sum(m.n_compared for m in models)
        apart_m4 = [[*m.apart(), *m.apart(summed=True)] for m in models]
        times, apart, times_summed, apart_summed = world.max(np.max(apart_m4, axis=0)).tolist()
        n_over, n_far, n = world.sum(np.sum([m.take_counts() for m in models], axis=0)).tolist()
        if no_rounding(n_over, n_far, n):
            what = f"returned outputs for one input that differ by {apart:.3g}"
            raise _no_function(config, what, times, IS_NO_FUNCTION)
        if times_summed > 1.0:  # a wrong sum of changes stays wrong in all later moves
            what = f"has sums of changes and outputs that differ by {apart_summed:.3g}"
            raise _no_function(config, what, times_summed, WRONG_CHANGE)
        if times > 1.0 and not self.told:
            self.told = True
            log.warning(
                "warning: z of an input differed by %.2g when it was evaluated again, %.2g times "
                "what rounding usually explains; %d of %d did so in this round. The run goes "
                "on, but will end if z of one input differs by more than %g + %g |z|, or if z of "
                "%.0f%% differs in a round",
                apart, times, n_over, n, *RARE, 100 * MANY,
            )  # fmt: skip


def _no_function(config: Config, what: str, times: float, remedy: str) -> NotAFunction:
    return NotAFunction(
        f"the model ({config.model.kind}) {what}, {times:.3g} times what rounding explains: "
        f"{remedy}"
    )
