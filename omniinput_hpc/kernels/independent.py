"""Independent draws: uniform inputs, and sequences drawn token by token from a model.

They are kernels without memory: the anchors of a ladder, and the whole of ancestral sampling.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch

from omniinput_hpc.errors import UserError
from omniinput_hpc.kernels.parts.device_rng import DeviceStream
from omniinput_hpc.kernels.state import Info, State, Untuned
from omniinput_hpc.models import Model
from omniinput_hpc.tempering.ensembles import Ensemble

NORMALIZATION_SLACK = 1e-3
"""By how much the sum of a row's probabilities may exceed 1, in rounding errors of float32."""
ROUNDING = 1e-5
"""By how much it may fall short of 1 for the same reason."""
MAX_TRIES = 10_000


class _IndependentSampler(Untuned):
    """What kernels without memory have in common."""

    parts: tuple[str, ...] = ("draw",)

    def __init__(self, model: Model, n_walkers: int) -> None:
        super().__init__()
        self._model = model
        self.uniforms_per_move = n_walkers * model.n_sites

    def start(self, x: torch.Tensor, z: torch.Tensor) -> State:
        """Return the state of walkers; nothing is cached."""
        return State(x, z)


class UniformSampler(_IndependentSampler):
    """Every move draws every walker anew, uniformly: exact where beta = 0, for any model."""

    def step(self, state: State, ensemble: Ensemble, stream: DeviceStream) -> tuple[State, Info]:
        """Draw all walkers; the ensemble must be uniform."""
        x = stream.integers(self._model.n_values, *state.x.shape)  # [W, D]
        return State(x, self._model.output(x)), Info(torch.ones_like(state.z, dtype=torch.bool))


def rows(model: Any, x: torch.Tensor) -> Iterator[torch.Tensor]:
    """Yield l[:, t], float32 [W, n_values], for the sites t that are predicted, one by one.

    Site t of x, int64 [W, D], is to be filled in before the next row is asked for; the sites
    before `predicted_from` must be there from the beginning.
    """
    first, n_sites = predicted_from(model), x.shape[1]
    if hasattr(model, "begin") and hasattr(model, "extend"):
        prefixes = model.begin(x[:, :first])
        for t in range(first, n_sites):
            yield prefixes.log_p
            if t + 1 < n_sites:
                prefixes = model.extend(prefixes, x[:, t])
        return
    for t in range(first, n_sites):
        yield model.conditional_logits(x)[1][:, t]


def predicted_from(model: Any) -> int:
    """Return the first site whose value a model predicts."""
    return int(getattr(model, "predicted_from", 1))


