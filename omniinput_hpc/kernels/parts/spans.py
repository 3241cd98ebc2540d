"""The span of sites that a move redraws, drawn independently of the state."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from omniinput_hpc.config.kernels import FromLaw, LmConditional
from omniinput_hpc.errors import UserError

FULL_LENGTH_SHARE = 0.1
"""Share of suffixes of full length, on top of the default log-uniform distribution."""
FULL_LENGTH_SHARE_AHEAD = 0.6
"""The same with `look_ahead`, with which a whole redrawn input is nearly an independent draw."""
MAX_BLOCK_LENGTH = 8
"""Length of the longest block, unless the input file sets one."""


@dataclass(frozen=True)
class Span:
    """Sites begin to end - 1, to be redrawn by the kernel's part number `part`."""

    part: int
    begin: int
    end: int


class SpanSchedule:
    """The distribution of spans among D sites.

    Raises a `UserError` if a length exceeds D, or if no move would ever change some site.
    """

    def __init__(self, options: LmConditional | FromLaw, n_sites: int) -> None:
        weights = [getattr(options.weights, name) for name in options.part_names]
        self._names, self._n_sites = options.part_names, n_sites
        self._parts = np.cumsum(weights) / np.sum(weights)
        block = _range("block_lengths", options.block_lengths, n_sites)
        suffix = _range("suffix_lengths", options.suffix_lengths, n_sites)
        share = FULL_LENGTH_SHARE_AHEAD if options.look_ahead else FULL_LENGTH_SHARE
        whole = share if options.suffix_lengths is None else 0.0
        self._lengths = {
            "block": _log_uniform(*(block or (min(2, n_sites), min(MAX_BLOCK_LENGTH, n_sites)))),
            "suffix": _log_uniform(*(suffix or (1, n_sites)), whole),
        }
        only_suffixes = options.weights.suffix == sum(weights)
        if only_suffixes and suffix is not None and suffix[1] < n_sites:
            raise UserError(
                f"kernel.suffix_lengths = {list(suffix)}: with suffixes only, the first of "
                f"{n_sites} sites would never change; add another part to kernel.weights"
            )

    def draw(self, u: NDArray[np.float64]) -> Span:
        """Draw a span with three uniform numbers u: for its part, its length, its first site."""
        part = _inverse(self._parts, u[0])
        name, length = self._names[part], 1
        if name in self._lengths:
            lengths, cumulative = self._lengths[name]
            length = int(lengths[_inverse(cumulative, u[1])])
        begin = self._n_sites - length
        if name != "suffix":
            begin = int(u[2] * (begin + 1))
        return Span(part, begin, begin + length)


def _range(key: str, given: list[int] | None, n_sites: int) -> tuple[int, int] | None:
    if given is None:
        return None
    if given[1] > n_sites:
        raise UserError(f"kernel.{key} = {given}: the model has only {n_sites} sites")
    return given[0], given[1]


def _log_uniform(
    low: int, high: int, longest: float = 0.0
) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Return lengths and their cumulative p, p proportional to 1/length.

    The share `longest` is added to the last length.
    """
    lengths = np.arange(low, high + 1)
    p = (1 - longest) / lengths / np.sum(1 / lengths)
    p[-1] += longest
    return lengths, np.cumsum(p)


def _inverse(cumulative: NDArray[np.float64], u: float) -> int:
    return min(int(np.searchsorted(cumulative, u, "right")), len(cumulative) - 1)
