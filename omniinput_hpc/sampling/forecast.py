"""The forecast of `--check`: how long a run will take, and what will go wrong.

All ranks try some exchanges together (`trial.try_exchanges`). The walkers start where those of the
run start and have not equilibrated: notes about swaps and outputs rest on these few moves only.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from omniinput_hpc.config import Bins, Config
from omniinput_hpc.sampling.built import Built
from omniinput_hpc.sampling.trial import ExchangeTrial, try_exchanges
from omniinput_hpc.tempering import ladder
from omniinput_hpc.text import duration

if TYPE_CHECKING:
    from omniinput_hpc.parallel.comm import World

FloatArray = NDArray[np.float64]

TRIAL_SECONDS = 6.0
"""The approximate length of the trial."""
MOST_COMPARED = 2048
"""The largest number of walkers of a rung that are compared with walkers of the next rung."""
MAX_EXCHANGES = 50
FEWEST_EXCHANGES = 6
"""The number of exchanges below which walkers are too near to their starts to judge swaps."""
HARDLY = 0.05
"""The share of accepted swaps below which a note says that neighbours will hardly swap."""
OUTSIDE = 0.01
"""The share of the trial's outputs outside the bins above which a note says so."""
WIDTH_TIMES_BETA = 0.25
"""The limit of the largest |beta| times the bin width; above it, weights vary too much inside a bin
(docs/choosing-betas-and-bins.md)."""


def tried(world: World, built: Built, seconds: float = TRIAL_SECONDS) -> ExchangeTrial:
    """Try exchanges for about `seconds` (all ranks call this)."""
    return try_exchanges(world, built, min(MAX_EXCHANGES, built.config.sampler.exchanges), seconds)


def seconds_of_run(config: Config, forecast: ExchangeTrial, done: int = 0) -> float:
    """Return the estimated seconds of all remaining rounds, including burn-in."""
    rounds = config.run.burn_in + config.run.rounds - done
    return max(rounds, 0) * config.sampler.exchanges * forecast.seconds


def describe_time(
    config: Config, forecast: ExchangeTrial, processors: int, device: str, done: int = 0
) -> str:
    """Return the estimate in words.

    processors : the number of GPUs or cores of the run
    done : rounds, including burn-in, that the run file already holds
    """
    seconds = seconds_of_run(config, forecast, done)
    unit = "core-hours" if device == "cpu" else "GPU-hours"
    tried = f"{forecast.exchanges} exchanges" if forecast.exchanges else "a few moves"
    a_round = max(config.sampler.exchanges * forecast.seconds, 0.01)
    in_words = duration(a_round) if a_round >= 10 else f"{a_round:.2g} s"
    ahead = config.kernel.learns_ahead and done < config.run.burn_in
    searches = " and the searches of look_ahead in burn-in" if ahead else ""
    rest = f" for the rounds after the {done} in the file" if done else ""
    return (
        f"about {duration(seconds)}{rest}, estimated from {tried} tried now: {in_words} per round, "
        f"{processors * seconds / 3600:.2g} {unit} in all, without the start-up{searches}"
    )