def choose(log_weight: torch.Tensor, u: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Draw values with probabilities exp(log_weight), by inverting their sums.

    Parameters
    ----------
    log_weight : float64 [W, V]
    u : float64 [W], uniform in [0, 1), times the sum where the weights are to be normalized

    Returns
    -------
    int64 [W], the values, V where u is beyond the sum; float64 [W], the sums
    """
    cumulative = log_weight.exp().cumsum(dim=1)  # [W, V]
    value = torch.searchsorted(cumulative, u[:, None], right=True).squeeze(1)
    return value, cumulative[:, -1]


class AncestralSampler(_IndependentSampler):
    """Independent sequences: x_t from exp(b l_t) / Z_t, b = beta / m, with their probabilities.

    q_b(x) = n_values^-predicted_from * prod_t exp(b l_t[x_t]) / Z_t(b; x_<t) is normalized, so
    that log q, kept for every b of the ladder, is an exact importance weight.

    Parameters
    ----------
    model : with `conditional_logits`
    beta_k : the ladder's betas

    Raises
    ------
    UserError
        The model has no conditionals.
    """

    def __init__(self, model: Any, n_walkers: int, beta_k: list[float]) -> None:
        check_conditionals(model, 'sampler.method = "ancestral"')
        super().__init__(model, n_walkers)
        self._first = predicted_from(model)
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
        for t, row in enumerate(rows(self._model, x), start=self._first):
            row = row.double()  # [W, V]
            log_norm = torch.stack([(b_k * row).logsumexp(1) for b_k in self._b_k], 1)  # [W, K]
            scaled = b * row
            u = stream.uniform(n_walkers)
            value, _ = choose(scaled - scaled.logsumexp(1, keepdim=True), u)
            x[:, t] = value.clamp(max=n_values - 1)  # u within rounding of 1
            chosen = row.gather(1, x[:, t : t + 1])  # [W, 1]
            log_q += chosen * torch.tensor(self._b_k, dtype=torch.float64, device=x.device)
            log_q -= log_norm
        z = self._model.output(x)
        return State(x, z), Info(torch.ones_like(z, dtype=torch.bool), log_q=log_q)


class AutoregressiveSampler(_IndependentSampler):
    """Every move draws every walker anew from the model itself: exact where beta = m.

    Where some values are not allowed the rows do not sum to 1: a sequence that runs into the
    missing rest is rejected whole and drawn again, so that what remains has the law
    prod_t exp(l_t[x_t]), up to its constant.

    Raises
    ------
    UserError
        The model has no conditionals.
    """

    def __init__(self, model: Any, n_walkers: int) -> None:
        check_conditionals(model, "ladder.anchors")
        super().__init__(model, n_walkers)
        self._first = predicted_from(model)

    def step(self, state: State, ensemble: Ensemble, stream: DeviceStream) -> tuple[State, Info]:
        """Draw all walkers; the ensemble must be the model's own (synchronizes)."""
        drawn, x = torch.zeros_like(state.z, dtype=torch.bool), state.x
        for _ in range(MAX_TRIES):
            x_new, whole = self._try(state.x, stream)
            x = torch.where((whole & ~drawn)[:, None], x_new, x)
            drawn = drawn | whole
            if bool(drawn.all()):
                z = self._model.output(x)
                return State(x, z), Info(torch.ones_like(drawn))
        raise RuntimeError(
            f"{MAX_TRIES} tries drew no sequence of allowed values at ladder.anchors; set "
            "ladder.anchors = false"
        )

    def _try(self, like: torch.Tensor, stream: DeviceStream) -> tuple[torch.Tensor, torch.Tensor]:
        n_walkers, n_values = like.shape[0], self._model.n_values
        x = torch.zeros_like(like)
        x[:, : self._first] = stream.integers(n_values, n_walkers, self._first)
        whole = torch.ones(n_walkers, dtype=torch.bool, device=like.device)
        largest = torch.zeros((), dtype=torch.float64, device=like.device)
        for t, row in enumerate(rows(self._model, x), start=self._first):
            value, total = choose(row.double(), stream.uniform(n_walkers))
            largest = torch.maximum(largest, total.max())
            # Rows that sum to 1 but for rounding lose nothing: the last value takes the rest.
            inside = (value < n_values) | (total > 1.0 - ROUNDING)
            whole = whole & inside
            x[:, t] = value.clamp(max=n_values - 1)
        if float(largest) > 1.0 + NORMALIZATION_SLACK:
            raise RuntimeError(
                "the model's conditional_logits are no log-probabilities (a row sums to "
                f"{float(largest):.4g}); set ladder.anchors = false"
            )
        return x, whole


def check_conditionals(model: Any, what: str) -> None:
    """Refuse a model without conditionals.

    Raises
    ------
    UserError
    """
    if not hasattr(model, "conditional_logits"):
        raise UserError(f"{what} wants an autoregressive model: this one has no conditional_logits")


def is_normalized(model: Any, x: torch.Tensor) -> bool:
    """Whether a model's conditionals are log-probabilities, as far as inputs x [W, D] tell."""
    if not hasattr(model, "conditional_logits"):
        return False
    _, rows_wdv = model.conditional_logits(x)
    sums = rows_wdv[:, predicted_from(model) :].logsumexp(dim=-1)
    return bool((sums < NORMALIZATION_SLACK).all()) and bool(sums.max() > -1.0)
