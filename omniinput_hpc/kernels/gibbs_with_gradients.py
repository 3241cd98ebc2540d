"""Gibbs with gradients: one site and its value, drawn by what the gradient promises."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from omniinput_hpc.config.kernels import GibbsWithGradients as Options
from omniinput_hpc.kernels.parts import gradients
from omniinput_hpc.kernels.parts.categorical import draw, log_sum, pick
from omniinput_hpc.kernels.parts.device_rng import DeviceStream
from omniinput_hpc.kernels.parts.gradients import Gradient
from omniinput_hpc.kernels.state import Info, State, Untuned, accept, decide
from omniinput_hpc.models import Model
from omniinput_hpc.tempering.ensembles import Canonical, Ensemble


@dataclass(frozen=True)
class Cache:
    """What is known at x.

    Attributes
    ----------
    gradient : of z
    beta : of the canonical ensemble that log_s was computed for; else None
    log_s : float64 [W, D], ln of each site's share of the proposal at x; None where not known
    """

    gradient: Gradient
    beta: float | None = None
    log_s: torch.Tensor | None = None


class GibbsWithGradients(Untuned):
    """Propose from q(i, v | x) proportional to exp(-b/2 (g[i, v] - g[i, x_i])), v other than x_i.

    Grathwohl et al. (2021), eq. 7, with b the ensemble's slope at z (beta where it is canonical):
    at x forward, at x' backward. Corrected by Metropolis and Hastings. The site is drawn first
    (by its sum over values), then the value. One forward and one backward of the model a move.
    """

    def __init__(self, options: Options, model: Model, n_walkers: int) -> None:
        super().__init__()
        gradients.require_gradient(model, options.name)
        self._model = model
        self.parts = options.part_names
        self.uniforms_per_move = 3 * n_walkers

    def start(self, x: torch.Tensor, z: torch.Tensor) -> State:
        """Return the state of walkers with the gradient at x."""
        _, gradient = gradients.evaluate(self._model, x)
        return State(x, z, Cache(gradient))

    def step(self, state: State, ensemble: Ensemble, stream: DeviceStream) -> tuple[State, Info]:
        """See `omniinput_hpc.kernels.Kernel`."""
        x, z, kept = state.x, state.z, state.cache
        slope = ensemble.slope(z.double())  # [W]
        # Another ensemble's slope at the same z may differ when it is asked again: it learns.
        beta = ensemble.beta if isinstance(ensemble, Canonical) else None
        log_s = kept.log_s
        if log_s is None or beta is None or kept.beta != beta:
            log_s = self._log_shares(kept.gradient, x, slope)  # [W, D]
        site = draw(log_s, stream.uniform(len(x)))  # [W]
        old = pick(x, site)
        scores = self._scores(kept.gradient.at(site), old, slope)  # [W, V]
        new = draw(scores, stream.uniform(len(x)))  # [W]
        log_forward = pick(scores, new) - log_sum(log_s)

        x_new = x.scatter(1, site[:, None], new[:, None])
        z_new, gradient = gradients.evaluate(self._model, x_new)
        slope_new = ensemble.slope(z_new.double())
        log_s_new = self._log_shares(gradient, x_new, slope_new)
        scores_back = self._scores(gradient.at(site), new, slope_new)
        log_backward = pick(scores_back, old) - log_sum(log_s_new)

        u = stream.uniform(len(x))
        accepted = decide(ensemble, z, z_new, log_backward - log_forward, u)  # [W]
        shares = accept(accepted, log_s_new, log_s)
        cache = Cache(gradient.where(accepted, kept.gradient), beta, shares)
        moved = State(accept(accepted, x_new, x), accept(accepted, z_new, z), cache)
        return moved, Info(accepted)

    def _log_shares(self, gradient: Gradient, x: torch.Tensor, slope: torch.Tensor) -> torch.Tensor:
        """Return ln of the sum over v of exp(scores), for every site: float64 [W, D]."""
        shares = [
            log_sum(self._scores(gradient.rows(begin, end), x[:, begin:end], slope[:, None]))
            for begin, end in gradients.chunks(x.shape, self._model.n_values)
        ]
        return torch.cat(shares, dim=1)

    @staticmethod
    def _scores(rows: torch.Tensor, value: torch.Tensor, slope: torch.Tensor) -> torch.Tensor:
        """Return -b/2 (g[v] - g[x_i]), -inf at v = x_i: [..., V], with x_i and b [...]."""
        value = value[..., None]
        half = (-0.5 * slope).to(rows.dtype)[..., None]
        return ((rows - rows.gather(-1, value)) * half).scatter_(-1, value, -torch.inf)
