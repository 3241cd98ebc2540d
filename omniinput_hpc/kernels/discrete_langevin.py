"""The discrete Langevin kernel: propose new values at all sites at once, by the gradient."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch.nn.functional import logsigmoid

from omniinput_hpc.config.kernels import STEP_SIZES
from omniinput_hpc.config.kernels import DiscreteLangevin as Options
from omniinput_hpc.kernels.parts import categorical, gradients
from omniinput_hpc.kernels.parts.categorical import draw_by_blocks
from omniinput_hpc.kernels.parts.device_rng import DeviceStream
from omniinput_hpc.kernels.parts.gradients import Gradient
from omniinput_hpc.kernels.state import Info, State, Untuned, accept, decide
from omniinput_hpc.models import Model
from omniinput_hpc.tempering.ensembles import Canonical, Ensemble

TARGET_ACCEPTANCE = 0.574
"""Acceptance rate to tune for, the optimum of continuous Langevin (Roberts & Rosenthal 1998)."""


@dataclass(frozen=True)
class Sums:
    """Sums of exp(score) of the proposal from x, over blocks of the values of each site.

    Attributes
    ----------
    sums : [W, D, n_blocks], sums of exp(score - largest); see `categorical.block_sums`
    largest : [W, D], the largest score of each site
    """

    sums: torch.Tensor
    largest: torch.Tensor

    def log_sum(self) -> torch.Tensor:
        """Return ln of the sum of exp(score) over the values of each site, float64 [W, D]."""
        return self.sums.sum(dim=-1, dtype=torch.float64).log() + self.largest


@dataclass(frozen=True)
class LangevinCache:
    """The gradient at x, and the sums of the proposal from x.

    Attributes
    ----------
    made_for : (beta, step size) for which `sums` was computed; None if the slope is not constant
    sums : None if not computed
    """

    gradient: Gradient
    made_for: tuple[float, float] | None = None
    sums: Sums | None = None


class DiscreteLangevin(Untuned):
    """Propose all sites at once, each by the gradient and a penalty for distant values.

    q(x' | x) is a product over sites of q_i(v) proportional to
    exp(-b/2 (g[i, v] - g[i, x_i]) - d(v, x_i) / (2 alpha)). For ordered values (grey levels)
    d = (v - x_i)^2; for unordered ones (tokens) d = 1 at every other value. These are eq. 3 and 4
    of Zhang et al. (2022). All sites are accepted together by Metropolis-Hastings.

    b is the slope of the ensemble, taken at z for the proposal and at z' for its reverse. With
    ``proposal_beta``, b is drawn uniformly from a range for each move, independently of the state
    and the same in both directions. A move takes one forward and one backward pass of the model.
    Sites with two values flip by a logistic function of their scores, without sums over values.
    Under a law q, the gradient of b z - ln q takes the place of b g.

    Attributes
    ----------
    tuned : float64 [2], the step size alpha and how often it has been adapted
    """

    def __init__(self, options: Options, model: Model, n_walkers: int) -> None:
        self._model = gradients.Differentiable(model, options.name)
        self._ordered, self._range = options.ordered, options.proposal_beta
        self.tuned = np.array([options.step_size, 0.0])
        self.parts, self._binary = options.part_names, model.n_values == 2
        self.uniforms_per_move = n_walkers * (model.n_sites + 1)

    def start(self, x: torch.Tensor, z: torch.Tensor) -> State:
        """Return the state of walkers, with the gradient at x."""
        gradient = self._model.evaluate_again(x, z)
        return State(x, z, LangevinCache(gradient))

    def step(self, state: State, ensemble: Ensemble, stream: DeviceStream) -> tuple[State, Info]:
        """Move every walker once."""
        x, z, cached = state.x, state.z, state.cache
        drawn = self._draw_slope(z, stream)
        slope = ensemble.slope(z.double()) if drawn is None else drawn  # [W]
        force, slope = self._model.force(cached.gradient, slope)
        key = None  # only a canonical slope is constant: others change with z or while learning
        if isinstance(ensemble, Canonical) and drawn is None and not self._binary:
            key = (float(ensemble.beta), float(self.tuned[0]))
        sums = cached.sums
        if sums is None or key is None or cached.made_for != key:
            sums = self._sums(force, x, slope)
        x_new, log_forward = self._propose(force, sums, x, slope, stream.uniform(*x.shape))
        z_new, gradient = self._model.evaluate(x_new)
        slope_new = ensemble.slope(z_new.double()) if drawn is None else drawn
        force_new, slope_new = self._model.force(gradient, slope_new)
        sums_new = self._sums(force_new, x_new, slope_new)
        log_backward = self._log_probability(force_new, sums_new, x_new, slope_new, x)
        self._model.watch(x, log_forward)
        self._model.watch(x_new, log_backward)
        log_ratio = log_backward - log_forward
        log_ratio = log_ratio + self._model.log_q_ratio(z, cached.gradient, z_new, gradient)
        accepted = decide(ensemble, z, z_new, log_ratio, stream.uniform(len(x)))  # [W]
        kept = sums_new
        if sums_new is not None and sums is not None:
            kept = Sums(
                accept(accepted, sums_new.sums, sums.sums),
                accept(accepted, sums_new.largest, sums.largest),
            )
        moved = State(
            accept(accepted, x_new, x),
            accept(accepted, z_new, z),
            LangevinCache(gradient.where(accepted, cached.gradient), key, kept),
        )
        return moved, Info(accepted)

    def adapt(self, attempted_p: NDArray[np.int64], accepted_p: NDArray[np.int64]) -> None:
        """Move the step size towards the target acceptance, with falling gains (Robbins-Monro)."""
        if not attempted_p[0]:
            return
        alpha, times = self.tuned
        gain = 4.0 / (1.0 + times) ** 0.6
        alpha *= np.exp(gain * (accepted_p[0] / attempted_p[0] - TARGET_ACCEPTANCE))
        self.tuned = np.array([np.clip(alpha, *STEP_SIZES), times + 1])

    def _draw_slope(self, z: torch.Tensor, stream: DeviceStream) -> torch.Tensor | None:
        """Draw b of the proposal, float64 [W], from ``proposal_beta``; None without a range."""
        if self._range is None:
            return None
        low, high = self._range
        b = low + (high - low) * float(stream.shared_uniform(1)[0])
        return torch.full(z.shape, b, dtype=torch.float64, device=z.device)

    def _sums(self, gradient: Gradient, x: torch.Tensor, slope: torch.Tensor) -> Sums | None:
        """Return the sums of the proposal from x [W, D], given its gradient; None if V is 2."""
        if self._binary:
            return None
        parts = [
            categorical.block_sums(
                self._scores(gradient.rows(begin, end), x[:, begin:end], slope)  # [W, n, V]
            )
            for begin, end in self._model.chunks(x)
        ]
        sums, largest = zip(*parts, strict=True)
        return Sums(torch.cat(sums, dim=1), torch.cat(largest, dim=1))

    def _propose(
        self,
        gradient: Gradient,
        sums: Sums | None,
        x: torch.Tensor,
        slope: torch.Tensor,
        u: torch.Tensor,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Draw x' [W, D] with uniform numbers u [W, D]; return it and ln q(x' | x), float64 [W]."""
        x_new = torch.empty_like(x)
        log_q = torch.zeros(len(x), dtype=torch.float64, device=x.device)
        for begin, end in self._model.chunks(x):
            rows, old, u_part = gradient.rows(begin, end), x[:, begin:end], u[:, begin:end]
            if sums is None:
                score = self._flip_scores(rows, old, slope)
                flips = u_part < score.sigmoid()
                x_new[:, begin:end] = old ^ flips
                log_q += log_probability_of_flips(score, flips)
                continue

            def scores_at(
                index: torch.Tensor, rows: torch.Tensor = rows, old: torch.Tensor = old
            ) -> torch.Tensor:  # [W * n, m] both
                index = index.view(*old.shape, -1)
                return self._scores_at(rows, old, slope, index).flatten(0, 1)

            values, log_sums = draw_by_blocks(
                sums.sums[:, begin:end].flatten(0, 1),
                sums.largest[:, begin:end].flatten(),
                u_part.flatten(),
                rows.shape[-1],
                scores_at,
            )
            new = values.view(old.shape)
            x_new[:, begin:end] = new
            scores = self._scores_at(rows, old, slope, new[..., None])[..., 0]
            log_q += (scores - log_sums.view(old.shape)).sum(dim=1)
        return x_new, log_q

    def _log_probability(
        self,
        gradient: Gradient,
        sums: Sums | None,
        x: torch.Tensor,
        slope: torch.Tensor,
        to: torch.Tensor,
    ) -> torch.Tensor:
        """Return ln q(to | x), float64 [W], given the gradient at x and the proposal sums."""
        log_q = torch.zeros(len(x), dtype=torch.float64, device=x.device)
        log_sums = None if sums is None else sums.log_sum()  # [W, D]
        for begin, end in self._model.chunks(x):
            rows, old, new = gradient.rows(begin, end), x[:, begin:end], to[:, begin:end]
            if log_sums is None:
                score = self._flip_scores(rows, old, slope)
                log_q += log_probability_of_flips(score, old != new)
                continue
            scores = self._scores_at(rows, old, slope, new[..., None])[..., 0]
            log_q += (scores - log_sums[:, begin:end]).sum(dim=1)
        return log_q

    def _flip_scores(
        self, rows: torch.Tensor, value: torch.Tensor, slope: torch.Tensor
    ) -> torch.Tensor:
        """Return ln q_i(other) - ln q_i(x_i), [W, n], given gradient rows [W, n, 2]."""
        half = (-0.5 * slope).to(rows.dtype)[:, None]
        rise = rows[..., 1].sub(rows[..., 0]).mul_(half)  # score of value 1 minus that of value 0
        score = torch.where(value == 0, rise, -rise)
        return score.sub_(0.5 / float(self.tuned[0]))

    def _scores(self, rows: torch.Tensor, value: torch.Tensor, slope: torch.Tensor) -> torch.Tensor:
        """Return unnormalized ln q_i(v), [W, n, V], given x_i (`value`) [W, n] and b [W]."""
        value = value[..., None]  # [W, n, 1]
        penalty = 0.5 / float(self.tuned[0])
        half = (-0.5 * slope).to(rows.dtype)[:, None, None]
        scores = (rows - rows.gather(-1, value)).mul_(half)
        if self._ordered:
            values = torch.arange(rows.shape[-1], dtype=rows.dtype, device=rows.device)
            return scores.sub_((values - value.to(rows.dtype)).square_(), alpha=penalty)
        # A bonus for the present value gives the same ratios as a penalty on all other values.
        return scores.scatter_(-1, value, penalty)

    def _scores_at(
        self, rows: torch.Tensor, value: torch.Tensor, slope: torch.Tensor, index: torch.Tensor
    ) -> torch.Tensor:
        """Return the `_scores` of the values `index` [W, n, m] of each site, [W, n, m]."""
        value = value[..., None]  # [W, n, 1]
        penalty = 0.5 / float(self.tuned[0])
        half = (-0.5 * slope).to(rows.dtype)[:, None, None]
        scores = (rows.gather(-1, index) - rows.gather(-1, value)).mul_(half)
        if self._ordered:
            return scores.sub_((index - value).to(rows.dtype).square_(), alpha=penalty)
        return scores.masked_fill_(index == value, penalty)


def log_probability_of_flips(score: torch.Tensor, flips: torch.Tensor) -> torch.Tensor:
    """Return the sum over sites of ln P(flip) or ln P(stay), float64 [W].

    score : ln P(flip) - ln P(stay), [W, n]; flips : bool [W, n], whether each site flips
    """
    return logsigmoid(torch.where(flips, score, -score)).sum(dim=1, dtype=torch.float64)
