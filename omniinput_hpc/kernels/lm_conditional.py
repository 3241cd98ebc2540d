"""Redraw spans of sites from a language model's own conditionals: forward passes, no gradient."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray

from omniinput_hpc.config.kernels import CONTEXT_LENGTH
from omniinput_hpc.config.kernels import LmConditional as Options
from omniinput_hpc.kernels.look_ahead.continuations import Texts, learn, of_numbers
from omniinput_hpc.kernels.look_ahead.search import Search, batch_size
from omniinput_hpc.kernels.look_ahead.twist import LookAhead
from omniinput_hpc.kernels.parts import conditionals
from omniinput_hpc.kernels.parts.categorical import pick
from omniinput_hpc.kernels.parts.device_rng import DeviceStream
from omniinput_hpc.kernels.parts.spans import Span, SpanSchedule
from omniinput_hpc.kernels.parts.tempered_rows import draw_scaled, log_sums
from omniinput_hpc.kernels.state import Info, State, Target, Untuned, accept, decide
from omniinput_hpc.models import Model, offers_of
from omniinput_hpc.models.checked import compare, watch
from omniinput_hpc.tempering.ensembles import Canonical, Ensemble


@dataclass(frozen=True)
class RowCache:
    """The conditionals at the values of x and their normalizers, for every site.

    Attributes
    ----------
    beta : beta = b m of the canonical ensemble for which log_z was computed; None for other ones
    log_p : [W, D], l[t, x_t]; 0 at sites that are not predicted
    log_z : float64 [W, D], ln Z_t: ln of the sum over v of exp(b l[t, v])
    version : version of the KV cache that holds x; 0 without a KV cache
    ahead : weights of continuations by which suffixes are drawn; None: from exp(b l) / Z
    lead : float64 [W, D], ln psi_t(x_t) - ln of the sum over v of exp(b l[t, v]) psi_t(v); None
        without `ahead`
    """

    beta: float | None
    log_p: torch.Tensor
    log_z: torch.Tensor
    version: int = 0
    ahead: LookAhead | None = None
    lead: torch.Tensor | None = None


class LmConditional(Untuned):
    """Redraw a span of sites i..j, token by token, from exp(b l[t, .]) / Z_t.

    The log-probability of the span is the sum over it of b l[t, x'_t] - log Z_t(x'). The reverse
    proposal has the same form with the old values. The move is accepted by Metropolis-Hastings. For
    a canonical ensemble, with b = beta / m and z the mean over m predicted sites, the acceptance is
    that of configurational-bias Monte Carlo (Siepmann & Frenkel 1992) with all values as trials:

    log a = sum over t = i+1..j of [log Z_t(x') - log Z_t(x)]
            + b * sum over t > j of [l_t(x_t | x'_<t) - l_t(x_t | x_<t)].

    For other ensembles b is the slope / m, taken at z for the proposal and at z' for its reverse.
    Sites that are not predicted are drawn uniformly. A flip instead sets one site to a uniformly
    drawn other value. The span is independent of the state and the same for all walkers.

    With `look_ahead`, suffixes in canonical ensembles of b > 1 are drawn from
    exp(b l[t, .]) psi_t / Z'_t, forward and backward. psi_t estimates the total weight of the
    continuations of a value (`look_ahead.twist`). Burn-in learns psi; any psi is exact.
    """

    def __init__(self, options: Options, model: Model, n_walkers: int) -> None:
        self._conditional_logits = conditionals.require_conditionals(
            model, f'kernel.name = "{options.name}"', 'choose "metropolis"'
        )
        self._model, self._offers = model, offers_of(model)
        self._kv_cache = conditionals.kv_cache_of(self._offers, None, n_walkers)
        self._first = self._offers.predicted_from
        self._schedule = SpanSchedule(options, model.n_sites)
        self.parts = options.part_names
        self._flip = self.parts.index("flip")
        self._suffix = self.parts.index("suffix")
        self.uniforms_per_move = n_walkers * (model.n_sites // 2 + 1)
        self._looks_ahead = options.look_ahead
        self.tuned = np.zeros(options.n_tuned)

    @property
    def tuned(self) -> NDArray[np.float64]:
        """What `learn` found, float64 [n_tuned]; zeros before. Assign it only as a whole."""
        return self._numbers

    @tuned.setter
    def tuned(self, numbers: NDArray[np.float64]) -> None:
        self._numbers = numbers
        self._known = of_numbers(numbers) if self._looks_ahead else None
        self._ahead: LookAhead | None = None  # made again on the walkers' device

    def start(self, x: torch.Tensor, z: torch.Tensor) -> State:
        """Return the state of walkers, with an empty cache."""
        self._look_ahead(x.device)  # not in `step`, since copying to a GPU synchronizes
        return super().start(x, z)

    def step(self, state: State, ensemble: Ensemble, stream: DeviceStream) -> tuple[State, Info]:
        """Move every walker once: redraw one span and evaluate the sites after it.

        The cache depends on the ensemble, so it is made by the first step and not by `start`.
        """
        x, z = state.x, state.z
        span = self._schedule.draw(stream.shared_uniform(3))
        beta = ensemble.beta if isinstance(ensemble, Canonical) else None
        b = self._exponent(ensemble, z)  # [W]
        cache = state.cache
        self._kv_cache = conditionals.kv_cache_of(self._offers, self._kv_cache, len(x))
        ahead = self._look_ahead(x.device) if beta is not None else None
        current = cache is not None and cache.beta == beta and cache.ahead is ahead
        if cache is None or not current or cache.version != self._version:
            cache = self._evaluate(x, b, beta, ahead)
            found = self._output(cache.log_p, z.dtype)
            compare(self._model, x, z, found)
            # rounded in the same way as log_p, so that terms which a move does not change cancel
            z, b = found, self._exponent(ensemble, found)
        x_new, cache_new = self._propose(x, b, cache, span, stream)
        z_new = self._output(cache_new.log_p, z.dtype)
        watch(self._model, x_new, z_new)
        log_forward = self._log_q(cache_new, b, span)
        if beta is not None:
            log_backward = self._log_q(cache, b, span)  # with the same psi
        else:
            b_new = self._exponent(ensemble, z_new)
            log_backward = self._log_q(self._reverse_cache(x, cache, b_new, span), b_new, span)
        u = stream.uniform(len(x))
        accepted = decide(ensemble, z, z_new, log_backward - log_forward, u)
        if self._kv_cache is not None:
            self._kv_cache.accept(accepted)
        cache = RowCache(
            beta,
            accept(accepted, cache_new.log_p, cache.log_p),
            accept(accepted, cache_new.log_z, cache.log_z),
            self._version,
            ahead,
            _accept_lead(accepted, cache_new, cache),
        )
        moved = State(accept(accepted, x_new, x), accept(accepted, z_new, z), cache)
        return moved, Info(accepted, span.part)

    @property
    def _version(self) -> int:
        return 0 if self._kv_cache is None else int(self._kv_cache.version)

    def _exponent(self, ensemble: Ensemble, z: torch.Tensor) -> torch.Tensor:
        """Return b = slope / m, float64 [W]."""
        slope: torch.Tensor = ensemble.slope(z.double())
        return slope / (self._model.n_sites - self._first)

    def _output(self, log_p: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
        """Return z [W], given l at the values of each input [W, D]."""
        return -log_p[:, self._first :].mean(dim=1, dtype=torch.float64).to(dtype)

    def _look_ahead(self, device: torch.device) -> LookAhead | None:
        """Return the weights by which suffixes are drawn; None until something was learned."""
        if self._ahead is None and self._known is not None:
            self._ahead = LookAhead(self._known, self._model.n_sites, device)
        return self._ahead

    def _evaluate(
        self, x: torch.Tensor, b: torch.Tensor, beta: float | None, ahead: LookAhead | None
    ) -> RowCache:
        """Return the cache at x, from one evaluation of the model."""
        blocks = conditionals.rows_of(self._conditional_logits, self._kv_cache, x, self._first)
        exponent = b if beta is not None else None
        parts, leads = [], [self._lead_unpredicted(ahead, x, t, b) for t in range(self._first)]
        for rows, some in self._with_sites(blocks, self._first):
            parts.append(self._log_p_and_z(rows, x[:, some], exponent))
            leads.append(self._lead(ahead, rows, x, some.start, b))
        log_p, log_z = (torch.cat(columns, dim=1) for columns in zip(*parts, strict=True))
        unpredicted = (self._first, 0)
        log_p, log_z = F.pad(log_p, unpredicted), F.pad(log_z, unpredicted)
        lead = None if ahead is None else torch.cat(leads, dim=1)
        return RowCache(beta, log_p, log_z, self._version, ahead, lead)

    def _lead(
        self, ahead: LookAhead | None, rows: torch.Tensor, x: torch.Tensor, t: int, b: torch.Tensor
    ) -> torch.Tensor:
        """Return `RowCache.lead` of the k sites from t on, [W, k], given their rows [k, W, V]."""
        k, n_walkers, _ = rows.shape
        if ahead is None:
            return x.new_zeros((n_walkers, k), dtype=torch.float64)
        twist = ahead.after(x, t, k)
        psi = twist.at(x[:, t : t + k].T.reshape(-1, 1)).view(k, n_walkers)
        return (psi - log_sums(rows, b, twist)).T

    def _lead_unpredicted(
        self, ahead: LookAhead | None, x: torch.Tensor, t: int, b: torch.Tensor
    ) -> torch.Tensor:
        """Return `RowCache.lead`, [W, 1], of a site that is not predicted, where l is 0."""
        return self._lead(ahead, self._row_of_zeros(x)[None], x, t, b)

    def _row_of_zeros(self, x: torch.Tensor) -> torch.Tensor:
        zero = torch.zeros((), dtype=torch.float64, device=x.device)
        return zero.expand(len(x), self._model.n_values)

    def _with_sites(
        self, blocks: Iterable[torch.Tensor], t: int
    ) -> Iterator[tuple[torch.Tensor, slice]]:
        """Yield blocks of predicted rows of l, [k, W, V], with their sites; `blocks` begin at t."""
        for rows in blocks:
            begin, t = t, t + len(rows)
            skipped = max(self._first - begin, 0)
            if skipped < len(rows):
                yield rows[skipped:], slice(begin + skipped, t)

    def _log_p_and_z(
        self, rows: torch.Tensor, values: torch.Tensor, b: torch.Tensor | None
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Return l at values [W, k], and ln Z for b (zeros if None), [W, k], of rows [k, W, V]."""
        log_p = pick(rows, values.T).T
        if b is None:
            return log_p, torch.zeros_like(log_p, dtype=torch.float64)
        return log_p, log_sums(rows, b).T

    def _propose(
        self, x: torch.Tensor, b: torch.Tensor, cache: RowCache, span: Span, stream: DeviceStream
    ) -> tuple[torch.Tensor, RowCache]:
        """Redraw a span and evaluate the sites after it; return x', int64 [W, D], and its cache.

        If the ensemble is not canonical, `log_z` of the cache is valid only on the span.
        """
        x_new, log_p, log_z = x.clone(), cache.log_p.clone(), cache.log_z.clone()
        lead = None if cache.lead is None else cache.lead.clone()
        new = RowCache(cache.beta, log_p, log_z, 0, cache.ahead, lead)
        prefixes = conditionals.begin(self._conditional_logits, self._kv_cache, x, span.begin)
        canonical = cache.beta is not None
        for t in range(span.begin, span.end):
            u = stream.uniform(len(x))
            row = prefixes.row() if t >= self._first else None
            if cache.ahead is not None and span.part == self._suffix:
                self._draw_ahead(x_new, new, cache.ahead, t, row, b, u)
            elif span.part == self._flip:
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
            if new.lead is not None and span.part != self._suffix:
                rows = (self._row_of_zeros(x) if row is None else row)[None]
                new.lead[:, t : t + 1] = self._lead(cache.ahead, rows, x_new, t, b)
            if t + 1 < span.end:
                prefixes.extend(x_new[:, t])
        if span.end < x.shape[1]:
            blocks = prefixes.rows_after(x_new[:, span.end - 1 : -1])
            for rows, some in self._with_sites(blocks, span.end):
                log_p[:, some], log_z[:, some] = self._log_p_and_z(
                    rows, x[:, some], b if canonical else None
                )
                if new.lead is not None:
                    new.lead[:, some] = self._lead(cache.ahead, rows, x_new, some.start, b)
        if new.lead is not None:
            for t in range(span.end, self._first):
                new.lead[:, t : t + 1] = self._lead_unpredicted(cache.ahead, x_new, t, b)
        return x_new, new

    def _draw_ahead(
        self,
        x_new: torch.Tensor,
        new: RowCache,
        ahead: LookAhead,
        t: int,
        row: torch.Tensor | None,
        b: torch.Tensor,
        u: torch.Tensor,
    ) -> None:
        """Draw site t of x_new from exp(b l) psi; set its log_z and lead. l is 0 if row is None."""
        assert new.lead is not None
        twist = ahead.after(x_new, t)
        weights = self._row_of_zeros(x_new) if row is None else row
        x_new[:, t], log_sum = draw_scaled(weights, b, u, twist)
        new.lead[:, t] = twist.at(x_new[:, t : t + 1])[:, 0] - log_sum
        if row is not None:
            new.log_z[:, t] = log_sums(row, b)

    def _reverse_cache(
        self, x: torch.Tensor, cache: RowCache, b: torch.Tensor, span: Span
    ) -> RowCache:
        """Return the cache at the old x, with ln Z on the span for exponent b of the reverse."""
        log_z = torch.zeros_like(cache.log_z)
        begin = max(span.begin, self._first)
        if span.part != self._flip and begin < span.end:
            blocks = conditionals.current_rows(
                self._conditional_logits, self._kv_cache, x, begin, span.end
            )
            for rows, some in self._with_sites(blocks, begin):
                log_z[:, some] = log_sums(rows, b).T
        return RowCache(cache.beta, cache.log_p, log_z)

    def _log_q(self, cache: RowCache, b: torch.Tensor, span: Span) -> torch.Tensor:
        """Return ln of the probability of drawing the span, float64 [W], up to a constant."""
        if cache.lead is not None and span.part == self._suffix:
            some = slice(span.begin, span.end)
            drawn = cache.log_p[:, some] * b.to(cache.log_p.dtype)[:, None]
            return (drawn.double() + cache.lead[:, some]).sum(dim=1)
        some = slice(max(span.begin, self._first), span.end)
        if span.part == self._flip or some.start >= some.stop:
            return torch.zeros_like(b)
        drawn = cache.log_p[:, some] * b.to(cache.log_p.dtype)[:, None]
        return (drawn.double() - cache.log_z[:, some]).sum(dim=1)

    def learner(self, ensemble: Ensemble) -> LmConditional | None:
        """Return this kernel if it can learn for the ensemble (see `_learning_exponent`)."""
        return None if self._learning_exponent(ensemble) is None else self

    @torch.no_grad()
    def search(self, target: Target, like: torch.Tensor, stream: DeviceStream) -> Texts:
        """Search for texts of large weight, in a canonical ensemble colder than the model."""
        b = self._learning_exponent(target.ensemble)
        assert b is not None
        n_walkers, n_sites = like.shape
        n = batch_size(n_walkers, n_sites, self._model.n_values)
        kv_cache = conditionals.kv_cache_of(self._offers, self._kv_cache, n)

        def begin(x: torch.Tensor) -> conditionals.Conditionals:
            target.budget.between()
            if kv_cache is None:
                return conditionals.begin(self._conditional_logits, None, x, 0)
            kv_cache.begin_anew()  # it may be a new one, which has not seen the model's prefix
            return kv_cache

        many = like.new_zeros((n, n_sites))
        search = Search(begin, many, self._model.n_values, self._first, b, stream)
        return search.found(of_numbers(target.tuned), target.budget)

    @torch.no_grad()
    def texts(self, ensemble: Ensemble, x: torch.Tensor, n_walkers: int) -> Texts:
        """Return texts x, int64 [n W, D], with their conditionals."""
        b = self._learning_exponent(ensemble)
        assert b is not None
        self._kv_cache = conditionals.kv_cache_of(self._offers, self._kv_cache, n_walkers)
        of_walker = torch.full((n_walkers,), b, dtype=torch.float64, device=x.device)
        caches = [self._evaluate(batch, of_walker, b, None) for batch in x.split(n_walkers)]
        log_p, log_z = (
            torch.cat(parts).double().cpu().numpy()
            for parts in zip(*((cache.log_p, cache.log_z) for cache in caches), strict=True)
        )
        return Texts(x.cpu().numpy(), log_p, log_z, np.zeros(len(x), dtype=bool))

    def learn(self, ensemble: Ensemble, texts: Texts) -> None:
        """Learn the weights of continuations from texts. The first ones must be of a search."""
        b = self._learning_exponent(ensemble)
        assert b is not None
        if self._known is not None or texts.tempered.any():
            known = learn(self._known, texts, b, self._model.n_values, self._first)
            self.tuned = known.numbers()

    def _learning_exponent(self, ensemble: Ensemble) -> float | None:
        """Return b of the ensemble; None if it does not look ahead or has nothing to learn."""
        n_sites = self._model.n_sites
        if not self._looks_ahead or not isinstance(ensemble, Canonical):
            return None
        b = float(ensemble.beta / (n_sites - self._first))
        return b if b > 1.0 and n_sites > CONTEXT_LENGTH else None


def _accept_lead(accepted: torch.Tensor, new: RowCache, old: RowCache) -> torch.Tensor | None:
    if new.lead is None or old.lead is None:
        return None
    return accept(accepted, new.lead, old.lead)