def acceptance(beta_k: FloatArray, z_kw: FloatArray) -> FloatArray:
    """Return the acceptance of swaps of neighbours, averaged over all pairs of their outputs.

    The result is float64 [K - 1]; NaN if a beta or an output is unknown.
    """
    result = np.full(len(beta_k) - 1, np.nan)
    z_kw = z_kw[:, :: -(-z_kw.shape[1] // MOST_COMPARED)]  # W^2 numbers could fill the memory
    for k, gap in enumerate(np.diff(beta_k)):
        change_ww = gap * (z_kw[k + 1][:, None] - z_kw[k][None, :])
        if np.isfinite(change_ww).all():
            result[k] = float(np.exp(np.minimum(change_ww, 0.0)).mean())
    return result


def judge(config: Config, forecast: ExchangeTrial, model_beta: float | None) -> list[str]:
    """Return what will go wrong, as sentences; empty if nothing was found."""
    notes = []
    bins, canonical_k = config.bins, np.nan_to_num(config.beta_k, nan=0.0)
    if forecast.outside > OUTSIDE:
        low, high = forecast.extremes
        notes.append(
            f"{forecast.outside:.0%} of the trial's outputs were outside the bins: z ranged "
            f"from {low:.4g} to {high:.4g}, the bins from {bins.lower:g} to {bins.upper:g}"
        )
    product = float(np.abs(canonical_k).max()) * bins.width
    if config.sampler.weighs_draws:
        product = 0.0  # each draw carries its own weight
    if product > WIDTH_TIMES_BETA * (1 + 1e-9) and _vary_inside(forecast.z_kw, bins):
        notes.append(
            f"largest |beta| * bins.width = {product:.2g} is above {WIDTH_TIMES_BETA:g}: weights "
            f"vary inside a bin; use a width of {bins.width * WIDTH_TIMES_BETA / product:.2g}"
        )
    if config.sampler.method == "parallel-tempering":
        fewest = min(FEWEST_EXCHANGES, config.sampler.exchanges)
        beta_k, few = config.canonical_k, forecast.exchanges < fewest
        unknown = few or len(beta_k) < len(config.beta_k)
        notes += _judge_ladder(beta_k, forecast, model_beta, unknown)
        notes += [] if unknown else _judge_length(config, forecast, model_beta)
        if unknown:
            why = f"the trial had time for {forecast.exchanges} of {fewest} exchanges"
            why = why if few else "rungs have kappa or lambdas"
            notes.append(f"{why}: whether neighbours swap, and the length, were not judged")
        beyond = model_beta is not None and config.goes_beyond(model_beta)
        if beyond and not config.kernel.learns_ahead:
            notes.append(
                f"beta = {beta_k.max():g} is above m = {model_beta:g}: language models get "
                "stuck there without kernel.look_ahead = true (lm-conditional)"
            )
    return notes


def _vary_inside(z_kw: FloatArray, bins: Bins) -> bool:
    """Whether outputs differ inside a bin; if each bin holds one value, any width will do."""
    z = np.unique(z_kw[np.isfinite(z_kw)])
    if not z.size:
        return True
    bin_of_z = np.floor((z - bins.lower) / bins.width)
    return bool(len(np.unique(bin_of_z)) < len(z))


def _judge_ladder(
    beta_k: FloatArray, forecast: ExchangeTrial, model_beta: float | None, unknown: bool
) -> list[str]:
    """Return notes on the betas of canonical rungs; none on swaps if these are `unknown`."""
    notes = []
    rate_k = np.zeros(0) if unknown else acceptance(beta_k, forecast.z_kw)
    hardly_k = np.flatnonzero(np.nan_to_num(rate_k, nan=1.0) < HARDLY)
    for k in hardly_k[:3]:
        notes.append(
            f"neighbours {k} and {k + 1} will hardly swap ({rate_k[k]:.1%} in the trial moves): "
            f"add a rung between beta = {beta_k[k]:g} and {beta_k[k + 1]:g}"
        )
    if len(hardly_k) > 3:
        notes.append(f"{len(hardly_k) - 3} further pairs will hardly swap either")
    m = np.nan if model_beta is None else model_beta
    inside = (beta_k < m).any() and (beta_k > m).any()
    if inside and m not in beta_k:  # further away one rung would not do
        notes.append(
            f"no rung at beta = m = {model_beta:g}, the model's own distribution: with one, the "
            "density could be checked there against a known value"
        )
    if 0.0 in beta_k and len(hardly_k):
        zero = int(np.flatnonzero(beta_k == 0.0)[0])
        low = max([k + 1 for k in hardly_k if k < zero], default=0)
        high = min([k for k in hardly_k if k >= zero], default=len(beta_k) - 1)
        notes.append(
            f"in the trial moves, the absolute scale of the density, known at beta = 0, reached "
            f"from beta = {beta_k[low]:g} to {beta_k[high]:g}"
        )
    return notes


def _judge_length(config: Config, forecast: ExchangeTrial, model_beta: float | None) -> list[str]:
    """Return a note if the run is shorter than a round trip of its ladder.

    The density's verdict is then "no". A passage is enough between two ends that renew walkers.
    """
    beta_k = config.beta_k
    rejection_k = 1.0 - acceptance(beta_k, forecast.z_kw)
    if len(beta_k) < 2 or not (rejection_k < 1.0 - HARDLY).all():  # false if one is not known
        return []
    if config.ladder is not None and config.ladder.tune:
        rejection_k = np.full(len(rejection_k), rejection_k.mean())
    ends_renew = {float(beta_k[0]), float(beta_k[-1])} <= {0.0, model_beta}
    needed = ladder.trip_time(rejection_k) * (0.5 if ends_renew else 1.0)
    exchanges = config.run.rounds * config.sampler.exchanges
    if not exchanges < needed:
        return []
    return [
        f"the run is too short for its ladder: a walker needs about {needed:,.0f} exchanges from "
        f"one end to the other{'' if ends_renew else ' and back'}, but the run has {exchanges:,} "
        "(rounds x exchanges): make more exchanges, with fewer steps between them, or raise "
        "run.rounds"
    ]
