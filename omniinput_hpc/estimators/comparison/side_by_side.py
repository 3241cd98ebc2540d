"""All normalizations of two models side by side, each with its error, or with why it is refused."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from omniinput_hpc.estimators import EstimateError
from omniinput_hpc.estimators.comparison import normalization as n
from omniinput_hpc.estimators.density.density import Density
from omniinput_hpc.estimators.errors.jackknife import (
    Estimate,
    Replicated,
    estimate,
    of_first,
    of_second,
)

FloatArray = NDArray[np.float64]
TOO_FAR = 3.0
"""Standard errors between two normalizations beyond which they are said to disagree."""


@dataclass(frozen=True)
class Row:
    """One normalization.

    Attributes
    ----------
    name : str
    shift : Replicated, what to add to the second log_g; None where refused
    ratio : Estimate, ln of how many times more inputs the first model puts in Z; None where refused
    refused : why, "" where it is not
    """

    name: str
    shift: Replicated | None
    ratio: Estimate | None
    refused: str


@dataclass(frozen=True)
class Normalizations:
    """What `normalize` found.

    Attributes
    ----------
    low, high : float, Z
    rows : the normalizations
    common : inputs that both put in Z; None where the runs have none
    log_count_a, log_count_b : Replicated, ln of the number of inputs in Z in either run's own units
    differences : (name, name, Estimate): of ln ratios by two normalizations from the same data
    """

    low: float
    high: float
    rows: tuple[Row, ...]
    common: n.Common | None
    log_count_a: Replicated
    log_count_b: Replicated
    differences: tuple[tuple[str, str, Estimate], ...]

    def best(self) -> Row:
        """Return the normalization to use: of those that are not refused, the one least in error.

        Raises
        ------
        EstimateError
            All are refused.
        """
        usable = [row for row in self.rows if row.ratio is not None]
        if not usable:
            reasons = "; ".join(f"{row.name}: {row.refused}" for row in self.rows)
            raise EstimateError(f"the models cannot be normalized: {reasons}")
        return min(usable, key=lambda row: float(row.ratio.error) if row.ratio else np.inf)


def normalize(
    a: Density, b: Density, pairs_a: n.Pairs, pairs_b: n.Pairs, low: float, high: float
) -> Normalizations:
    """Normalize two densities in every way that the runs permit.

    Parameters
    ----------
    a, b : Density of each model's run
    pairs_a, pairs_b : each run's samples with both models' outputs
    low, high : Z, in the unit of the outputs

    Raises
    ------
    EstimateError
        A model has no counts in Z.
    """
    if not low < high:
        raise EstimateError(f"--range {low:g} {high:g}: the first must be below the second")
    own_a = of_first(*n.log_count_in(a, pairs_a, low, high), len(b.lanes_g))
    own_b = of_second(*n.log_count_in(b, pairs_b, low, high), len(a.lanes_g))
    common: list[n.Common] = []

    def cross() -> Replicated:
        common.append(n.count_common(a, b, pairs_a, pairs_b, low, high))
        return common[0].shift

    ways: list[tuple[str, Callable[[], Replicated]]] = [
        ("cross-model (Eq. 5, 6)", cross),
        ("Bennett's ratio", lambda: n.bennett_shift(a, b, pairs_a, pairs_b)),
        ("absolute (beta = 0)", lambda: n.absolute_shift(a, b)),
        ("entire distribution (area 1)", lambda: n.entire_shift(a, b)),
    ]
    rows, ratios = [], {}
    for name, way in ways:
        try:
            shift = way()
        except EstimateError as error:
            rows.append(Row(name, None, None, str(error)))
            continue
        ratios[name] = own_a - own_b - shift
        rows.append(Row(name, shift, estimate(ratios[name], a.lanes_g, b.lanes_g), ""))
    names = [name for name in ratios if not name.startswith("entire")]
    differences = tuple(
        (one, other, estimate(ratios[one] - ratios[other], a.lanes_g, b.lanes_g))
        for i, one in enumerate(names)
        for other in names[i + 1 :]
    )
    return Normalizations(
        low, high, tuple(rows), common[0] if common else None, own_a, own_b, differences
    )


def describe(found: Normalizations, name_a: str, name_b: str) -> list[str]:
    """Return the plain lines that the script prints."""
    lines = [
        f"ln(inputs of {name_a} / inputs of {name_b}) with output in {found.low:g} to "
        f"{found.high:g}:",
        f"  {'normalization':<30}{'ln ratio':>10}{'error':>9}  {'95% interval':<22} ratio",
    ]
    for row in found.rows:
        if row.ratio is None:
            lines.append(f"  {row.name:<30}refused: {row.refused}")
            continue
        r = row.ratio
        interval = f"{float(r.low):.4f} to {float(r.high):.4f}"
        lines.append(
            f"  {row.name:<30}{float(r.value):>10.4f}{float(r.error):>9.4f}  {interval:<22} "
            f"{np.exp(float(r.value)):.4g}"
        )
    if found.common is not None:
        c = found.common
        lines.append(
            f"inputs that both put in the range: {c.samples_a:,} samples of {name_a} "
            f"({100 * c.share_a:.3g}% of its inputs there), {c.samples_b:,} of {name_b} "
            f"({100 * c.share_b:.3g}%)"
        )
    for one, other, d in found.differences:
        known = np.isfinite(d.error) and d.error > 0
        far = known and abs(float(d.value)) > TOO_FAR * float(d.error)
        verdict = "they DISAGREE" if far else ("they agree" if known else "error not known")
        lines.append(
            f"{one} minus {other}: {float(d.value):+.4f} +- {float(d.error):.4f}: {verdict}"
        )
    return lines
