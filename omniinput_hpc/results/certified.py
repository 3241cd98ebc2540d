"""Certified bounds on numbers of inputs: what is printed, written and drawn."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Literal

import numpy as np

from omniinput_hpc.estimators.density.certified import (
    Certified,
    counts_all_below,
    draws_at_zero,
    share_bounds,
)
from omniinput_hpc.estimators.errors.jackknife import jackknife_error, t_quantile
from omniinput_hpc.estimators.run_data import RunData
from omniinput_hpc.results.record import Record
from omniinput_hpc.results.result import Written
from omniinput_hpc.results.tables import Columns
from omniinput_hpc.text import interval

if TYPE_CHECKING:
    from matplotlib.figure import Figure


FEWEST_DRAWN = 20
"""Draws in a range from which their share is worth a line."""


def drawn_line(run: RunData, low: float, high: float) -> list[str]:
    """Return which share of the independent draws at beta = 0 has z from low to high.

    It holds whether the run has converged or not. Empty if too few draws lie there, and where
    beta = 0 is the only rung, whose density counts all draws.
    """
    several = run.rounds > 0 and len(run.beta_k) > 1 and not run.ancestral
    z = draws_at_zero(run) if several else np.zeros(0)
    # the last bin holds outputs equal to its upper end, too
    side: Literal["left", "right"] = "right" if high == run.edges[-1] else "left"
    found = int(np.searchsorted(z, high, side) - np.searchsorted(z, low))
    if found < FEWEST_DRAWN:
        return []
    share_low, share_high = map(float, share_bounds(np.array(found), len(z)))
    return [
        f"of {len(z):,} independent draws at beta = 0, {found / len(z):.3g} "
        f"({interval(share_low, share_high, '.3g')}) have such a z, converged or not"
    ]


@dataclass(frozen=True, repr=False)
class CertifiedResult(Written):
    """Certified bounds: a row per threshold.

    Attributes
    ----------
    found : the bounds
    """

    NAME: ClassVar = "certified"
    TITLE: ClassVar = "Certified bounds of"

    found: Certified

    def columns(self) -> Columns:
        """Return the columns of RUN.certified.csv."""
        found = self.found
        return {
            "z": found.z_t,
            "log_inputs": found.log_n_t,
            "log_inputs_low": found.low_t,
            "log_inputs_high": found.high_t,
            "exact": found.exact_t.astype(np.int64),
        }

    def about(self) -> list[str]:
        """Return the lines that explain the bounds; the first one is also printed."""
        found = self.found
        if self.densities[0].measure == "probability":
            return [
                "certified: each pair of bounds on the probability of outputs below z holds with "
                f"95% probability, from {found.n_groups:,} draws of the law at beta = 0",
                "log_inputs: ln of the probability, -inf if none was drawn",
            ]
        return [
            "certified: each pair of bounds on the number of inputs with outputs below z holds "
            f"with 95% probability, from {found.n_groups:,} groups of independent draws, assuming "
            "only that the model's conditional probabilities add up to at most 1",
            "log_inputs: ln of the number, -inf if none was drawn; exact: 1 if a census lists all",
            f"z is below the draws' own loss by {found.apart:.2g} at most, which the bounds allow "
            "for",
        ]

    def lines(self) -> list[str]:
        """Return the source, what the bounds are, and whether the density lies within them."""
        return [self.source, self.about()[0], *self._compared()]

    def _compared(self) -> list[str]:
        """Return a line on whether a density's numbers of inputs lie within certified bounds."""
        found, density = self.found, self.densities[0]
        if not density.absolute:
            return []
        if not counts_all_below(density):
            return [
                "the density is not compared with these bounds: outputs below the bins were "
                "recorded, which only the bounds count"
            ]
        upto_b = np.logaddexp.accumulate(density.log_g_b)
        log_n_t = upto_b[np.searchsorted(density.edges[1:], found.z_t - 1e-9)]
        # the last bin holds outputs equal to its upper end, too
        seen = np.isfinite(log_n_t) & (found.z_t < density.edges[-1])
        upto_jb = np.logaddexp.accumulate(np.nan_to_num(density.log_g_jb, nan=-np.inf), axis=1)
        error_b = jackknife_error(upto_b, upto_jb, density.lanes_g)
        room_t = t_quantile(len(density.lanes_g)) * np.nan_to_num(error_b, posinf=0.0)
        room_t = room_t[np.searchsorted(density.edges[1:], found.z_t - 1e-9)]
        outside = seen & ((log_n_t + room_t < found.low_t) | (log_n_t - room_t > found.high_t))
        line = (
            f"the density is within these bounds at {(seen & ~outside).sum()} of {seen.sum()} "
            "thresholds"
        )
        if outside.any():
            z = found.z_t[outside]
            line += f"; it is not at z = {z[0]:.4g}" + (f" to {z[-1]:.4g}" if len(z) > 1 else "")
        return [line]

    def record(self, into: Record) -> None:
        """Add nothing: the density has a result of its own, and the bounds are in the table."""

    def figure(self) -> Figure:
        """Return the bounds beside the density's estimate, and the distance between them."""
        from omniinput_hpc.plots.certified import certified_figure

        return certified_figure(self.found, self.densities[0], self.label)
