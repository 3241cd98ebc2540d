"""Gibbs with gradients: draw one site and its value by changes of z that the gradient predicts."""

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
class GibbsCache:
    """The gradient at x, and the distribution of sites in the proposal.

    Attributes
    ----------
    beta : beta of the canonical ensemble for which log_s was computed; None for other ensembles
    log_s : float64 [W, D], ln of the sum of each site's weights over values; None if not computed
    """

    gradient: Gradient
    beta: float | None = None
    log_s: torch.Tensor | None = None


class GibbsWithGradients(Untuned):
    """Propose from q(i, v | x) proportional to exp(-b/2 (g[i, v] - g[i, x_i])), v other than x_i.

    This is eq. 7 of Grathwohl et al. (2021). b is the slope of the ensemble, taken at z for the
    proposal and at z' for its reverse; for a canonical ensemble it is beta. The site is drawn
    first, by its sum over values, and then the value. The move is accepted by Metropolis-Hastings.
    Under a law q, the gradient of b z - ln q takes the place of b g.
    It takes one forward and one backward pass of the model.

    With ``proposal = "site"`` the site is uniform and q(v | x) proportional to exp(-b g[i, v]), v =
    x_i included: an approximate Gibbs update, the proposal of MHIS (Wu & Hilton,
    arXiv 2410.13211). The square root above proposes far too many values that are rare under q, if
    there are thousands of them.
    """

    def __init__(self, options: Options, model: Model, n_walkers: int) -> None:
        super().__init__()
        self._model = gradients.Differentiable(model, options.name)
        self.parts = options.part_names
        self._n_sites, self._by_site = model.n_sites, options.proposal == "site"
        self.uniforms_per_move = 3 * n_walkers

    def start(self, x: torch.Tensor, z: torch.Tensor) -> State:
        """Return the state of walkers, with the gradient at x."""
        gradient = self._model.evaluate_again(x, z)
        return State(x, z, GibbsCache(gradient))

    def step(self, state: State, ensemble: Ensemble, stream: DeviceStream) -> tuple[State, Info]:
        """Move every walker once."""
        if self._by_site:
            return self._redraw_site(state, ensemble, stream)
        x, z, cached = state.x, state.z, state.cache
        slope = ensemble.slope(z.double())  # [W]
        # Only a canonical slope is constant: that of a Wang-Landau ensemble changes while learning.
        beta = ensemble.beta if isinstance(ensemble, Canonical) else None
        force, slope = self._model.force(cached.gradient, slope)
        log_s = cached.log_s
        if log_s is None or beta is None or cached.beta != beta:
            log_s = self._log_site_weights(force, x, slope)  # [W, D]
        site = draw(log_s, stream.uniform(len(x)))  # [W]
        old = pick(x, site)
        scores = self._scores(force.at(site), old, slope)  # [W, V]
        new = draw(scores, stream.uniform(len(x)))  # [W]
        log_forward = pick(scores, new) - log_sum(log_s)

        x_new = x.scatter(1, site[:, None], new[:, None])
        z_new, gradient = self._model.evaluate(x_new)
        force_new, slope_new = self._model.force(gradient, ensemble.slope(z_new.double()))
        log_s_new = self._log_site_weights(force_new, x_new, slope_new)
        scores_back = self._scores(force_new.at(site), new, slope_new)
        log_backward = pick(scores_back, old) - log_sum(log_s_new)

        self._model.watch(x, log_forward)
        self._model.watch(x_new, log_backward)
        log_ratio = log_backward - log_forward
        log_ratio = log_ratio + self._model.log_q_ratio(z, cached.gradient, z_new, gradient)
        accepted = decide(ensemble, z, z_new, log_ratio, stream.uniform(len(x)))  # [W]
        log_s = accept(accepted, log_s_new, log_s)
        cache = GibbsCache(gradient.where(accepted, cached.gradient), beta, log_s)
        moved = State(accept(accepted, x_new, x), accept(accepted, z_new, z), cache)
        return moved, Info(accepted)

    def _redraw_site(
        self, state: State, ensemble: Ensemble, stream: DeviceStream
    ) -> tuple[State, Info]:
        """Redraw a random site of every walker from exp(-b g[i, v]), the old value included."""
        x, z, gradient = state.x, state.z, state.cache.gradient
        site = self._random_site(stream, len(x))
        old = pick(x, site)
        rows = self._site_rows(gradient, site, ensemble.slope(z.double()))
        new = draw(rows, stream.uniform(len(x)))
        log_ratio = log_sum(rows) - pick(rows, new)
        self._model.watch(x, log_ratio)

        x_new = x.scatter(1, site[:, None], new[:, None])
        z_new, gradient_new = self._model.evaluate(x_new)
        rows = self._site_rows(gradient_new, site, ensemble.slope(z_new.double()))
        log_ratio += pick(rows, old) - log_sum(rows)
        self._model.watch(x_new, log_ratio)
        log_ratio = log_ratio + self._model.log_q_ratio(z, gradient, z_new, gradient_new)
        accepted = decide(ensemble, z, z_new, log_ratio, stream.uniform(len(x)))
        cache = GibbsCache(gradient_new.where(accepted, gradient))
        moved = State(accept(accepted, x_new, x), accept(accepted, z_new, z), cache)
        return moved, Info(accepted & (new != old))

    def _random_site(self, stream: DeviceStream, n: int) -> torch.Tensor:
        """Return a site of each of n walkers, int64 [n]."""
        return (stream.uniform(n) * self._n_sites).long()

    def _site_rows(
        self, gradient: Gradient, site: torch.Tensor, slope: torch.Tensor
    ) -> torch.Tensor:
        """Return -b g of one site of each walker, [W, V]."""
        force, slope = self._model.force(gradient, slope)
        rows = force.at(site)
        return rows * -slope.to(rows.dtype)[:, None]

    def _log_site_weights(
        self, gradient: Gradient, x: torch.Tensor, slope: torch.Tensor
    ) -> torch.Tensor:
        """Return ln of the sum over v of exp(scores) for every site, float64 [W, D]."""
        log_weights = [
            log_sum(self._scores(gradient.rows(begin, end), x[:, begin:end], slope[:, None]))
            for begin, end in self._model.chunks(x)
        ]
        return torch.cat(log_weights, dim=1)

    @staticmethod
    def _scores(rows: torch.Tensor, value: torch.Tensor, slope: torch.Tensor) -> torch.Tensor:
        """Return -b/2 (g[v] - g[x_i]), -inf at v = x_i, [..., V]; x_i (`value`) and b are [...]."""
        value = value[..., None]
        half = (-0.5 * slope).to(rows.dtype)[..., None]
        return (rows - rows.gather(-1, value)).mul_(half).scatter_(-1, value, -torch.inf)
