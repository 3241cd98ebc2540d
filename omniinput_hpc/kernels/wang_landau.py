"""The Wang-Landau ensemble, on the walkers' device: log-weights by bin, and learning them.

Wang & Landau (2001): S(z) grows by ln f at every output that a move ends at, rejected moves
included. Learning happens in burn-in only; what is counted afterwards is sampled with S frozen and
reweighted like any other rung, so that no error of S enters a result.
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
"""Log-weight lost by leaving the window while learning: no walker does, those outside come in."""
FIRST_OUTSIDE_PENALTY = 20.0
"""Log-weight lost at first across the whole range of the bins, which leads walkers in."""
BETA_GROWTH, MAX_BETA_GROWTH = 1.5, 1e4
"""Factor by which |beta| outside the window grows while most walkers are there; its maximum."""
RARE_SHARE = 0.05
"""The share of the known bins that may be rarer than flatness allows (schedule "1/t")."""
FIRST_RISE = 0.1
"""What a move of all walkers may add to S, on average over the window's bins. They share S: more
would pile it up for as long as they take to travel to other bins."""
CALM_BETA = -0.1
"""The proposal's beta where a directional walker's bin is not flat yet (docs/papers.md: way 2).
The papers' is 0.1, and leads to larger outputs: the sign is theirs reversed, as of every beta."""


@dataclass(frozen=True)
class LearningState:
    """What learning resumes from.

    Attributes
    ----------
    entropy : float64 [B + 2], S of each entry of the table; NaN where never visited
    visits : float64 [B + 2], the present histogram
    learning : float64 [6], ln f, the schedule's ln f, moves, whether the histogram was ever flat,
        whether the weights are frozen, and the |beta| outside the window
    """

    entropy: NDArray[np.float64]
    visits: NDArray[np.float64]
    learning: NDArray[np.float64]


def first_headings(n_walkers: int) -> NDArray[np.int8]:
    """Return where walkers head at first, int8 [W]: every other one to larger outputs."""
    return np.where(np.arange(n_walkers) % 2, -1, 1).astype(np.int8)


