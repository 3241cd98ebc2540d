"""Certified bounds on the number of inputs up to each output, from independent draws."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from omniinput_hpc.estimators.density.certified import Certified
from omniinput_hpc.results.result import Written
from omniinput_hpc.results.tables import Columns

if TYPE_CHECKING:
    from matplotlib.figure import Figure


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
        return [
            "certified: each pair of bounds on the number of inputs with outputs up to z holds "
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
        upto_b = np.logaddexp.accumulate(density.log_g_b)
        log_n_t = upto_b[np.searchsorted(density.edges[1:], found.z_t - 1e-9)]
        seen = np.isfinite(log_n_t)
        outside = seen & ((log_n_t < found.low_t) | (log_n_t > found.high_t))
        line = (
            f"the density is within these bounds at {(seen & ~outside).sum()} of {seen.sum()} "
            "thresholds"
        )
        if outside.any():
            z = found.z_t[outside]
            line += f"; it is not at z = {z[0]:.4g}" + (f" to {z[-1]:.4g}" if len(z) > 1 else "")
        return [line]

    def figure(self) -> Figure:
        """Return the bounds beside the density's estimate, and the distance between them."""
        from omniinput_hpc.plots.certified import certified_figure

        return certified_figure(self.found, self.densities[0], self.label)
