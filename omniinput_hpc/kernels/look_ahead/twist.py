"""Twisted rows: next values weighted by the estimated sum over their continuations.

Instead of p^b, a value has the weight p^b psi. psi depends on this value, on the few values before
it, and on the number of sites to come; it is 1 if nothing is known. The rows are normalized, so the
proposal is exact for any psi. Nothing here waits for a GPU.
"""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray

from omniinput_hpc.config.kernels import CONTEXT_LENGTH
from omniinput_hpc.kernels.look_ahead.continuations import MULTIPLIER, Continuations, keys_of

MAX_NEXT = 8
"""Largest number of next values with their own psi, after the same preceding values."""
MAX_GAIN = 60.0
"""The largest |ln psi|."""


class LookAhead:
    """ln psi of single values, plus corrections for contexts of several values, on a device.

    Parameters
    ----------
    known : the continuations that burn-in learned
    """

    def __init__(self, known: Continuations, n_sites: int, device: torch.device) -> None:
        gain_nc = np.clip(known.gains(n_sites), -MAX_GAIN, MAX_GAIN)
        shorter = known.index_of(known.values, shortened=True)
        # The correction that a context adds to ln psi of its longest shorter ending.
        more_nc = gain_nc - np.where(shorter >= 0, gain_nc[:, shorter], 0.0)
        alone = np.flatnonzero(known.length == 1)
        alone = alone[np.argsort(known.values[alone, -1])]
        # `_tensor` appends an entry with ln psi = 0, so that no array is empty.
        self._single = _tensor(known.values[alone, -1], 0, device)
        self._single_gain = _tensor(more_nc[:, alone], 0, device)
        self._levels = []
        for length in range(2, CONTEXT_LENGTH + 1):
            some = np.flatnonzero(known.length == length)
            # Shorter and full contexts both apply at a site with enough values before it.
            prefix = keys_of(known.values[some, :-1])
            order = np.lexsort((known.values[some, -1], -np.abs(more_nc[:, some]).max(0), prefix))
            some, prefix = some[order], prefix[order]
            few = np.arange(len(some)) - np.searchsorted(prefix, prefix) < MAX_NEXT
            some, prefix = some[few], prefix[few]
            self._levels.append(
                tuple(
                    _tensor(array, last, device)
                    for array, last in (
                        (prefix, np.iinfo(np.int64).max),
                        (known.values[some, -1], 0),
                        (more_nc[:, some], 0),
                    )
                )
            )
        self._next = torch.arange(MAX_NEXT, device=device)
        self._n_sites = n_sites

    def after(self, x: torch.Tensor, t: int, k: int = 1) -> Twist:
        """Return the twist of the rows of sites t to t + k - 1 of x, int64 [W, D].

        The k W rows are ordered by site. Each depends only on the values before its site.
        """
        n_walkers = len(x)
        site = torch.arange(t, t + k, device=x.device)
        to_come = (self._n_sites - 1 - site).repeat_interleave(n_walkers)
        single = self._single_gain[to_come]  # [R, S]
        values, gains = [], []
        for length, (prefix, last, gain) in enumerate(self._levels, start=2):
            if t + k < length:
                break
            key = self._keys(x, t, k, length - 1)  # [R]
            at = torch.searchsorted(prefix, key)[:, None] + self._next  # [R, M]
            inside = at < len(prefix) - 1
            at = at.clamp(max=len(prefix) - 1)
            held = inside & (prefix[at] == key[:, None])
            if t < length - 1:
                held &= (site >= length - 1).repeat_interleave(n_walkers)[:, None]
            values.append(last[at])
            gains.append(gain[to_come[:, None], at].masked_fill(~held, 0.0))
        if not values:
            return Twist(self._single, single, None, None)
        return Twist(self._single, single, torch.cat(values, dim=1), torch.cat(gains, dim=1))

    @staticmethod
    def _keys(x: torch.Tensor, t: int, k: int, n: int) -> torch.Tensor:
        """Return `keys_of` the n values before each site, without earlier ones, int64 [k W]."""
        key = torch.zeros((k, len(x)), dtype=torch.int64, device=x.device)
        for back in range(CONTEXT_LENGTH - 1, 0, -1):
            column = torch.full_like(key, 1)
            if back <= n:
                begin = max(t - back, 0)
                column[begin - t + back :] = x[:, begin : t - back + k].T + 2
            key = key * MULTIPLIER + column
        return key.view(-1)


class Twist:
    """ln psi of R rows.

    Parameters
    ----------
    single, single_gain : values, int64 [S], ascending except for the last, and ln psi, [R, S]
    pair, pair_gain : values, int64 [R, M], and corrections to their ln psi, [R, M]; or None
    """

    def __init__(
        self,
        single: torch.Tensor,
        single_gain: torch.Tensor,
        pair: torch.Tensor | None,
        pair_gain: torch.Tensor | None,
    ) -> None:
        self._single, self._single_gain = single, single_gain
        self._pair, self._pair_gain = pair, pair_gain

    def rows(self, some: slice) -> Twist:
        """Return the twist of some of the rows."""
        pair = None if self._pair is None else self._pair[some]
        gain = None if self._pair_gain is None else self._pair_gain[some]
        return Twist(self._single, self._single_gain[some], pair, gain)

    def add_to(self, scores: torch.Tensor) -> torch.Tensor:
        """Add ln psi to whole rows of scores, float32 [R, V], in place; return them."""
        scores.index_add_(1, self._single, self._single_gain.to(scores.dtype))
        if self._pair is not None and self._pair_gain is not None:
            scores.scatter_add_(1, self._pair, self._pair_gain.to(scores.dtype))
        return scores

    def at(self, values: torch.Tensor) -> torch.Tensor:
        """Return ln psi, float64 [R, n], of some values of each row, int64 [R, n]."""
        known = self._single[:-1]
        total = torch.zeros(values.shape, dtype=torch.float64, device=values.device)
        if len(known):
            at = torch.searchsorted(known, values.contiguous()).clamp_(max=len(known) - 1)
            gain = self._single_gain.gather(1, at)
            total = gain.masked_fill(known[at] != values, 0.0)
        if self._pair is None or self._pair_gain is None:
            return total
        same = values[:, :, None] == self._pair[:, None, :]  # [R, n, M]
        return total + torch.where(same, self._pair_gain[:, None, :], 0.0).sum(dim=-1)


def _tensor(array: NDArray[np.generic], last: int, device: torch.device) -> torch.Tensor:
    """Return an array on a device, with the number `last` appended along the last axis."""
    more = np.full((*array.shape[:-1], 1), last, dtype=array.dtype)
    return torch.from_numpy(np.concatenate([array, more], axis=-1)).to(device)