class WangLandauEnsemble:
    """Log-weights of a rung's bins as tensors, and the numbers of learning them.

    Parameters
    ----------
    edges : float64 [B + 1]
    window : bins [first, end) that the rung samples once its weights are frozen
    options : of ``[wang_landau]``
    device : where the walkers are
    n_walkers : how many share S

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
        self._distance = (above - below) * width  # in z; below the window it is negative
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
        """Return each output's entry of the table, int64 [W]: `histogram.bin_of` plus 1."""
        z = z.double()
        entry = torch.bucketize(z, self._edges, right=True)
        in_last: torch.Tensor = z == self._edges[-1]
        inside: torch.Tensor = entry - in_last.long()
        return inside

    def log_weight(self, z: torch.Tensor) -> torch.Tensor:
        """Return -S of each output's bin, float64 [W]; -inf outside the window once frozen."""
        return self._table[self.bin(z)]

    def slope(self, z: torch.Tensor) -> torch.Tensor:
        """Return what takes beta's place in a gradient kernel's proposal, float64 [W]."""
        if self._beta is not None:
            beta: torch.Tensor = self._beta.expand(len(z))
            return beta
        slope: torch.Tensor = self._slope[self.bin(z)]
        return slope

    def begin_segment(self, stream: DeviceStream, n_walkers: int) -> None:
        """Draw the directional walkers' directions, unless they keep them."""
        options = self._options
        if options.proposal == "directional" and self.learning and not options.keeps_direction:
            sign = stream.uniform(n_walkers) < 0.5
            self._gamma = torch.where(sign, -1.0, 1.0)

    def begin_move(self, stream: DeviceStream, z: torch.Tensor) -> None:
        """Draw the proposal's beta where it is no slope; forward and backward share it.

        The directional way looks at the histogram, so that its transition probabilities are not
        fixed: it is used while learning only (docs/papers.md). Later its beta has either sign, or
        that of the walker's direction.
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
        if not self.learning and not kept:  # both directions alike: nothing flips them any more
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
        """Return the signs of beta, [W], after turning round at the extremes of what is known.

        entry : int64 [W], see `bin`

        While learning, walkers at an extreme head for the other one from then on. With frozen
        weights all of them there reverse their direction, whichever it is: z and direction together
        are then mapped one to one, so that both directions stay equally likely at every z. (What
        merely heads inwards would empty one direction of the states at the extreme, which no move
        fills again: the ensemble would not be invariant.)
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
        """Return where each walker heads, int8 [W]: 1 to larger outputs, -1 to smaller ones.

        For ``direction = "kept"`` only (synchronizes).
        """
        assert self._gamma is not None
        return np.where(self._gamma.cpu().numpy() < 0, 1, -1).astype(np.int8)

    def set_headings(self, heading_w: NDArray[np.int8]) -> None:
        """Let walkers head for where `headings` said."""
        gamma = torch.from_numpy(-heading_w.astype(np.float32))
        self._gamma = gamma.to(self._device)

    def after_move(self, z: torch.Tensor) -> None:
        """Learn from where all walkers are after a move, rejected or not. No synchronization.

        A new bin starts with the lowest S of those visited, and flatness starts anew. Outside
        the window S always grows by the first ln f, so that walkers which wait there come in
        however far the learning inside has come.
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
        """Lower ln f where the histogram is flat, cool walkers into the window (synchronizes).

        Outside the window walkers are sampled as by a canonical ensemble, whose |beta| grows as
        long as most of them are there.

        Schedule "1/t" follows Belardinelli & Pereyra, Phys. Rev. E 75, 046701 (2007): halving
        first, then bins / moves, which falls more slowly: halving alone ends before the errors
        have died out. One known bin in twenty may be rarer than flatness allows, since bins of a
        few inputs would hold up all others.
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
        if self.ln_f <= self._options.ln_f_last:
            self.freeze()

    def freeze(self) -> None:
        """End learning: from here on the weights are fixed, and -inf outside the window."""
        if self.learning:
            self.learning, self._beta = False, None
            if not self._options.keeps_direction:
                self._gamma = None
            self._refresh()

    @property
    def reached(self) -> bool:
        """Whether learning came to its end by itself."""
        return self.ln_f <= self._options.ln_f_last

    @property
    def beta(self) -> float:
        """Not a number: no temperature."""
        return np.nan

    def on_host(self) -> Tabulated:
        """Return the present log-weights as an ensemble of the host (synchronizes if changed)."""
        if self._host is None:
            table = self._table.cpu().numpy().copy()
            self._host = Tabulated(self._host_edges, self._window, table)
        return self._host

    def learning_state(self) -> LearningState:
        """Return what `restore` takes."""
        s = torch.where(self._visited, self._s, torch.nan)
        moves, frozen = float(self._moves), not self.learning
        learning = [self.ln_f, self._schedule, moves, self._ever_flat, frozen, self._outside_beta]
        return LearningState(
            s.cpu().numpy(), self._h.cpu().numpy(), np.array(learning, dtype=np.float64)
        )

    def restore(self, state: LearningState) -> None:
        """Continue from what `learning_state` gave."""
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
        """Set |beta| outside the window, in 1 / z, which leads walkers towards it."""
        self._outside_beta = beta
        penalty = OUTSIDE_PENALTY + beta * self._distance.abs()
        self._penalty = torch.where(self._in_window, 0.0, penalty)
        self._slope_outside = beta * self._distance.sign()

    def _refresh(self) -> None:
        """Make the tables of log-weights and slopes from S."""
        self._host = None
        s = torch.where(self._visited, self._s, torch.where(self._in_window, self._lowest(), 0.0))
        slope = (s[self._high] - s[self._low]) / self._reach
        if self.learning:
            self._table = -s - self._penalty
            self._slope = torch.where(self._in_window, slope, self._slope_outside)
        else:
            inside = torch.where(self._in_window, -s, -torch.inf)
            self._table, self._slope = inside - inside.max(), slope
