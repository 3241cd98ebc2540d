"""Independent samplers: uniform inputs, and sequences drawn token by token from a model.

Their moves do not depend on the state. They are anchors of a ladder, or draw ancestral samples.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from omniinput_hpc import rng
from omniinput_hpc.kernels.parts.categorical import pick
from omniinput_hpc.kernels.parts.conditionals import require_conditionals
from omniinput_hpc.kernels.parts.constrained import InputLaw
from omniinput_hpc.kernels.parts.device_rng import DeviceStream
from omniinput_hpc.kernels.parts.law import Law
from omniinput_hpc.kernels.parts.tempered_rows import draw_scaled, log_sums_of_powers
from omniinput_hpc.kernels.state import Info, State, Untuned, accept
from omniinput_hpc.models import Model, Offers, offers_of
from omniinput_hpc.models.checked import watch, watch_law
from omniinput_hpc.tempering.ensembles import Ensemble

MAX_EXCESS = 1e-3
"""How far float32 rounding may raise the sum of a row's probabilities above 1."""
MAX_DEFICIT = 1e-5
"""How far rounding may lower it below 1; a larger deficit means forbidden values."""
MAX_TRIES = 10_000
MAX_MISSING = 1e-3
"""Share of sequences with forbidden values up to which rows are considered normalized."""
MIN_WHOLE = 2e-3
"""Smallest share of sequences without forbidden values for which `MAX_TRIES` tries suffice."""
N_TRIED = 16
"""Inputs whose rows are summed before a run, at least."""


class _IndependentSampler(Untuned):
    """Base class of the independent samplers; nothing is cached."""

    parts: tuple[str, ...] = ("draw",)

    def __init__(self, model: Model, n_walkers: int) -> None:
        super().__init__()
        self._model, self._offers = model, offers_of(model)
        self._first = self._offers.predicted_from
        self.uniforms_per_move = n_walkers * model.n_sites

    def _output(self, x: torch.Tensor, log_p: torch.Tensor) -> torch.Tensor:
        """Return z, float32 [W], of drawn inputs, given the sums of their l, float64 [W].

        The rows of a KV cache agree with a full evaluation, which is then skipped. Rows from the
        model's own `prefixes` may not, so z is evaluated.
        """
        if self._offers.draws is None:
            return self._model.output(x)
        z = (-log_p / (x.shape[1] - self._first)).float()
        watch(self._model, x, z)
        return z


class UniformSampler(_IndependentSampler):
    """Draw every walker uniformly in every move: exact at beta = 0, for any model."""

    def step(self, state: State, ensemble: Ensemble, stream: DeviceStream) -> tuple[State, Info]:
        """Draw all walkers; the ensemble must be that of beta = 0."""
        x = stream.integers(self._model.n_values, *state.x.shape)  # [W, D]
        accepted = torch.ones_like(state.z, dtype=torch.bool)
        return State(x, self._model.output(x)), Info(accepted, exact=True)


class LawSampler(_IndependentSampler):
    """Draw every walker from the law of inputs in every move: exact at beta = 0."""

    def __init__(self, model: Model, n_walkers: int, law: InputLaw) -> None:
        super().__init__(model, n_walkers)
        self._law = law

    def step(self, state: State, ensemble: Ensemble, stream: DeviceStream) -> tuple[State, Info]:
        """Draw all walkers; the ensemble must be that of beta = 0."""
        u = stream.uniform(*state.x.shape)
        if isinstance(self._law, Law):
            x, log_q = self._law.draw_with_log_q(u)  # [W, D]
            watch_law(self._model, x, log_q.sum(dim=1))
        else:
            x = self._law.draw(u)
        accepted = torch.ones_like(state.z, dtype=torch.bool)
        return State(x, self._model.output(x)), Info(accepted, exact=True)


