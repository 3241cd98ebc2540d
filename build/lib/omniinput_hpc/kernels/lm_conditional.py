"""Moves drawn from an autoregressive model's own conditionals: forward passes, no gradient."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import torch
import torch.nn.functional as F

from omniinput_hpc.config.kernels import LmConditional as Options
from omniinput_hpc.kernels.parts import conditionals
from omniinput_hpc.kernels.parts.categorical import block_sums, draw_by_blocks, log_sum, pick
from omniinput_hpc.kernels.parts.device_rng import DeviceStream
from omniinput_hpc.kernels.parts.spans import Span, SpanSchedule
from omniinput_hpc.kernels.state import Info, State, Untuned, accept, decide
from omniinput_hpc.models import Model, offers_of
from omniinput_hpc.models.checked import compare, watch
from omniinput_hpc.tempering.ensembles import Canonical, Ensemble

CPU_CHUNK_ELEMENTS = 1 << 17
"""Elements, half a megabyte of float32, that are processed at once on a CPU."""


@dataclass(frozen=True)
class Cache:
    """The conditionals at the values of x, and their normalizers, for every site.

    Attributes
    ----------
    beta : of the canonical ensemble that log_z was computed for, b = beta / m; else None
    log_p : [W, D], l[t, x_t], 0 at sites that are not predicted
    log_z : float64 [W, D], ln Z_t: ln of the sum over v of exp(b l[t, v])
    version : of the model's KV cache of x; 0 where it has none
    """

    beta: float | None
    log_p: torch.Tensor
    log_z: torch.Tensor
    version: int = 0


class LmConditional(Untuned):
    """Redraw a span of sites i..j, token by token, from exp(b l[t, .]) / Z_t.

    The log-probability of the span is the sum over it of b l[t, x'_t] - log Z_t(x'). The reverse
    proposal has the same form with the old values; the move is accepted by Metropolis-Hastings. For
    a canonical ensemble, with b = beta / m and z the mean over m predicted sites, the acceptance is
    that of configurational-bias Monte Carlo (Siepmann & Frenkel 1992) with all values as trials:

    log a = sum over t = i+1..j of [log Z_t(x') - log Z_t(x)]
            + b * sum over t > j of [l_t(x_t | x'_<t) - l_t(x_t | x_<t)].

    For other ensembles b is the slope / m, at z forward and at z' backward. Sites that are not
    predicted are drawn uniformly. A flip puts a uniform other value at one site. The span is drawn
    independently of the state and is the same for all walkers.
    """

    def __init__(self, options: Options, model: Model, n_walkers: int) -> None:
        super().__init__()
        self._conditional_logits = conditionals.require_conditionals(
            model, f'kernel.name = "{options.name}"', 'choose "metropolis"'
        )
        self._model, self._offers = model, offers_of(model)
        self._kv_cache = conditionals.kv_cache_of(self._offers, None, n_walkers)
        self._first = self._offers.predicted_from
        self._schedule = SpanSchedule(options, model.n_sites)
        self.parts = options.part_names
        self._flip = self.parts.index("flip")
        self.uniforms_per_move = n_walkers * (model.n_sites // 2 + 1)

    def step(self, state: State, ensemble: Ensemble, stream: DeviceStream) -> tuple[State, Info]:
        """Move every walker once: one span is redrawn, and what follows it is evaluated.

        The cache depends on the ensemble, so the first step makes it.
        """
        x, z = state.x, state.z
        span = self._schedule.draw(stream.shared_uniform(3))
        beta = ensemble.beta if isinstance(ensemble, Canonical) else None
        b = self._exponent(ensemble, z)  # [W]
        cache = state.cache
        self._kv_cache = conditionals.kv_cache_of(self._offers, self._kv_cache, len(x))
        if cache is None or cache.beta != beta or cache.version != self._version:
            cache = self._evaluate(x, b, beta)
            compare(self._model, x, z, self._output(cache.log_p, z.dtype))
        x_new, cache_new = self._propose(x, b, cache, span, stream)
        z_new = self._output(cache_new.log_p, z.dtype)
        watch(self._model, x_new, z_new)
        log_forward = self._log_q(cache_new, b, span)
        if beta is not None:
            log_backward = self._log_q(cache, b, span)
        else:
            b_new = self._exponent(ensemble, z_new)
            log_backward = self._log_q(self._reverse_cache(x, cache, b_new, span), b_new, span)
        u = stream.uniform(len(x))
        accepted = decide(ensemble, z, z_new, log_backward - log_forward, u)
        if self._kv_cache is not None:
            self._kv_cache.accept(accepted)
        cache = Cache(
            beta,
            accept(accepted, cache_new.log_p, cache.log_p),
            accept(accepted, cache_new.log_z, cache.log_z),
            self._version,
        )
        moved = State(accept(accepted, x_new, x), accept(accepted, z_new, z), cache)
        return moved, Info(accepted, span.part)

    @property
    def _version(self) -> int:
        return 0 if self._kv_cache is None else int(self._kv_cache.version)

    def _exponent(self, ensemble: Ensemble, z: torch.Tensor) -> torch.Tensor:
        """Return b, float64 [W]."""
        slope: torch.Tensor = ensemble.slope(z.double())
        return slope / (self._model.n_sites - self._first)

    def _output(self, log_p: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
        """Return z [W] from l at the values of an input, [W, D]."""
        return -log_p[:, self._first :].mean(dim=1, dtype=torch.float64).to(dtype)

    def _evaluate(self, x: torch.Tensor, b: torch.Tensor, beta: float | None) -> Cache:
        """Return the cache at x, from one evaluation of the model."""
        blocks = conditionals.rows_of(self._conditional_logits, self._kv_cache, x, self._first)
        exponent = b if beta is not None else None
        parts = [
            self._log_p_and_z(rows, x[:, some], exponent)
            for rows, some in self._with_sites(blocks, self._first)
        ]
        log_p, log_z = (torch.cat(columns, dim=1) for columns in zip(*parts, strict=True))
        unpredicted = (self._first, 0)
        log_p, log_z = F.pad(log_p, unpredicted), F.pad(log_z, unpredicted)
        return Cache(beta, log_p, log_z, self._version)

    def _with_sites(
        self, blocks: Iterable[torch.Tensor], t: int
    ) -> Iterator[tuple[torch.Tensor, slice]]:
        """Yield blocks of rows of l, [k, W, V], from site t on, with their sites, if predicted."""
        for rows in blocks:
            begin, t = t, t + len(rows)
            skipped = max(self._first - begin, 0)
            if skipped < len(rows):
                yield rows[skipped:], slice(begin + skipped, t)

    def _log_p_and_z(
        self, rows: torch.Tensor, values: torch.Tensor, b: torch.Tensor | None
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Return l at values [W, k], and ln Z for b (zeros without), of rows [k, W, V]: [W, k]."""
        log_p = pick(rows, values.T).T
        if b is None:
            return log_p, torch.zeros_like(log_p, dtype=torch.float64)
        return log_p, log_sums(rows, b).T

    def _propose(
        self, x: torch.Tensor, b: torch.Tensor, cache: Cache, span: Span, stream: DeviceStream
    ) -> tuple[torch.Tensor, Cache]:
        """Redraw a span, and evaluate what follows it; return x', int64 [W, D], and its cache.

        Where the ensemble is not canonical, the cache's log_z is set on the span alone.
        """
        x_new, log_p, log_z = x.clone(), cache.log_p.clone(), cache.log_z.clone()
        ahead = conditionals.begin(self._conditional_logits, self._kv_cache, x, span.begin)
        canonical = cache.beta is not None
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
            for rows, some in self._with_sites(blocks, span.end):
                log_p[:, some], log_z[:, some] = self._log_p_and_z(
                    rows, x[:, some], b if canonical else None
                )
        return x_new, Cache(cache.beta, log_p, log_z)

    def _reverse_cache(self, x: torch.Tensor, cache: Cache, b: torch.Tensor, span: Span) -> Cache:
        """Return the cache at the old x, with ln Z on the span for the reverse exponent b."""
        log_z = torch.zeros_like(cache.log_z)
        begin = max(span.begin, self._first)
        if span.part != self._flip and begin < span.end:
            blocks = conditionals.current_rows(
                self._conditional_logits, self._kv_cache, x, begin, span.end
            )
            for rows, some in self._with_sites(blocks, begin):
                log_z[:, some] = log_sums(rows, b).T
        return Cache(cache.beta, cache.log_p, log_z)

    def _log_q(self, cache: Cache, b: torch.Tensor, span: Span) -> torch.Tensor:
        """Return ln of the probability of drawing the span, float64 [W], less constants."""
        some = slice(max(span.begin, self._first), span.end)
        if span.part == self._flip or some.start >= some.stop:
            return torch.zeros_like(b)
        drawn = cache.log_p[:, some] * b.to(cache.log_p.dtype)[:, None]
        return (drawn.double() - cache.log_z[:, some]).sum(dim=1)


def needs_mask(b: torch.Tensor) -> bool:
    """Whether b l, b [W], must be set to -inf where l is: with b <= 0 it is not so by itself.

    On a GPU the answer is always yes, since a look at b would synchronize.
    """
    return not b.is_cpu or bool((b <= 0).any())


def scaled_scores(rows: torch.Tensor, b: torch.Tensor, mask: bool) -> torch.Tensor:
    """Return b l, [R, n], for l and b [R]; `mask` as `needs_mask` says."""
    scores = rows * b.to(rows.dtype)[:, None]
    return scores.masked_fill_(rows == -torch.inf, -torch.inf) if mask else scores


def log_sums(rows: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """Return ln of the sum of exp(b l) over values, float64 [..., W], of rows [..., W, V]."""
    flat, mask = rows.reshape(-1, rows.shape[-1]), needs_mask(b)
    b = b.expand(rows.shape[:-1]).reshape(-1)
    parts = [log_sum(scaled_scores(flat[some], b[some], mask)) for some in _slices(flat)]
    return torch.cat(parts).view(rows.shape[:-1])


def draw_scaled(
    row: torch.Tensor, b: torch.Tensor, u: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """Draw values from exp(b l) / Z; return them, int64 [W], and ln Z, float64 [W]."""
    mask = needs_mask(b)
    parts = [block_sums(scaled_scores(row[some], b[some], mask)) for some in _slices(row)]
    sums, largest = (torch.cat(of_slices) for of_slices in zip(*parts, strict=True))

    def scores_at(index: torch.Tensor) -> torch.Tensor:
        return scaled_scores(row.gather(1, index), b, mask)

    return draw_by_blocks(sums, largest, u, row.shape[1], scores_at)


def _slices(rows: torch.Tensor) -> Iterator[slice]:
    """Yield runs of rows [n, V] that stay in a CPU's cache from one operation to the next."""
    n, n_values = rows.shape
    width = max(1, CPU_CHUNK_ELEMENTS // n_values) if rows.is_cpu else n
    for begin in range(0, n, width):
        yield slice(begin, begin + width)
