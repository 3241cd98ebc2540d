"""Propose a run of independent draws: for a language model on a CPU, or where asked for.

Each text is drawn token by token at each beta (`sampler.method = "ancestral"`). Such a run needs no
chains, no burn-in and no rehearsal, so the pilot only draws some texts to place the betas and bins.

For a classifier that is sure of random inputs, only beta = 0 is proposed.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from omniinput_hpc.errors import UserError
from omniinput_hpc.histogram import MAX_GROUPS
from omniinput_hpc.pilot import measure, settings
from omniinput_hpc.pilot.settings import Length, Rehearsal, Spread
from omniinput_hpc.sampling.trial import clock_of

if TYPE_CHECKING:
    from omniinput_hpc.pilot.settings import FloatArray
    from omniinput_hpc.sampling.built import Built
    from omniinput_hpc.sampling.trial import AfterMove

METHOD = "ancestral"
LARGE = 100_000_000
"""A model with this many weights or more makes too few moves on a CPU for a rehearsal of chains."""
EVEN = 0.1
"""Draws must be worth this many samples of each rung. Two GPT-2s of 2,000 tokens gave 0.17 and 0.24
for texts of 25 tokens, but 0.02 and 0.05 for 50 and 60 tokens."""
WALKERS = 64
"""Texts in a batch. SmolLM2's are drawn 1.25 times as fast in batches of 128, and 0.8 times in
batches of 32, but `FEWEST_ROUNDS` must remain."""
FEWEST_ROUNDS = 44
"""Rounds after which errors from blocks of rounds can be compared with those of the lanes."""
PILOT_WALKERS = 32
REJECTION = 0.85
"""Betas may lie further apart than those of chains, since nothing must be swapped."""
DRAWS = 2048
"""Draws per beta after which ln g is known to about `DRAWN_ERROR`, if they are worth `EVEN` of
their number or more: 2,304 draws at 14 betas gave 0.09 (SmolLM2, docs/results/smollm2.md)."""
DRAWN_ERROR = 0.1
FEWEST_BINS = 100
"""Bins may be wider than those of chains, because each draw carries its own weight."""
DRAWS_AT_ZERO, SECONDS_AT_ZERO = 1_000_000, 300.0
"""Shares down to about 1e-5 are seen by so many draws; and the longest run that is proposed."""
EXCHANGES_AT_ZERO = 4
"""None take place, but so many inputs of each walker are recorded per round."""
WIDTH_OF_LN_P = 0.005
"""p = 0.9, 0.99 and 0.995 are edges of bins then, to 0.0004."""


@dataclass(frozen=True)
class Drawn:
    """What the pilot saw of draws at some betas.

    Attributes
    ----------
    spread : of z
    seconds : per drawn text
    worth : of a draw, see `measure.worth`
    """

    spread: Spread
    seconds: float
    worth: float

    def are_best(self, built: Built, method: str | None) -> bool:
        """Whether a run should draw texts rather than move them by chains."""
        large = getattr(built.model, "n_weights", 0) >= LARGE
        return method == METHOD or large or self.worth >= EVEN


def tried(
    built: Built, method: str | None, z_n: FloatArray, seconds: float, after_move: AfterMove
) -> Drawn | None:
    """Draw texts at some betas for some seconds; None if a run of draws is not to be proposed.

    On a GPU it is proposed only if asked for: the two were compared on CPUs only.

    method : the user's wish, None to leave it to the model
    z_n : float64 [n], outputs of inputs at beta = 0

    Raises a UserError if the wish cannot be met.
    """
    can = built.model_beta is not None and not built.config.constrained
    can = can and built.config.output is None and built.config.law is None
    if method == METHOD and not can:
        raise UserError(
            f"--method {METHOD}: draws need a language model, its loss as the output, and no [law] "
            "or [space]; leave --method out"
        )
    wanted = method == METHOD or (method is None and built.device == "cpu")
    if not (can and wanted):
        return None
    deadline = measure.Deadline(seconds, clock_of(built.device, built.config))
    return Drawn(*measure.drawn_spread(built, z_n, deadline, after_move, PILOT_WALKERS))


def propose(
    built: Built, drawn: Drawn, errors: float, hours: float | None
) -> tuple[dict[str, Any], Length, Rehearsal]:
    """Return an input's tables for draws at betas from 0 to m, its length, and the cost of a move.

    errors, hours : the aim of the run, as in `proposal.Aim`
    """
    spread, per_text = drawn.spread, drawn.seconds
    m = float(spread.beta_i[-1])
    beta_k = settings.ladder(spread.beta_i, settings.barrier(spread), (0.0, m), REJECTION)
    found = settings.bins(spread, 0.0, floor=0.0, fewest=FEWEST_BINS)
    enough = DRAWS * max(1.0, EVEN / max(drawn.worth, 1e-6))  # for `DRAWN_ERROR`
    wanted = enough * (DRAWN_ERROR / errors) ** 2
    if hours is not None:
        wanted = 3600 * hours / (len(beta_k) * per_text)
    walkers = int(np.clip(wanted / FEWEST_ROUNDS, MAX_GROUPS, WALKERS))
    rounds = max(math.ceil(wanted / walkers), settings.FEWEST_ROUNDS)
    steps = max(1, rounds // settings.ROUNDS)
    per_move = len(beta_k) * walkers * per_text
    steps = max(1, min(steps, int(settings.LONGEST_ROUND / per_move)))
    length = Length(min(math.ceil(rounds / steps), settings.MAX_ROUNDS), 0, 1, steps)
    tables = built.config.model_dump(exclude_unset=True, exclude_none=True)
    tree: dict[str, Any] = {
        **{name: tables[name] for name in ("run", "model", "space") if name in tables},
        "sampler": {"method": METHOD, "walkers": walkers, "steps": length.steps, "exchanges": 1},
        "ladder": {"betas": beta_k.tolist()},
        "bins": {"lower": found.lower, "upper": found.upper, "width": found.width},
        "samples": {"every": 1},
    }
    error = DRAWN_ERROR * math.sqrt(enough / (length.moves * walkers))
    return tree, length, Rehearsal(error, length.moves, math.nan, per_move)


def at_zero(
    built: Built, z_n: FloatArray, seconds: float
) -> tuple[dict[str, Any], Length, Rehearsal]:
    """Return the tables of an input that samples only beta = 0, its length, and a move's cost.

    z_n : float64 [n], ln p of inputs at beta = 0
    seconds : per move of the built walkers
    """
    blocks = settings.RUNGS_MULTIPLE if built.device == "cpu" else 1  # for more processes
    walkers, seconds = blocks * built.geometry.n_walkers, blocks * seconds
    moves = max(settings.ROUNDS, min(DRAWS_AT_ZERO / walkers, SECONDS_AT_ZERO / seconds))
    exchanges = int(np.clip(moves // settings.ROUNDS, 1, EXCHANGES_AT_ZERO))
    steps = math.ceil(moves / (settings.ROUNDS * exchanges))
    length = Length(settings.ROUNDS, 0, exchanges, steps)
    lowest = 2 * float(z_n.min()) - float(z_n.max())  # rarer ones are lower
    n_bins = 10 * min(math.ceil(-lowest / (10 * WIDTH_OF_LN_P)), settings.MOST_BINS // 10)
    tables = built.config.model_dump(exclude_unset=True, exclude_none=True)
    tree: dict[str, Any] = {
        **{name: tables[name] for name in ("run", "model", "law", "space") if name in tables},
        "sampler": {
            "method": "parallel-tempering", "walkers": walkers, "blocks": blocks, "steps": steps,
            "exchanges": 1,
        },
        "ladder": {"betas": [0.0]},
        "bins": {
            "lower": float(f"{-n_bins * WIDTH_OF_LN_P:.12g}"), "upper": 0.0, "width": WIDTH_OF_LN_P,
        },
        "samples": {"every": steps},
    }  # fmt: skip
    return tree, length, Rehearsal(math.nan, length.moves, math.nan, seconds)
