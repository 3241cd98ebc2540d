"""Measure z at some betas, from inputs at beta = 0, the model's draws, or cooled chains.

The measurements are not exact and do not enter a run. They serve to place bins and betas.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from omniinput_hpc import models, rng
from omniinput_hpc.config import Config
from omniinput_hpc.errors import UserError
from omniinput_hpc.pilot.settings import FloatArray, Spread
from omniinput_hpc.sampling import build
from omniinput_hpc.sampling.trial import AfterMove, Clock, clock_of, streams
from omniinput_hpc.tempering.ensembles import Canonical

if TYPE_CHECKING:
    from omniinput_hpc.sampling.built import Built
    from omniinput_hpc.sampling.rung import Rung
    from omniinput_hpc.sampling.walkers import Recorded

N_DRAWN = 1024
"""Number of inputs at beta = 0, and of draws at each beta, if there is time."""
FEWEST = 64
"""The fewest of them, however slow the model is."""
N_DRAWN_BETAS = 9
"""Number of betas from 0 to m at which texts are drawn from a language model."""
STEP = 0.8
"""A cooled chain's largest step of beta, in units of 1 / (standard deviation of z)."""
LARGEST_BARRIER = 4.25
"""The largest Lambda of one side: 9 rungs at a rejection of 1/2, besides the one at beta = 0."""
SATURATED = 0.005
"""The chain ends if the standard deviation of z falls to this share of the range of z."""
STALLED = 0.05
"""The chain ends, without its last beta, if the share of accepted moves falls below this."""
SWEEPS = 4
"""Moves per site of a chain at each beta; at least MIN_MOVES in all, if there is time."""
MIN_MOVES = 60
FEWEST_MOVES = 8
N_BETAS = 12
"""The time of a side is divided among this many betas."""


class Deadline:
    """A time limit."""

    def __init__(self, seconds: float, clock: Clock) -> None:
        self._clock, self._end = clock, clock() + seconds

    @property
    def is_over(self) -> bool:
        """Whether the limit has passed."""
        return self._clock() >= self._end


def outputs_at_zero(built: Built, deadline: Deadline, after_move: AfterMove) -> NDArray[np.float64]:
    """Return z of 1,024 inputs as at beta = 0, float64 [n], or of fewer if time runs out.

    They are uniformly random, or drawn from the law.

    Raises a UserError if all outputs are equal, and a NonFiniteOutput if one is not finite.
    """
    rung = built.rungs[0]
    random = rng.generator(built.config.run.seed, "trial", 10)
    z: list[NDArray[np.float32]] = []
    while sum(map(len, z)) < N_DRAWN and not (
        deadline.is_over and sum(map(len, z)) >= min(FEWEST, N_DRAWN)
    ):
        z.append(rung.walkers.evaluate(rung.draw(random)))
        after_move()
    all_z = np.concatenate(z).astype(np.float64)
    if np.ptp(all_z) == 0:
        raise UserError(
            f"the model returned z = {all_z[0]:g} for all of {len(all_z)} random inputs, so there "
            "is nothing to sample; check that this is the right model, and that it gets the inputs "
            "that it was made for"
        )
    return all_z


