"""Tune the ladder in burn-in: measure rejections and the barrier Lambda, and move the rungs.

All ranks do the same arithmetic on the same numbers, so that the result needs no communication.
"""

from __future__ import annotations

import logging

import numpy as np
from numpy.typing import NDArray

from omniinput_hpc.tempering.gaussian_ladder import respace_gaussian
from omniinput_hpc.tempering.ladder import respace, stage_ends
from omniinput_hpc.text import shown

log = logging.getLogger("omniinput_hpc")


class LadderTuning:
    """Counts swaps in burn-in, in stages of doubling length, and re-spaces the rungs after each.

    Rungs move only if `tune` is set. Both ends stay, and so do canonical rungs whose beta is in
    `fixed`. The caller applies the result to the rungs' ensembles.

    Attributes
    ----------
    fixed : 0 and the model's own beta, whether or not it can be drawn from
    swaps_k2 : int64 [K - 1, 2], attempted and accepted swaps since the end of the last stage
    z_std_k : float64 [K], standard deviation of z in the last burn-in round; NaN if unknown
    """

    def __init__(self, n_rungs: int, burn_in: int, tune: bool, fixed: tuple[float, ...]) -> None:
        self._tune, self.fixed = tune, fixed
        self._ends = stage_ends(burn_in)
        self.swaps_k2 = np.zeros((n_rungs - 1, 2), dtype=np.int64)
        self.z_std_k = np.full(n_rungs, np.nan)

    def resume(self, swaps_k2: NDArray[np.int64]) -> None:
        """Restore the counts of swaps from a checkpoint, int64 [K - 1, 2]."""
        self.swaps_k2 = swaps_k2.copy()

    def after_round(
        self,
        round_: int,
        rung_k3: NDArray[np.float64],
        swaps_k2: NDArray[np.int64],
        moments_k3: NDArray[np.float64],
    ) -> NDArray[np.float64] | None:
        """Count a burn-in round; return new rungs, float64 [K, 3], or None if they do not move.

        Parameters
        ----------
        rung_k3 : float64 [K, 3], beta (NaN if flat-histogram), kappa and z0 of the present rungs
        swaps_k2 : int64 [K - 1, 2], attempted and accepted swaps of the round, on all ranks
        moments_k3 : float64 [K, 3], number, sum and sum of squares of the round's outputs
        """
        number_k, mean_k = moments_k3[:, 0], moments_k3[:, 1] / moments_k3[:, 0]
        self.z_std_k = np.sqrt(np.maximum(moments_k3[:, 2] / number_k - mean_k**2, 0.0))
        self.swaps_k2 += swaps_k2
        if round_ not in self._ends:
            return None
        rejection_k = self.rejection_k
        self.swaps_k2[:] = 0
        if not self._tune or np.isnan(rejection_k).any():
            return None
        if rung_k3[:, 1].any():
            moments = (mean_k, self.z_std_k)
            return respace_gaussian(rung_k3, rejection_k, *moments, self.fixed)
        new_k3 = rung_k3.copy()
        new_k3[:, 0] = respace(rung_k3[:, 0], rejection_k, self.fixed)
        return new_k3

    @property
    def rejection_k(self) -> NDArray[np.float64]:
        """Share of rejected swaps since the last stage, float64 [K - 1]; NaN if none was tried."""
        attempted_k, accepted_k = self.swaps_k2.T
        with np.errstate(invalid="ignore"):
            return np.asarray(1.0 - accepted_k / attempted_k)

    def report(self, rung_k3: NDArray[np.float64]) -> None:
        """Log the ladder after burn-in, given the rungs, [K, 3] (rank 0 only)."""
        beta_k, kappa_k, z0_k = rung_k3.T
        rejection_k = self.rejection_k
        if len(rejection_k) == 0 or np.isnan(rejection_k).any():
            return
        barrier, worst = float(rejection_k.sum()), int(np.argmax(rejection_k))
        log.info(
            "ladder after burn-in: Lambda = %.2f: about %d rungs are needed (1 + 2 Lambda); the "
            "ladder has %d; rungs %d and %d reject most, %.0f%%",
            barrier, max(2, round(1 + 2 * barrier)), len(beta_k), worst, worst + 1,
            100 * rejection_k[worst],
        )  # fmt: skip
        tuned = "tuned betas" if self._tune else "betas"
        log.info("%s: %s", tuned, ", ".join(shown(beta, ".4g", "flat") for beta in beta_k))
        if kappa_k.any():
            log.info("kappa: %s", ", ".join(f"{kappa:.4g}" for kappa in kappa_k))
            log.info("z0: %s", ", ".join(f"{z0:.4g}" for z0 in z0_k))
        log.info("sd of z per rung: %s", ", ".join(f"{std:.3g}" for std in self.z_std_k))
