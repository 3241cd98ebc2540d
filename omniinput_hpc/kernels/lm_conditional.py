"""Moves of an autoregressive model by its own conditionals: forward only, no gradient."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from omniinput_hpc.config import LmConditional as Options
from omniinput_hpc.ensembles import Canonical, Ensemble
from omniinput_hpc.kernels import conditionals
from omniinput_hpc.kernels.acceptance import accept, decide
from omniinput_hpc.kernels.categorical import draw, log_sum, pick
from omniinput_hpc.kernels.conditionals import Conditionals
from omniinput_hpc.kernels.device_stream import DeviceStream
from omniinput_hpc.kernels.schedule import Schedule, Stretch
from omniinput_hpc.kernels.state import Info, State
from omniinput_hpc.kernels.untuned import Untuned
from omniinput_hpc.models import Model


@dataclass(frozen=True)
class Cache:
    """What is known at x, for every site.

    Attributes
    ----------
    beta : of the canonical ensemble that log_z was computed for, b = beta / m; else None
    log_p : [W, D], l[t, x_t], 0 at sites that are not predicted
    log_z : float64 [W, D], ln Z_t: of the sum over v of exp(b l[t, v])
    """

    beta: float | None
    log_p: torch.Tensor
    log_z: torch.Tensor


@dataclass(frozen=True)
class Proposal:
    """Rewritten inputs.

    Attributes
    ----------
    x : int64 [W, D]
    known : at x; where the ensemble is not canonical, its log_z holds only what was drawn
    old_row : conditionals before the first rewritten site, where they will be wanted once more
    """

    x: torch.Tensor
    known: Cache
    old_row: Conditionals | None


class LmConditional(Untuned):
    """Redraw a stretch of sites i..j, token by token, from exp(b l[t, .]) / Z_t.

    The log-probability of the stretch is the sum over it of b l[t, x'_t] - log Z_t(x'); way back
    it is that of the old values. With the ensemble's weights their ratio is Metropolis and
    Hastings's. For a canonical ensemble, b = beta / m and z the mean over m predicted sites, it is
    that of configurational-bias Monte Carlo (Siepmann & Frenkel 1992) with all values as trials:

    log a = sum over t = i+1..j of [log Z_t(x') - log Z_t(x)]
            + b * sum over t > j of [l_t(x_t | x'_<t) - l_t(x_t | x_<t)].

    For others b is the ensemble's slope / m, at z forward and at z' backward. Sites that are not
    predicted are drawn uniformly. A flip puts a uniform other value at one site. Which stretch is
    drawn independently of the state, and shared by all walkers.
    """

    def __init__(self, options: Options, model: Model, n_walkers: int) -> None:
        super().__init__()
        conditionals.require_conditionals(model, options.name)
        self._model = model
        self._first = int(getattr(model, "predicted_from", 1))
        self._schedule = Schedule(options, model.n_sites)
        self.parts = options.part_names
        self._flip = self.parts.index("flip")
        self.uniforms_per_move = n_walkers * (model.n_sites // 2 + 1)

    def start(self, x: torch.Tensor, z: torch.Tensor) -> State:
        """Return the state of walkers; what is cached needs the ensemble and comes with a step."""
        return State(x, z)

    def step(self, state: State, ensemble: Ensemble, stream: DeviceStream) -> tuple[State, Info]:
        """See `omniinput_hpc.kernels.Kernel`."""
        x, z = state.x, state.z
        stretch = self._schedule.draw(stream.choices(3))
        beta = ensemble.beta if isinstance(ensemble, Canonical) else None
        b = self._exponent(ensemble, z)  # [W]
        known = state.cache
        if known is None or known.beta != beta:
            known = self._evaluate(x, b, beta)
        new = self._propose(x, b, known, stretch, stream)
        z_new = self._output(new.known.log_p, z.dtype)
        self._watch(new.x, z_new)
        log_forward = self._log_q(new.known, b, stretch)
        if beta is not None:
            log_backward = self._log_q(known, b, stretch)
        else:
            b_new = self._exponent(ensemble, z_new)
            log_backward = self._log_q(
                self._look_back(x, known, new, b_new, stretch), b_new, stretch
            )
        u = stream.uniform(len(x))
        accepted = decide(ensemble, z, z_new, log_backward - log_forward, u)
        cache = Cache(
            beta,
            accept(accepted, new.known.log_p, known.log_p),
            accept(accepted, new.known.log_z, known.log_z),
        )
        moved = State(accept(accepted, new.x, x), accept(accepted, z_new, z), cache)
        return moved, Info(accepted, stretch.part)

    def _exponent(self, ensemble: Ensemble, z: torch.Tensor) -> torch.Tensor:
        """Return b, float64 [W]."""
        slope: torch.Tensor = ensemble.slope(z.double())
        return slope / (self._model.n_sites - self._first)

    def _output(self, log_p: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
        """Return z [W] from l at the values that are there, [W, D]."""
        return -log_p[:, self._first :].mean(dim=1, dtype=torch.float64).to(dtype)

    def _watch(self, x: torch.Tensor, z: torch.Tensor) -> None:
        watch = getattr(self._model, "watch", None)
        if watch is not None:
            watch(x, z)

    def _evaluate(self, x: torch.Tensor, b: torch.Tensor, beta: float | None) -> Cache:
        """Return what is known at x, from one evaluation of the model."""
        _, rows = self._model.conditional_logits(x)  # type: ignore[attr-defined]
        log_p = torch.zeros(x.shape, dtype=rows.dtype, device=x.device)
        log_z = torch.zeros(x.shape, dtype=torch.float64, device=x.device)
        for t in range(self._first, x.shape[1]):
            exponent = b if beta is not None else None
            self._note(rows[:, t], x[:, t], exponent, log_p[:, t], log_z[:, t])
        return Cache(beta, log_p, log_z)

    def _note(
        self,
        row: torch.Tensor,
        value: torch.Tensor,
        b: torch.Tensor | None,
        log_p: torch.Tensor,
        log_z: torch.Tensor,
    ) -> None:
        """Write down l at a site's value, and ln Z for b, into [W] each."""
        log_p.copy_(pick(row, value))
        if b is not None:
            log_z.copy_(log_sum(scores_of(row, b)))

    def _propose(
        self,
        x: torch.Tensor,
        b: torch.Tensor,
        known: Cache,
        stretch: Stretch,
        stream: DeviceStream,
    ) -> Proposal:
        """Rewrite a stretch, and evaluate what follows it."""
        x_new, log_p, log_z = x.clone(), known.log_p.clone(), known.log_z.clone()
        ahead = conditionals.begin(self._model, x, stretch.begin)
        old_row, canonical = None, known.beta is not None
        if not canonical and stretch.part != self._flip:
            old_row = ahead.fork()
        for t in range(stretch.begin, stretch.end):
            u = stream.uniform(len(x))
            row = ahead.row() if t >= self._first else None
            if stretch.part == self._flip:
                shift = 1 + (u * (self._model.n_values - 1)).long()
                x_new[:, t] = (x[:, t] + shift) % self._model.n_values
            elif row is None:
                x_new[:, t] = (u * self._model.n_values).long()
            else:
                x_new[:, t] = draw(scores_of(row, b), u)
            if row is not None:
                self._note(row, x_new[:, t], b, log_p[:, t], log_z[:, t])
            if t + 1 < stretch.end:
                ahead.extend(x_new[:, t])
        if stretch.end < x.shape[1]:
            rows = ahead.rows_after(x_new[:, stretch.end - 1 : -1])  # [W, k, V]
            for t in range(max(stretch.end, self._first), x.shape[1]):
                row = rows[:, t - stretch.end]
                self._note(row, x[:, t], b if canonical else None, log_p[:, t], log_z[:, t])
        return Proposal(x_new, Cache(known.beta, log_p, log_z), old_row)

    def _look_back(
        self, x: torch.Tensor, known: Cache, new: Proposal, b: torch.Tensor, stretch: Stretch
    ) -> Cache:
        """Return what is known at the old x with ln Z for another exponent b, on the stretch."""
        log_z = torch.zeros_like(known.log_z)
        if new.old_row is not None:
            for t in range(stretch.begin, stretch.end):
                if t >= self._first:
                    log_z[:, t] = log_sum(scores_of(new.old_row.row(), b))
                if t + 1 < stretch.end:
                    new.old_row.extend(x[:, t])
        return Cache(known.beta, known.log_p, log_z)

    def _log_q(self, known: Cache, b: torch.Tensor, stretch: Stretch) -> torch.Tensor:
        """Return ln of the probability of drawing the stretch, float64 [W], less constants."""
        some = slice(max(stretch.begin, self._first), stretch.end)
        if stretch.part == self._flip or some.start >= some.stop:
            return torch.zeros_like(b)
        drawn = known.log_p[:, some] * b.to(known.log_p.dtype)[:, None]
        return (drawn.double() - known.log_z[:, some]).sum(dim=1)


def scores_of(row: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """Return b l, [W, n_values], for l [W, n_values] and b [W]; what l forbids stays forbidden."""
    return (row * b.to(row.dtype)[:, None]).masked_fill_(row == -torch.inf, -torch.inf)