def drawn_spread(
    built: Built,
    z_at_zero: FloatArray,
    deadline: Deadline,
    after_move: AfterMove,
    n_walkers: int | None = None,
) -> tuple[Spread, float, float]:
    """Return the spread of z of uniform inputs and of a language model's draws at beta up to m.

    They are drawn in batches of `n_walkers`, one at least (default: the run's walkers, and `FEWEST`
    texts at least). Returns also the seconds per drawn text, and what a draw is `worth`.

    Texts are drawn value by value from exp(b l), b = beta / m. This is the ensemble exp(-beta z)
    only at b = 0 and b = 1, and close to it in between.
    """
    m = float(built.model_beta or 0.0)
    beta_i = np.linspace(0.0, m, N_DRAWN_BETAS)
    tree = built.config.model_dump(exclude_unset=True)
    tree["sampler"] |= {"method": "ancestral", "steps": 1, "exchanges": 1}
    tree["sampler"]["walkers"] = n_walkers or built.geometry.n_walkers
    tree |= {"ladder": {"betas": beta_i.tolist()}, "samples": {"every": 1}}
    built = build.with_input(built, Config.model_validate(tree), [0])
    (rung,) = built.rungs  # draws at any beta
    rung.start()
    z_i: list[list[NDArray[Any]]] = [[z_at_zero], *([] for _ in beta_i[1:])]
    log_q: list[NDArray[np.float64]] = []
    clock = clock_of(built.device, built.config)
    batches, begin = 0, clock()
    fewest, per_batch = n_walkers or FEWEST, built.geometry.n_walkers
    while batches * per_batch < (fewest if deadline.is_over else N_DRAWN):
        for i, beta in enumerate(beta_i[1:], start=1):
            rung.set_ensemble(Canonical(float(beta)))
            number = batches * len(beta_i) + i
            drawn = _moved(built, rung, number, after_move)
            z_i[i].append(drawn.z_tw.flatten())
            assert drawn.log_q_swk is not None
            log_q.append(drawn.log_q_swk[0, :, 1:])
        batches += 1
    seconds = (clock() - begin) / (batches * per_batch * (len(beta_i) - 1))
    # in the order in which they were drawn, as log_q
    z_n = np.concatenate([z for parts in zip(*z_i[1:], strict=True) for z in parts])
    share = worth(beta_i[1:], z_n, np.concatenate(log_q))
    return Spread.of(beta_i, [np.concatenate(parts) for parts in z_i]), seconds, share


def worth(beta_i: FloatArray, z_n: FloatArray, log_q_ni: FloatArray) -> float:
    """Return how many exact samples of the ladder's worst rung a draw per rung is worth.

    n draws, equally many from each q_i, have weights exp(-beta_i z) / (sum of q_i) for rung i, and
    are worth (sum of weights)^2 / (sum of squares) samples (Kish 1965).

    beta_i : [K]; z_n : [n]; log_q_ni : [n, K], under every rung
    """
    log_w_ni = -np.outer(z_n, beta_i) - np.logaddexp.reduce(log_q_ni, axis=1)[:, None]
    w_ni = np.exp(log_w_ni - log_w_ni.max(axis=0))
    return float((w_ni.sum(axis=0) ** 2 / (w_ni**2).sum(axis=0)).min() * len(beta_i) / len(z_n))


def cooled_spread(
    built: Built,
    z_at_zero: FloatArray,
    seconds: float,
    after_move: AfterMove,
    seconds_per_move: float = 0.0,
    reach: tuple[float, float] = (-np.inf, np.inf),
) -> tuple[Spread, dict[str, str]]:
    """Return the spread of z at betas on both sides of 0, and why each side ended.

    The reasons have the keys "low" (beta > 0) and "high" (beta < 0). `seconds` limits both sides
    together, and `reach` the betas: a side is left out if it ends at 0.
    """
    sides = {"high": reach[0], "low": reach[1]}
    sides = {name: last for name, last in sides.items() if last}
    seconds /= len(sides)
    moves = max(MIN_MOVES, SWEEPS * built.geometry.n_sites)
    if seconds_per_move > 0:
        moves = max(FEWEST_MOVES, min(moves, int(seconds / N_BETAS / seconds_per_move)))
    at_zero = Spread.of(np.zeros(1), [z_at_zero])
    spread, why = at_zero, {}
    for name, last in sides.items():
        found, why[name] = _cool(built, last, at_zero, moves, seconds, after_move)
        spread = spread.united(found)
    return spread, why


