"""Moves of an autoregressive model by its own conditionals: forward only, no gradient."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import torch
import torch.nn.functional as F

from omniinput_hpc.config.kernels import LmConditional as Options
from omniinput_hpc.kernels.parts import conditionals
from omniinput_hpc.kernels.parts.categorical import block_sums, draw_by_blocks, log_sum, pick
from omniinput_hpc.kernels.parts.conditionals import Conditionals
from omniinput_hpc.kernels.parts.device_rng import DeviceStream
from omniinput_hpc.kernels.parts.spans import Span, SpanSchedule
from omniinput_hpc.kernels.state import Info, State, Untuned, accept, decide
from omniinput_hpc.models import Model
from omniinput_hpc.models.checked import watch
from omniinput_hpc.tempering.ensembles import Canonical, Ensemble

CACHED = 1 << 17
"""Numbers, half a megabyte of float32, that are worked on at once on a CPU."""


@dataclass(frozen=True)
class Cache:
    """What is known at x, for every site.

    Attributes
    ----------
    beta : of the canonical ensemble that log_z was computed for, b = beta / m; else None
    log_p : [W, D], l[t, x_t], 0 at sites that are not predicted
    log_z : float64 [W, D], ln Z_t: of the sum over v of exp(b l[t, v])
    version : of the model's KV cache of x; 0 where it has none
    """

    beta: float | None
    log_p: torch.Tensor
    log_z: torch.Tensor
    version: int = 0


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
    """Redraw a span of sites i..j, token by token, from exp(b l[t, .]) / Z_t.

    The log-probability of the span is the sum over it of b l[t, x'_t] - log Z_t(x'); way back
    it is that of the old values. With the ensemble's weights their ratio is Metropolis and
    Hastings's. For a canonical ensemble, b = beta / m and z the mean over m predicted sites, it is
    that of configurational-bias Monte Carlo (Siepmann & Frenkel 1992) with all values as trials:

    log a = sum over t = i+1..j of [log Z_t(x') - log Z_t(x)]
            + b * sum over t > j of [l_t(x_t | x'_<t) - l_t(x_t | x_<t)].

    For others b is the ensemble's slope / m, at z forward and at z' backward. Sites that are not
    predicted are drawn uniformly. A flip puts a uniform other value at one site. Which span is
    drawn independently of the state, and shared by all walkers.
    """

    def __init__(self, options: Options, model: Model, n_walkers: int) -> None:
        super().__init__()
        conditionals.require_conditionals(model, options.name)
        self._model, self._kv_cache = model, conditionals.kv_cache_of(model, None, n_walkers)
        self._first = int(getattr(model, "predicted_from", 1))
        self._schedule = SpanSchedule(options, model.n_sites)
        self.parts = options.part_names
        self._flip = self.parts.index("flip")
        self.uniforms_per_move = n_walkers * (model.n_sites // 2 + 1)

    def start(self, x: torch.Tensor, z: torch.Tensor) -> State:
        """Return the state of walkers; what is cached needs the ensemble and comes with a step."""
        return State(x, z)

    def step(self, state: State, ensemble: Ensemble, stream: DeviceStream) -> tuple[State, Info]:
        """See `omniinput_hpc.kernels.Kernel`."""
        x, z = state.x, state.z
        span = self._schedule.draw(stream.choices(3))
        beta = ensemble.beta if isinstance(ensemble, Canonical) else None
        b = self._exponent(ensemble, z)  # [W]
        known = state.cache
        self._kv_cache = conditionals.kv_cache_of(self._model, self._kv_cache, len(x))
        if known is None or known.beta != beta or known.version != self._version:
            known = self._evaluate(x, b, beta)
        new = self._propose(x, b, known, span, stream)
        z_new = self._output(new.known.log_p, z.dtype)
        watch(self._model, new.x, z_new)
        log_forward = self._log_q(new.known, b, span)
        if beta is not None:
            log_backward = self._log_q(known, b, span)
        else:
            b_new = self._exponent(ensemble, z_new)
            log_backward = self._log_q(self._look_back(x, known, new, b_new, span), b_new, span)
        u = stream.uniform(len(x))
        accepted = decide(ensemble, z, z_new, log_backward - log_forward, u)
        if self._kv_cache is not None:
            self._kv_cache.accept(accepted)
        cache = Cache(
            beta,
            accept(accepted, new.known.log_p, known.log_p),
            accept(accepted, new.known.log_z, known.log_z),
            self._version,
        )
        moved = State(accept(accepted, new.x, x), accept(accepted, z_new, z), cache)
        return moved, Info(accepted, span.part)

    @property
    def _version(self) -> int:
        return 0 if self._kv_cache is None else int(self._kv_cache.version)

    def _exponent(self, ensemble: Ensemble, z: torch.Tensor) -> torch.Tensor:
        """Return b, float64 [W]."""
        slope: torch.Tensor = ensemble.slope(z.double())
        return slope / (self._model.n_sites - self._first)

    def _output(self, log_p: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
        """Return z [W] from l at the values that are there, [W, D]."""
        return -log_p[:, self._first :].mean(dim=1, dtype=torch.float64).to(dtype)

    def _evaluate(self, x: torch.Tensor, b: torch.Tensor, beta: float | None) -> Cache:
        """Return what is known at x, from one evaluation of the model."""
        blocks = conditionals.rows_of(self._model, self._kv_cache, x, self._first)
        exponent = b if beta is not None else None
        parts = [
            self._note(rows, x[:, some], exponent)
            for rows, some in self._placed(blocks, self._first)
        ]
        log_p, log_z = (torch.cat(columns, dim=1) for columns in zip(*parts, strict=True))
        unpredicted = (self._first, 0)
        log_p, log_z = F.pad(log_p, unpredicted), F.pad(log_z, unpredicted)
        return Cache(beta, log_p, log_z, self._version)

    def _placed(
        self, blocks: Iterable[torch.Tensor], t: int
    ) -> Iterator[tuple[torch.Tensor, slice]]:
        """Yield blocks of rows of l, [k, W, V], with their sites: t on, if they are predicted."""
        for rows in blocks:
            begin, t = t, t + len(rows)
            skipped = max(self._first - begin, 0)
            if skipped < len(rows):
                yield rows[skipped:], slice(begin + skipped, t)

    def _note(
        self, rows: torch.Tensor, values: torch.Tensor, b: torch.Tensor | None
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Return l at values [W, k], and ln Z for b (zeros without), of rows [k, W, V]: [W, k]."""
        log_p = pick(rows, values.T).T
        if b is None:
            return log_p, torch.zeros_like(log_p, dtype=torch.float64)
        return log_p, log_sums(rows, b).T

    def _propose(
        self,
        x: torch.Tensor,
        b: torch.Tensor,
        known: Cache,
        span: Span,
        stream: DeviceStream,
    ) -> Proposal:
        """Rewrite a span, and evaluate what follows it."""
        x_new, log_p, log_z = x.clone(), known.log_p.clone(), known.log_z.clone()
        ahead = conditionals.begin(self._model, self._kv_cache, x, span.begin)
        old_row, canonical = None, known.beta is not None
        if not canonical and span.part != self._flip:
            old_row = ahead.unchanged()
        for t in range(span.begin, span.end):
            u = stream.uniform(len(x))
            row = ahead.row() if t >= self._first else None
            if span.part == self._flip:
                shift = 1 + (u * (self._model.n_values - 1)).long()
                x_new[:, t] = (x[:, t] + shift) % self._model.n_values
                if row is not None:
                    log_z[:, t] = log_sums(row, b)
            elif row is None:
                x_new[:, t] = (u * self._model.n_values).long()
            else:
                x_new[:, t], log_z[:, t] = draw_scaled(row, b, u)
            if row is not None:
                log_p[:, t] = pick(row, x_new[:, t])
            if t + 1 < span.end:
                ahead.extend(x_new[:, t])
        if span.end < x.shape[1]:
            blocks = ahead.rows_after(x_new[:, span.end - 1 : -1])
            for rows, some in self._placed(blocks, span.end):
                log_p[:, some], log_z[:, some] = self._note(
                    rows, x[:, some], b if canonical else None
                )
        return Proposal(x_new, Cache(known.beta, log_p, log_z), old_row)

    def _look_back(
        self, x: torch.Tensor, known: Cache, new: Proposal, b: torch.Tensor, span: Span
    ) -> Cache:
        """Return what is known at the old x with ln Z for another exponent b, on the span."""
        log_z = torch.zeros_like(known.log_z)
        if new.old_row is not None:
            for t in range(span.begin, span.end):
                if t >= self._first:
                    log_z[:, t] = log_sums(new.old_row.row(), b)
                if t + 1 < span.end:
                    new.old_row.extend(x[:, t])
        return Cache(known.beta, known.log_p, log_z)

    def _log_q(self, known: Cache, b: torch.Tensor, span: Span) -> torch.Tensor:
        """Return ln of the probability of drawing the span, float64 [W], less constants."""
        some = slice(max(span.begin, self._first), span.end)
        if span.part == self._flip or some.start >= some.stop:
            return torch.zeros_like(b)
        drawn = known.log_p[:, some] * b.to(known.log_p.dtype)[:, None]
        return (drawn.double() - known.log_z[:, some]).sum(dim=1)


def may_forbid(b: torch.Tensor) -> bool:
    """Whether b l, b [W], must be made -inf where l is: for b of 0 and below it is not so itself.

    To ask would be to wait for a GPU: there the answer is yes.
    """
    return not b.is_cpu or bool((b <= 0).any())


def scores_of(rows: torch.Tensor, b: torch.Tensor, forbid: bool) -> torch.Tensor:
    """Return b l, [R, n], for l and b [R]; `forbid` as `may_forbid` says."""
    scores = rows * b.to(rows.dtype)[:, None]
    return scores.masked_fill_(rows == -torch.inf, -torch.inf) if forbid else scores


def log_sums(rows: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """Return ln of the sum of exp(b l) over values, float64 [..., W], of rows [..., W, V]."""
    flat, forbid = rows.reshape(-1, rows.shape[-1]), may_forbid(b)
    b = b.expand(rows.shape[:-1]).reshape(-1)
    parts = [log_sum(scores_of(flat[some], b[some], forbid)) for some in _slices(flat)]
    return torch.cat(parts).view(rows.shape[:-1])


def draw_scaled(
    row: torch.Tensor, b: torch.Tensor, u: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """Draw values from exp(b l) / Z; return them, int64 [W], and ln Z, float64 [W]."""
    forbid = may_forbid(b)
    parts = [block_sums(scores_of(row[some], b[some], forbid)) for some in _slices(row)]
    sums, largest = (torch.cat(of_slices) for of_slices in zip(*parts, strict=True))

    def scores_at(index: torch.Tensor) -> torch.Tensor:
        return scores_of(row.gather(1, index), b, forbid)

    return draw_by_blocks(sums, largest, u, row.shape[1], scores_at)


def _slices(rows: torch.Tensor) -> Iterator[slice]:
    """Yield runs of rows [n, V] that stay in a processor's cache from one operation to the next."""
    n, n_values = rows.shape
    width = max(1, CACHED // n_values) if rows.is_cpu else n
    for begin in range(0, n, width):
        yield slice(begin, begin + width)
