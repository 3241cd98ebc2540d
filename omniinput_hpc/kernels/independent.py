"""Independent samplers: uniform inputs, and sequences drawn token by token from a model.

They are kernels whose moves forget the state: anchors of a ladder, and ancestral sampling.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch

from omniinput_hpc.kernels.parts.conditionals import require_conditionals
from omniinput_hpc.kernels.parts.device_rng import DeviceStream
from omniinput_hpc.kernels.state import Info, State, Untuned
from omniinput_hpc.models import Model, Offers, offers_of
from omniinput_hpc.tempering.ensembles import Ensemble

MAX_EXCESS = 1e-3
"""How far rounding in float32 may lift the sum of a row's probabilities above 1."""
MAX_DEFICIT = 1e-5
"""How far rounding may lower it below 1; a larger deficit means forbidden values."""
MAX_TRIES = 10_000


class _IndependentSampler(Untuned):
    """What the independent samplers have in common: nothing is cached."""

    parts: tuple[str, ...] = ("draw",)

    def __init__(self, model: Model, n_walkers: int) -> None:
        super().__init__()
        self._model, self._offers = model, offers_of(model)
        self._first = self._offers.predicted_from
        self.uniforms_per_move = n_walkers * model.n_sites


class UniformSampler(_IndependentSampler):
    """Draw every walker uniformly in every move: exact at beta = 0, for any model."""

    def step(self, state: State, ensemble: Ensemble, stream: DeviceStream) -> tuple[State, Info]:
        """Draw all walkers; the ensemble must be uniform."""
        x = stream.integers(self._model.n_values, *state.x.shape)  # [W, D]
        accepted = torch.ones_like(state.z, dtype=torch.bool)
        return State(x, self._model.output(x)), Info(accepted, exact=True)


def conditional_rows(offers: Offers, x: torch.Tensor) -> Iterator[torch.Tensor]:
    """Yield l[:, t], float32 [W, n_values], for the predicted sites t in order.

    The caller sets site t of x, int64 [W, D], before it asks for the next row; the sites before
    `predicted_from` must be set from the beginning.
    """
    first, n_sites = offers.predicted_from, x.shape[1]
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

    u is float64 [W], uniform in [0, 1). Returned are the values, int64 [W], V where u is at least
    the sum, and the sums, float64 [W].
    """
    cumulative = log_weight.exp().cumsum(dim=1)  # [W, V]
    value = torch.searchsorted(cumulative, u[:, None], right=True).squeeze(1)
    return value, cumulative[:, -1]


class AncestralSampler(_IndependentSampler):
    """Independent sequences: x_t from exp(b l_t) / Z_t, b = beta / m, with their probabilities.

    q_b(x) = n_values^-predicted_from * prod_t exp(b l_t[x_t]) / Z_t(b; x_<t) is normalized, so
    that log q, kept for every b of the ladder `beta_k`, is an exact importance weight. The model
    must have `conditional_logits`, else a `UserError` says so.
    """

    def __init__(self, model: Any, n_walkers: int, beta_k: list[float]) -> None:
        require_conditionals(model, 'sampler.method = "ancestral"', 'choose "parallel-tempering"')
        super().__init__(model, n_walkers)
        self._b_k = [beta / (model.n_sites - self._first) for beta in beta_k]

    def step(self, state: State, ensemble: Ensemble, stream: DeviceStream) -> tuple[State, Info]:
        """Draw all walkers; the info's log_q is log q_k, float64 [W, K]."""
        n_walkers, n_sites = state.x.shape
        b = float(ensemble.slope(0.0)) / (n_sites - self._first)
        n_values = self._model.n_values
        x = torch.zeros_like(state.x)
        x[:, : self._first] = stream.integers(n_values, n_walkers, self._first)
        uniform = torch.full((), float(n_values), dtype=torch.float64, device=x.device).log()
        log_q = -self._first * uniform.expand(n_walkers, len(self._b_k)).clone()  # [W, K]
        b_k = torch.tensor(self._b_k, dtype=torch.float64, device=x.device)
        for t, row in enumerate(conditional_rows(self._offers, x), start=self._first):
            row = row.double()  # [W, V]
            log_norm = torch.stack([(b_k * row).logsumexp(1) for b_k in self._b_k], 1)  # [W, K]
            scaled = b * row
            u = stream.uniform(n_walkers)
            value, _ = draw_with_sum(scaled - scaled.logsumexp(1, keepdim=True), u)
            x[:, t] = value.clamp(max=n_values - 1)  # u within rounding of 1
            chosen = row.gather(1, x[:, t : t + 1])  # [W, 1]
            log_q += chosen * b_k
            log_q -= log_norm
        z = self._model.output(x)
        return State(x, z), Info(torch.ones_like(z, dtype=torch.bool), log_q=log_q, exact=True)