def conditional_rows(offers: Offers, x: torch.Tensor) -> Iterator[torch.Tensor]:
    """Yield l[:, t], float32 [W, n_values], for the predicted sites t in order.

    The caller must set site t of x, int64 [W, D], before it asks for the next row. The sites before
    `predicted_from` must be set before the first call.
    """
    first, n_sites = offers.predicted_from, x.shape[1]
    if offers.draws is not None:
        kv_cache = offers.draws.kv_cache(len(x))
        kv_cache.begin_anew()
        for t in range(n_sites):
            if t >= first:
                yield kv_cache.row()
            if t + 1 < n_sites:
                kv_cache.extend(x[:, t])
        return
    if offers.prefixes is not None:
        prefixes = offers.prefixes.begin(x[:, :first])
        for t in range(first, n_sites):
            yield prefixes.log_p
            if t + 1 < n_sites:
                prefixes = offers.prefixes.extend(prefixes, x[:, t])
        return
    assert offers.conditional_logits is not None
    for t in range(first, n_sites):
        yield offers.conditional_logits(x)[1][:, t]


def draw_with_sum(log_weight: torch.Tensor, u: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Draw values with probabilities exp(log_weight), [W, V], by inverting the cumulative sums.

    u is float64 [W], uniform in [0, 1). Returns the values, int64 [W], and the sums of the
    probabilities, float64 [W]. A value is V if u is not below the sum.
    """
    cumulative = log_weight.exp().cumsum(dim=1)  # [W, V]
    value = torch.searchsorted(cumulative, u[:, None], right=True).squeeze(1)
    return value, cumulative[:, -1]


class AncestralSampler(_IndependentSampler):
    """Draw independent sequences, x_t from exp(b l_t) / Z_t with b = beta / m; keep their log q.

    q_b(x) = n_values^-predicted_from * prod_t exp(b l_t[x_t]) / Z_t(b; x_<t) is normalized, so
    log q gives exact importance weights. It is kept for every b of the ladder `beta_k`. Forbidden
    values are never drawn, not even at b = 0. Raises a `UserError` without `conditional_logits`.
    """

    def __init__(self, model: Any, n_walkers: int, beta_k: list[float]) -> None:
        require_conditionals(model, 'sampler.method = "ancestral"', 'choose "parallel-tempering"')
        super().__init__(model, n_walkers)
        self._b_k = [beta / (model.n_sites - self._first) for beta in beta_k]

    def step(self, state: State, ensemble: Ensemble, stream: DeviceStream) -> tuple[State, Info]:
        """Draw all walkers; `log_q` of the info is log q_k, float64 [W, K]."""
        n_walkers, n_sites = state.x.shape
        b = float(ensemble.slope(0.0)) / (n_sites - self._first)
        n_values = self._model.n_values
        x = torch.zeros_like(state.x)
        x[:, : self._first] = stream.integers(n_values, n_walkers, self._first)
        uniform = torch.full((), float(n_values), dtype=torch.float64, device=x.device).log()
        log_q = -self._first * uniform.expand(n_walkers, len(self._b_k)).clone()  # [W, K]
        b_k = torch.tensor(self._b_k, dtype=torch.float64, device=x.device)
        own = torch.full((n_walkers,), b, dtype=torch.float64, device=x.device)
        log_p = torch.zeros_like(own)
        for t, row in enumerate(conditional_rows(self._offers, x), start=self._first):
            x[:, t], _ = draw_scaled(row, own, stream.uniform(n_walkers))
            drawn = pick(row, x[:, t]).double()
            log_p += drawn
            log_q += drawn[:, None] * b_k
            log_q -= log_sums_of_powers(row, b_k)
        z = self._output(x, log_p)
        return State(x, z), Info(torch.ones_like(z, dtype=torch.bool), log_q=log_q, exact=True)


class AutoregressiveSampler(_IndependentSampler):
    """Draw every walker from the model's own distribution in every move: exact at beta = m.

    Draws do not depend on the walkers, so `draw` can make those of the next `n_ahead` segments in
    one batch. It does if the model reports that this is faster: a token of few sequences takes as
    long as one of many, since all weights are read for it. `n_ahead` divides `n_segments`.

    If values are forbidden, rows sum to less than 1. A sequence for which a uniform number falls
    into the missing part is rejected as a whole and drawn again. The accepted sequences therefore
    have probabilities proportional to prod_t exp(l_t[x_t]). Raises a `UserError` without
    `conditional_logits`.
    """

    def __init__(self, model: Any, n_walkers: int, n_segments: int = 1) -> None:
        require_conditionals(model, "ladder.anchors", "set ladder.anchors = false")
        super().__init__(model, n_walkers)
        draws, ahead = self._offers.draws, [1]
        if draws is not None:
            n_fit = draws.n_together // n_walkers
            ahead += [n for n in range(2, min(n_fit, n_segments) + 1) if n_segments % n == 0]
            draws.kv_cache(ahead[-1] * n_walkers)  # so that a lack of memory shows before a run
        self.n_ahead = ahead[-1]

    def step(self, state: State, ensemble: Ensemble, stream: DeviceStream) -> tuple[State, Info]:
        """Draw all walkers; the ensemble must be that of beta = m (synchronizes)."""
        x, z = self._draw(state.x, stream)
        return State(x, z), Info(torch.ones_like(z, dtype=torch.bool), exact=True)

    def draw(self, like: torch.Tensor, stream: DeviceStream) -> list[State]:
        """Return draws for `n_ahead` segments, each shaped like `like` [W, D] (synchronizes)."""
        x, z = self._draw(like.repeat(self.n_ahead, 1), stream)
        parts = zip(x.chunk(self.n_ahead), z.chunk(self.n_ahead), strict=True)
        return [State(x_w, z_w) for x_w, z_w in parts]

    def _draw(self, like: torch.Tensor, stream: DeviceStream) -> tuple[torch.Tensor, torch.Tensor]:
        """Return sequences shaped like `like`, int64 [n, D], and z, float32 [n]."""
        x, drawn = like, torch.zeros(len(like), dtype=torch.bool, device=like.device)
        log_p = torch.zeros(len(like), dtype=torch.float64, device=like.device)
        for _ in range(MAX_TRIES):
            x_new, log_p_new, whole, largest = self._draw_once(like, stream)
            fresh = whole & ~drawn
            x, log_p = accept(fresh, x_new, x), accept(fresh, log_p_new, log_p)
            drawn = drawn | whole
            if self._all_drawn(drawn, largest):
                return x, self._output(x, log_p)
        raise RuntimeError(
            f"{MAX_TRIES} tries for ladder.anchors drew no sequence of allowed values; set "
            "ladder.anchors = false"
        )

    def _all_drawn(self, drawn: torch.Tensor, largest: torch.Tensor) -> bool:
        """Return whether all of `drawn`, bool [n], are true; raise if a row sums to more than 1.

        This is the only place where draws wait for a GPU.
        """
        all_drawn, sums_to = torch.stack([drawn.all().double(), largest]).tolist()
        if sums_to > 1.0 + MAX_EXCESS:
            raise RuntimeError(
                "the model's conditional_logits are not log-probabilities (a row sums to "
                f"{sums_to:.4g}); set ladder.anchors = false"
            )
        return bool(all_drawn)

    def _draw_once(self, like: torch.Tensor, stream: DeviceStream) -> tuple[torch.Tensor, ...]:
        """Draw sequences x [n, D] once; return them with the sums of their l, float64 [n].

        Also returns which sequences have no forbidden values, bool [n], and the largest row sum.
        """
        n_walkers, n_values = like.shape[0], self._model.n_values
        x = torch.zeros_like(like)
        x[:, : self._first] = stream.integers(n_values, n_walkers, self._first)
        whole = torch.ones(n_walkers, dtype=torch.bool, device=like.device)
        largest = torch.zeros((), dtype=torch.float64, device=like.device)
        log_p = largest.expand(n_walkers).clone()
        for t, row in enumerate(conditional_rows(self._offers, x), start=self._first):
            value, total = draw_with_sum(row.double(), stream.uniform(n_walkers))
            largest = torch.maximum(largest, total.max())
            # If a row sums to 1 except for rounding, its last value takes the rest.
            inside = (value < n_values) | (total > 1.0 - MAX_DEFICIT)
            whole = whole & inside
            x[:, t] = value.clamp(max=n_values - 1)
            log_p += pick(row, x[:, t])
        return x, log_p, whole, largest


@dataclass(frozen=True)
class RowSums:
    """Sums of a model's rows of exp(l), on some inputs.

    Attributes
    ----------
    largest : the largest sum of a row, infinite if any is NaN
    whole : share of drawn sequences without forbidden values: the mean product of their row sums
    """

    largest: float
    whole: float

    @property
    def normalized(self) -> bool:
        """Whether all rows sum to 1, so that the probabilities of whole inputs do as well."""
        return not self.problem and self.whole > 1.0 - MAX_MISSING

    @property
    def problem(self) -> str:
        """Why sequences cannot be drawn from the model, as half a sentence; "" if they can."""
        if self.largest > 1.0 + MAX_EXCESS:
            return f"a row of the model's conditional_logits sums to {self.largest:.4g}, not to 1"
        if self.whole < MIN_WHOLE:
            return (
                f"only a share of {self.whole:.2g} of the sequences drawn from the model's "
                "conditional_logits has no forbidden values"
            )
        return ""


def try_rows(model: Any, n_walkers: int, device: str) -> RowSums | None:
    """Sum rows at random inputs and along sequences drawn from the model.

    Returns None if the model has no `conditional_logits`. The inputs are always the same: at least
    `N_TRIED` of each kind, in batches of `n_walkers`.
    """
    offers = offers_of(model)
    if offers.conditional_logits is None:
        return None
    n_values, n_sites, first = model.n_values, model.n_sites, offers.predicted_from
    random = rng.generator(0, "fingerprint", n_sites, 1)
    largest, whole = [], []
    for _ in range(-(-N_TRIED // n_walkers)):
        x = random.integers(n_values, size=(n_walkers, n_sites))
        sums, _ = _sums_along(offers, torch.from_numpy(x).to(device), None)
        drawn = torch.from_numpy(np.where(np.arange(n_sites) < first, x, 0)).to(device)
        u = torch.from_numpy(random.random((n_sites, n_walkers))).to(device)
        drawn_sums, log_whole = _sums_along(offers, drawn, u)
        largest += [sums, drawn_sums]
        whole.append(log_whole.clamp(max=0.0).exp())
    most, mean = float(torch.stack(largest).max()), float(torch.cat(whole).mean())
    return RowSums(np.inf, 0.0) if np.isnan([most, mean]).any() else RowSums(most, mean)


@torch.no_grad()
def _sums_along(
    offers: Offers, x: torch.Tensor, u: torch.Tensor | None
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the largest row sum, float64 [], and ln of each input's product of sums, float64 [W].

    x, int64 [W, D], is used as given if u is None. Otherwise its predicted sites are drawn in
    place, from the rows and the uniform numbers u [D, W].
    """
    largest = torch.zeros((), dtype=torch.float64, device=x.device)
    log_whole = torch.zeros(len(x), dtype=torch.float64, device=x.device)
    if u is None and offers.prefixes is None and offers.conditional_logits is not None:
        rows = iter(offers.conditional_logits(x)[1][:, offers.predicted_from :].unbind(1))
    else:
        rows = conditional_rows(offers, x)
    for t, row in enumerate(rows, start=offers.predicted_from):
        log_sum = row.double().logsumexp(1)
        largest = torch.maximum(largest, log_sum.exp().max())
        log_whole += log_sum
        if u is not None:
            value, _ = draw_with_sum(row.double() - log_sum[:, None], u[t])
            x[:, t] = value.clamp(max=row.shape[1] - 1)  # in case u is 1 within rounding
    return largest, log_whole
