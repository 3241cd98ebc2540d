"""How well a run mixes: acceptances, swaps, round trips, effective sample sizes, R-hat."""

from __future__ import annotations

from dataclasses import dataclass

from omniinput_hpc.estimators import BoolArray, FloatArray, IntArray


@dataclass(frozen=True)
class Diagnosis:
    """Mixing diagnostics of a run's committed rounds.

    Attributes
    ----------
    beta_k : float64 [K], NaN for flat-histogram rungs
    z_mean_k, z_std_k : float64 [K], of the recorded samples
    ess_k, rhat_k : float64 [K], of z over lanes; NaN if there are too few samples
    accepted_kn : float64 [K, n], share of accepted moves by kind of move; NaN if none was tried
    part_names : names of the kinds of move
    swapped_k : float64 [K - 1], share of accepted swaps; NaN if none was tried
    barrier : float, Lambda, the sum of the rejection rates; NaN without swaps
    trips_v : int64 [W K], completed round trips per walker
    drawn_k : bool [K], rungs with fresh draws, which count as moves of the first kind
    trip_rate, ideal_rate : float, round trips per lane and exchange, and 1 / (2 + 2 Lambda)
    exchanges : int, number of counted exchanges
    """

    beta_k: FloatArray
    z_mean_k: FloatArray
    z_std_k: FloatArray
    ess_k: FloatArray
    rhat_k: FloatArray
    accepted_kn: FloatArray
    part_names: tuple[str, ...]
    swapped_k: FloatArray
    barrier: float
    trips_v: IntArray
    trip_rate: float
    ideal_rate: float
    drawn_k: BoolArray
    exchanges: int

    @property
    def rungs_needed(self) -> int:
        """Approximate number of rungs that the ladder needs, 1 + 2 Lambda; requires swaps."""
        return max(2, round(1 + 2 * self.barrier))

    @property
    def trip_time(self) -> float:
        """Exchanges per round trip of one of a lane's K walkers, at best with these swap rates.

        That is K (2 + 2 sum r / (1 - r)) for rejections r, as in the verdict; `ideal_rate` is the
        limit of very many rungs.
        """
        if not (self.swapped_k > 0).all():  # NaN: no swap was tried
            return len(self.beta_k) / self.ideal_rate
        return len(self.beta_k) * (2.0 + 2.0 * float((1.0 / self.swapped_k - 1.0).sum()))
