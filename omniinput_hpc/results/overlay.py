"""The densities of several runs in one picture, with inputs and outputs of test sets."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from omniinput_hpc.estimators import FloatArray
from omniinput_hpc.models.table import z_label
from omniinput_hpc.results.curve import beyond_lines
from omniinput_hpc.results.result import Written
from omniinput_hpc.results.tables import Columns

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Pictures = list[list[tuple[float, NDArray[np.uint8]]]]


@dataclass(frozen=True, repr=False)
class OverlayResult(Written):
    """Densities of several runs; it has a picture, but no table.

    Attributes
    ----------
    pictures : of each run, by place (low, middle, high), each (z, uint8 [h, w] or [h, w, 3])
    sets : of each run, test sets' outputs by name, float64 [n]
    """

    NAME: ClassVar = "overlay"
    TITLE: ClassVar = "Densities of"

    pictures: Sequence[Pictures] = ()
    sets: Sequence[Mapping[str, FloatArray]] = ()

    def columns(self) -> Columns:
        """Return no columns: each density has a table of its own."""
        return {}

    def lines(self) -> list[str]:
        """Return warnings of test sets with outputs that the walkers have not visited."""
        given = zip(self.densities, self.sets, self.names, strict=False)
        return [line for one in given for line in beyond_lines(*one)]

    def figure(self) -> Figure:
        """Return all densities, with inputs and test sets."""
        from omniinput_hpc.plots.overlay import Overlaid, overlay_figure

        parts: Any = zip_longest(self.runs, self.names, self.densities, self.pictures, self.sets)
        return overlay_figure(
            [
                Overlaid(name, z_label(run.config), density, pictures or [], dict(sets or {}))
                for run, name, density, pictures, sets in parts
            ]
        )