def _cool(
    built: Built,
    last: float,
    at_zero: Spread,
    moves: int,
    seconds: float,
    after_move: AfterMove,
) -> tuple[Spread, str]:
    """Move a rung's walkers from beta = 0 towards the beta `last`, perhaps infinite; measure z.

    Returns the spread at the betas in the order of the visits, and why the chain ended, as half a
    sentence. `moves` are those at each beta.
    """
    deadline = Deadline(seconds, clock_of(built.device, built.config))
    built = build.with_input(built, _with_steps(built.config, moves), [0])
    (rung,) = built.rungs
    rung.start()
    sign, beta, barrier = float(np.sign(last)), 0.0, 0.0
    mean, sd = float(at_zero.mean_i[0]), float(at_zero.sd_i[0])
    lowest, highest = at_zero.lowest, at_zero.highest
    visited: list[tuple[float, float, float]] = []
    end = ""
    while not end:
        step = STEP / sd if not visited else min(STEP / sd, 2.0 * abs(beta))
        before = beta  # the step must survive rounding to three digits, so that beta changes
        beta = float(f"{beta + sign * max(step, 0.02 * abs(beta)):.3g}")
        beta = sign * min(abs(beta), abs(last))
        step = abs(beta - before)
        rung.set_ensemble(Canonical(beta))
        recorded = _moved(built, rung, len(visited), after_move)
        z = recorded.z_tw[moves // 2 :].astype(np.float64)
        moved = abs(float(z.mean()) - mean)
        mean, sd = float(z.mean()), float(z.std())
        lowest = min(lowest, float(recorded.z_tw.min()))
        highest = max(highest, float(recorded.z_tw.max()))
        barrier += step * max(sd, np.sqrt(moved / step)) / np.sqrt(np.pi)
        visited.append((beta, mean, sd))
        if sd <= SATURATED * (highest - lowest):
            end = f"z no longer changes at beta = {beta:.3g}"
        elif recorded.acceptance < STALLED:
            end = f"hardly any moves are accepted at beta = {beta:.3g}"
            visited = visited[:-1] or visited
        elif barrier >= LARGEST_BARRIER:
            end = f"about {round(2 * barrier)} rungs reach no further"
        elif beta == last:
            end = f"beta = {beta:g} is enough"
        elif deadline.is_over:
            end = "the pilot ran out of time"
    beta_i, mean_i, sd_i = np.array(visited).T
    return Spread(beta_i, mean_i, np.maximum(sd_i, 1e-12), lowest, highest), end


def _with_steps(config: Config, steps: int) -> Config:
    """Return the input with one segment of `steps` moves per round, and one sample per segment."""
    sampler = config.sampler.model_copy(update={"steps": steps, "exchanges": 1})
    samples = config.samples.model_copy(update={"every": steps})
    return config.model_copy(update={"sampler": sampler, "samples": samples})


def _moved(built: Built, rung: Rung, number: int, after_move: AfterMove) -> Recorded:
    """Return the record of a segment of moves; on a CPU it is valid until the next segment."""
    of_segment = streams(built.config.run.seed, 20, rung.k, number)
    segment = rung.walkers.begin_segment(*of_segment, first_move=0)
    return segment.run(after_move)


INSIDE = {
    "name": "mixture",
    "parts": [
        {"name": "from-law", "weight": 0.4},
        {"name": "gibbs-with-gradients", "proposal": "site", "weight": 0.6},
    ],
}
"""In a constrained space uniform redraws alone seldom improve an input at high betas."""


def kernel_table(built_model: Any, law: Any = None) -> dict[str, Any]:
    """Return the best kernel for the methods that a model offers, as a table ``kernel``.

    `law` is that of the inputs, as kernels see it. Where the default is best, the table is empty.
    """
    offers = models.offers_of(built_model)
    has_gradient = offers.output_and_gradient is not None or offers.factors is not None
    has_gradient = has_gradient and not offers.without_gradient()
    if law is not None:
        from omniinput_hpc.kernels.parts.constrained import UniformInside  # imports torch

        return {"kernel": INSIDE} if has_gradient and isinstance(law, UniformInside) else {}
    if offers.conditional_logits is not None:
        return {"kernel": {"name": "lm-conditional"}}
    if has_gradient:
        return {"kernel": {"name": "gibbs-with-gradients"}}
    return {"kernel": {"name": "metropolis"}}


def steps_of(kernel: dict[str, Any], n_sites: int) -> int:
    """Return the number of moves between two exchanges, enough to change most of an input."""
    if kernel.get("kernel", {}).get("name") in (None, "lm-conditional", "mixture"):
        return 5
    return int(np.clip(n_sites // 2, 10, 50))


def with_kernel(built: Built, kernel: dict[str, Any], n_walkers: int) -> Built:
    """Return `built` with another kernel and number of walkers, and only rung 0.

    `kernel` holds its table, or nothing, for the default one.
    """
    tree = built.config.model_dump(exclude_unset=True) | kernel
    tree["sampler"]["walkers"] = n_walkers
    return build.with_input(built, Config.model_validate(tree), [0])