class AutoregressiveSampler(_IndependentSampler):
    """Draw every walker from the model's own distribution in every move: exact at beta = m.

    Where values are forbidden, rows sum to less than 1. A sequence for which a uniform number falls
    into the missing rest is rejected whole and drawn again, so that the accepted ones have
    probabilities proportional to prod_t exp(l_t[x_t]). The model must have `conditional_logits`,
    else a `UserError` says so.
    """

    def __init__(self, model: Any, n_walkers: int) -> None:
        require_conditionals(model, "ladder.anchors", "set ladder.anchors = false")
        super().__init__(model, n_walkers)

    def step(self, state: State, ensemble: Ensemble, stream: DeviceStream) -> tuple[State, Info]:
        """Draw all walkers; the ensemble must be the model's own (synchronizes)."""
        drawn, x = torch.zeros_like(state.z, dtype=torch.bool), state.x
        for _ in range(MAX_TRIES):
            x_new, whole = self._draw_once(state.x, stream)
            x = torch.where((whole & ~drawn)[:, None], x_new, x)
            drawn = drawn | whole
            if bool(drawn.all()):
                z = self._model.output(x)
                return State(x, z), Info(torch.ones_like(drawn), exact=True)
        raise RuntimeError(
            f"{MAX_TRIES} tries drew no sequence of allowed values at ladder.anchors; set "
            "ladder.anchors = false"
        )

    def _draw_once(
        self, like: torch.Tensor, stream: DeviceStream
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Return sequences shaped like [W, D], and which of them are whole, bool [W]."""
        n_walkers, n_values = like.shape[0], self._model.n_values
        x = torch.zeros_like(like)
        x[:, : self._first] = stream.integers(n_values, n_walkers, self._first)
        whole = torch.ones(n_walkers, dtype=torch.bool, device=like.device)
        largest = torch.zeros((), dtype=torch.float64, device=like.device)
        for t, row in enumerate(conditional_rows(self._offers, x), start=self._first):
            value, total = draw_with_sum(row.double(), stream.uniform(n_walkers))
            largest = torch.maximum(largest, total.max())
            # Where a row sums to 1 but for rounding, its last value takes the rest.
            inside = (value < n_values) | (total > 1.0 - MAX_DEFICIT)
            whole = whole & inside
            x[:, t] = value.clamp(max=n_values - 1)
        if float(largest) > 1.0 + MAX_EXCESS:
            raise RuntimeError(
                "the model's conditional_logits are no log-probabilities (a row sums to "
                f"{float(largest):.4g}); set ladder.anchors = false"
            )
        return x, whole


def is_normalized(model: Any, x: torch.Tensor) -> bool:
    """Whether a model's conditionals are log-probabilities, judged by inputs x, int64 [W, D]."""
    offers = offers_of(model)
    if offers.conditional_logits is None:
        return False
    _, rows_wdv = offers.conditional_logits(x)
    sums = rows_wdv[:, offers.predicted_from :].logsumexp(dim=-1)
    return bool((sums < MAX_EXCESS).all()) and bool(sums.max() > -1.0)
