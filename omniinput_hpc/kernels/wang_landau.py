"""The Wang-Landau ensemble on the walkers' device: log-weights per bin, and how they are learned.

Wang & Landau (2001): after each move, rejected ones included, S(z) grows by ln f at the output of
the walker. S is learned only during burn-in. The counted samples are drawn with S frozen and
reweighted like those of any other rung, so errors of S do not enter the results.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from omniinput_hpc.config import WangLandau
from omniinput_hpc.kernels.parts.device_rng import DeviceStream
from omniinput_hpc.tempering.ensembles import Tabulated, slope_entries

OUTSIDE_PENALTY = 1e4
"""Penalty on the log-weight outside the window while learning: walkers enter and never leave."""
FIRST_OUTSIDE_PENALTY = 20.0
"""Initial difference of the log-weight across all bins, outside the window; it leads walkers in."""
BETA_GROWTH, MAX_BETA_GROWTH = 1.5, 1e4
"""Factor by which |beta| outside the window grows while most walkers are there; largest total."""
RARE_SHARE = 0.05
"""Share of the known bins that may be visited less than flatness requires (schedule "1/t")."""
FIRST_RISE = 0.1
"""Largest rise of S by one move of all walkers, averaged over the bins of the window. Walkers share
S: a larger rise would pile up before they can travel to other bins."""
CALM_BETA = -0.1
"""Beta of the proposal while the bin of a directional walker is not flat (docs/papers.md: way 2).
The papers have 0.1, which leads to larger outputs there: their betas have the opposite sign."""


@dataclass(frozen=True)
class LearningState:
    """The state from which learning resumes.

    Attributes
    ----------
    entropy : float64 [B + 2], S of each entry of the table; NaN where never visited
    visits : float64 [B + 2], the present histogram
    learning : float64 [6]: ln f, ln f of the schedule, moves, whether the histogram was ever flat,
        whether the weights are frozen, |beta| outside the window
    """

    entropy: NDArray[np.float64]
    visits: NDArray[np.float64]
    learning: NDArray[np.float64]


def first_headings(n_walkers: int) -> NDArray[np.int8]:
    """Return the initial directions, int8 [W]: 1, to larger outputs, for every other walker."""
    return np.where(np.arange(n_walkers) % 2, -1, 1).astype(np.int8)


class WangLandauEnsemble:
    """The log-weights of a rung's bins as tensors, and the state of learning them.

    Parameters
    ----------
    edges : float64 [B + 1]
    window : bins [first, end) that the rung samples once its weights are frozen
    n_walkers : number of walkers that share S

    Attributes
    ----------
    learning : whether `after_move` still changes the weights
    ln_f : the present increment of S
    """

    def __init__(
        self,
        edges: NDArray[np.float64],
        window: tuple[int, int],
        options: WangLandau,
        device: str | torch.device,
        n_walkers: int,
    ) -> None:
        self._host_edges, self._window, self._options = edges, window, options
        self._device = torch.device(device)
        self._host: Tabulated | None = None
        self._edges = torch.from_numpy(edges).to(device)
        n_bins, (first, end) = len(edges) - 1, window
        entry = torch.arange(n_bins + 2, device=device)
        self._in_window = (entry > first) & (entry <= end)
        width = float(edges[1] - edges[0])
        above, below = (entry - end).clamp(min=0), (first + 1 - entry).clamp(min=0)
        self._distance = (above - below) * width  # in units of z; negative below the window
        self._first_outside_beta = FIRST_OUTSIDE_PENALTY / (n_bins * width)
        self._set_outside_beta(self._first_outside_beta)
        self._share_inside = torch.ones((), dtype=torch.float64, device=device)
        self._low, self._high = (
            torch.from_numpy(entries).to(device) for entries in slope_entries(n_bins + 2, window)
        )
        self._reach = (self._high - self._low).clamp(min=1) * width
        self._s = torch.zeros(n_bins + 2, dtype=torch.float64, device=device)
        self._visited = torch.zeros(n_bins + 2, dtype=torch.bool, device=device)
        self._h = torch.zeros_like(self._s)
        self._moves = torch.zeros((), dtype=torch.float64, device=device)
        self.ln_f = min(options.ln_f_first, FIRST_RISE * (end - first) / n_walkers)
        self._first, self._schedule, self.learning = self.ln_f, self.ln_f, True
        self._ever_flat = False
        self._beta: torch.Tensor | None = None
        self._gamma: torch.Tensor | None = None  # [W], the sign of each walker's beta
        if options.keeps_direction:
            self.set_headings(first_headings(n_walkers))
        self._refresh()

    def bin(self, z: torch.Tensor) -> torch.Tensor:
        """Return the table entry of each output, int64 [W]: `histogram.bin_of` plus 1."""
        z = z.double()
        entry = torch.bucketize(z, self._edges, right=True)
        in_last: torch.Tensor = z == self._edges[-1]
        inside: torch.Tensor = entry - in_last.long()
        return inside

    def log_weight(self, z: torch.Tensor) -> torch.Tensor:
        """Return -S at each output's bin, float64 [W]; -inf outside the window once frozen."""
        return self._table[self.bin(z)]

    def slope(self, z: torch.Tensor) -> torch.Tensor:
        """Return the number that a gradient kernel's proposal uses as beta, float64 [W]."""
        if self._beta is not None:
            beta: torch.Tensor = self._beta.expand(len(z))
            return beta
        slope: torch.Tensor = self._slope[self.bin(z)]
        return slope

    def begin_segment(self, stream: DeviceStream, n_walkers: int) -> None:
        """Draw the directions of directional walkers, unless these keep theirs."""
        options = self._options
        if options.proposal == "directional" and self.learning and not options.keeps_direction:
            sign = stream.uniform(n_walkers) < 0.5
            self._gamma = torch.where(sign, -1.0, 1.0)

    def begin_move(self, stream: DeviceStream, z: torch.Tensor) -> None:
        """Draw beta of the proposal, unless it is the slope; it holds forward and backward.

        The directional proposal depends on the histogram, so its transition probabilities are not
        fixed. It is therefore used only while learning (docs/papers.md). After that, the sign of
        beta is random, or given by the direction that the walker keeps.
        """
        limits = self._options.proposal_beta
        if limits is None:
            return
        low, high = limits
        u = stream.uniform(1)
        self._beta = low + (high - low) * u
        if self._options.proposal != "directional":
            return
        kept = self._options.keeps_direction
        if not self.learning and not kept:  # a random sign, since directions are no longer drawn
            away = 2.0 * u - 1.0
            self._beta = torch.where(away < 0, -1.0, 1.0) * (low + (high - low) * away.abs())
            return
        assert self._gamma is not None
        entry, turned = self.bin(z), self._turned(self._gamma, self.bin(z))
        self._beta = (turned if kept else self._gamma) * self._beta.abs()
        self._gamma = turned
        if self.learning:
            known = self._visited & self._in_window
            mean = torch.where(known, self._h, 0.0).sum() / known.sum().clamp(min=1)
            flat = self._h[entry] >= self._options.flatness * mean
            self._beta = torch.where(flat, self._beta, CALM_BETA)

    def _turned(self, gamma: torch.Tensor, entry: torch.Tensor) -> torch.Tensor:
        """Return the signs of beta, [W], after walkers turn at the lowest and highest known bins.

        entry : int64 [W], see `bin`

        While learning, a walker at one extreme is directed to the other. With frozen weights, every
        walker at an extreme reverses its direction, whichever it is. This maps (z, direction) one
        to one, so that both directions stay equally likely at every z. (Directing all of them
        inwards would empty one direction at the extreme, which no move fills again, and the
        ensemble would not be invariant.)
        """
        known = self._visited & self._in_window
        position = torch.arange(len(known), device=known.device)
        at_bottom = entry <= torch.where(known, position, len(known)).min()
        at_top = entry >= torch.where(known, position, -1).max()
        if not self.learning:
            return torch.where(at_bottom | at_top, -gamma, gamma)
        up = torch.where(at_bottom, -1.0, gamma)  # beta > 0 leads to low z
        return torch.where(at_top, 1.0, up)

    def headings(self) -> NDArray[np.int8]:
        """Return the direction of each walker, int8 [W]: 1 to larger outputs, -1 to smaller ones.

        Only for ``direction = "kept"`` (synchronizes).
        """
        assert self._gamma is not None
        return np.where(self._gamma.cpu().numpy() < 0, 1, -1).astype(np.int8)

    def set_headings(self, heading_w: NDArray[np.int8]) -> None:
        """Set the directions of the walkers, int8 [W], as `headings` returns them."""
        gamma = torch.from_numpy(-heading_w.astype(np.float32))
        self._gamma = gamma.to(self._device)

    def after_move(self, z: torch.Tensor) -> None:
        """Update S at the outputs of all walkers after a move, rejected or not.

        A new bin starts with the lowest S of the visited bins, and the histogram starts again from
        zero. Outside the window S always grows by the first ln f, so that walkers which wait there
        enter however far the learning inside has come. Does not synchronize.
        """
        if not self.learning:
            return
        entry = self.bin(z)
        here = torch.zeros_like(self._visited)
        here[entry] = True
        new = here & ~self._visited
        self._s = torch.where(new & self._in_window, self._lowest(), self._s)
        self._visited = self._visited | here
        restart = (new & self._in_window).any()
        self._h = torch.where(restart, 0.0, self._h)
        self._moves = self._moves + len(entry)
        one = torch.ones_like(entry, dtype=torch.float64)
        growth = torch.where(self._in_window[entry], self.ln_f, self._first * one)
        self._share_inside = self._in_window[entry].double().mean()
        self._s = self._s.index_add(0, entry, growth)
        self._h = self._h.index_add(0, entry, one)
        self._refresh()

    def after_segment(self) -> None:
        """Lower ln f if the histogram is flat, and cool walkers into the window (synchronizes).

        Outside the window walkers sample a canonical ensemble; its |beta| grows while most of them
        are there.

        Schedule "1/t" (Belardinelli & Pereyra, Phys. Rev. E 75, 046701, 2007) first halves ln f and
        then sets it to bins / moves. The latter falls more slowly; halving alone would end before
        the errors have died out. One known bin in twenty may be visited less than flatness
        requires, since bins of a few inputs would hold up all others.
        """
        if not self.learning:
            return
        if float(self._share_inside) < 0.5:
            beta = min(self._outside_beta * BETA_GROWTH, MAX_BETA_GROWTH * self._first_outside_beta)
            self._set_outside_beta(beta)
            self._refresh()
        counted = self._visited & self._in_window
        if not bool(counted.any()):
            return
        h, one_over_t = self._h[counted], self._options.schedule == "1/t"
        rarest = h.quantile(RARE_SHARE) if one_over_t else h.min()
        if float(rarest) >= self._options.flatness * float(h.mean()):
            self._ever_flat = True
            self._schedule *= 0.5
            self._h = torch.zeros_like(self._h)
        self.ln_f = self._schedule
        if one_over_t and self._ever_flat:
            self.ln_f = max(self._schedule, int(counted.sum()) / max(float(self._moves), 1.0))
            self.ln_f = min(self._first, self.ln_f)
        if self.reached:
            self.freeze()

    def freeze(self) -> None:
        """End learning: the weights are now fixed, and -inf outside the window."""
        if self.learning:
            self.learning, self._beta = False, None
            if not self._options.keeps_direction:
                self._gamma = None
            self._refresh()

    @property
    def reached(self) -> bool:
        """Whether the histogram was flat, and ln f has fallen to its last value."""
        return self._ever_flat and self.ln_f <= self._options.ln_f_last

    @property
    def beta(self) -> float:
        """NaN: the ensemble has no temperature."""
        return np.nan

    def on_host(self) -> Tabulated:
        """Return an ensemble with the present log-weights on the host (synchronizes if changed)."""
        if self._host is None:
            table = self._table.cpu().numpy().copy()
            self._host = Tabulated(self._host_edges, self._window, table)
        return self._host

    def learning_state(self) -> LearningState:
        """Return the state of learning, for `restore` (synchronizes)."""
        s = torch.where(self._visited, self._s, torch.nan)
        moves, frozen = float(self._moves), not self.learning
        learning = [self.ln_f, self._schedule, moves, self._ever_flat, frozen, self._outside_beta]
        return LearningState(
            s.cpu().numpy(), self._h.cpu().numpy(), np.array(learning, dtype=np.float64)
        )

    def restore(self, state: LearningState) -> None:
        """Continue from a result of `learning_state`."""
        learning = state.learning
        s = torch.from_numpy(state.entropy.copy()).to(self._device)
        self._visited = ~s.isnan()
        self._s = torch.where(self._visited, s, 0.0)
        self._h = torch.from_numpy(state.visits.copy()).to(self._device)
        self.ln_f, self._schedule = float(learning[0]), float(learning[1])
        self._moves = self._moves * 0 + float(learning[2])
        self._ever_flat, self.learning = bool(learning[3]), not bool(learning[4])
        self._set_outside_beta(float(learning[5]))
        self._refresh()

    def _lowest(self) -> torch.Tensor:
        lowest = torch.where(self._visited & self._in_window, self._s, torch.inf).min()
        return torch.where(lowest.isinf(), 0.0, lowest)

    def _set_outside_beta(self, beta: float) -> None:
        """Set |beta| outside the window, in units of 1 / z, which leads walkers to the window."""
        self._outside_beta = beta
        penalty = OUTSIDE_PENALTY + beta * self._distance.abs()
        self._penalty = torch.where(self._in_window, 0.0, penalty)
        self._slope_outside = beta * self._distance.sign()

    def _refresh(self) -> None:
        """Recompute the tables of log-weights and slopes from S."""
        self._host = None
        s = torch.where(self._visited, self._s, torch.where(self._in_window, self._lowest(), 0.0))
        slope = (s[self._high] - s[self._low]) / self._reach
        if self.learning:
            self._table = -s - self._penalty
            self._slope = torch.where(self._in_window, slope, self._slope_outside)
        else:
            inside = torch.where(self._in_window, -s, -torch.inf)
            self._table, self._slope = inside - inside.max(), slope
