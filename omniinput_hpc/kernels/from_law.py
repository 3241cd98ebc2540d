"""Redraw spans of sites from the law of inputs; accept by the change of the output."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

from omniinput_hpc.config.kernels import FromLaw as Options
from omniinput_hpc.errors import UserError
from omniinput_hpc.kernels.parts.device_rng import DeviceStream
from omniinput_hpc.kernels.parts.spans import SpanSchedule
from omniinput_hpc.kernels.parts.tilt import log_tilt
from omniinput_hpc.kernels.state import Info, State, Untuned, accept, decide
from omniinput_hpc.models import Model, law_of
from omniinput_hpc.models.checked import compare, watch, watch_law
from omniinput_hpc.tempering.ensembles import Ensemble


@dataclass(frozen=True)
class LawCache:
    """The terms of ln q(x), float64 [W, D], and the version of the KV cache that holds x.

    tilt : what a second direction adds to ln of the weights, float64 [W]; 0 without one
    """

    log_q: torch.Tensor
    version: int
    tilt: torch.Tensor | float = 0.0


class FromLaw(Untuned):
    """Redraw sites i..j from the law q, given the sites before them.

    The proposal's probability cancels against q on the span, so a move is accepted with probability

    min(1, exp(-beta (z' - z)) * product over t > j of q(x_t | x'_<t) / q(x_t | x_<t)).

    For a suffix the product is empty: of an MCMC on a program's traces this is the move that
    redraws a trace from some choice on (Wingate, Stuhlmueller & Goodman 2011). Any output will do:
    no gradient is needed. The span is independent of the state and the same for all walkers. In a
    constrained space q is uniform inside, and the product is the ratio of the numbers of ways to
    complete the input after the span, or 0. A second direction adds its change of -lambda y.

    Raises a `UserError` without a law.
    """

    def __init__(self, options: Options, model: Model, n_walkers: int) -> None:
        super().__init__()
        law = law_of(model)
        if getattr(law, "base", law) is None:
            raise UserError(
                f'kernel.name = "{options.name}" redraws sites from a law of inputs: add a table '
                '[law], or choose "metropolis"'
            )
        self._law: Any = law  # an `InputLaw`
        self._model = model
        self._kv_cache = law.kv_cache(None, n_walkers)
        self._schedule = SpanSchedule(options, model.n_sites)
        self.parts = options.part_names
        self.uniforms_per_move = n_walkers * (model.n_sites // 2 + 1)

    def step(self, state: State, ensemble: Ensemble, stream: DeviceStream) -> tuple[State, Info]:
        """Move every walker once: redraw one span."""
        x, z, law = state.x, state.z, self._law
        self._kv_cache = law.kv_cache(self._kv_cache, len(x))
        cache = state.cache
        if cache is None or cache.version != self._version:
            log_q = law.log_q_sites(x, self._kv_cache)
            cache = LawCache(log_q, self._version, log_tilt(law, x))
            if law.gives_z:  # rounded as that of proposals
                found = law.loss(cache.log_q).to(z.dtype)
                compare(self._model, x, z, found)
                z = found
        span = law.widened(self._schedule.draw(stream.shared_uniform(3)))
        u = stream.uniform(len(x), span.end - span.begin)
        x_new, log_q = law.redraw(x, cache.log_q, span, u, self._kv_cache)
        watch_law(self._model, x_new, log_q.sum(dim=1))
        z_new = self._output(x_new, log_q, z)
        after = (log_q - cache.log_q)[:, span.end :].sum(dim=1)
        tilt = log_tilt(law, x_new)
        after = after + tilt - cache.tilt
        accepted = decide(ensemble, z, z_new, after, stream.uniform(len(x)))
        if self._kv_cache is not None:
            self._kv_cache.accept(accepted)
        if isinstance(tilt, torch.Tensor):
            tilt = accept(accepted, tilt, cache.tilt)
        cache = LawCache(accept(accepted, log_q, cache.log_q), self._version, tilt)
        moved = State(accept(accepted, x_new, x), accept(accepted, z_new, z), cache)
        return moved, Info(accepted, span.part)

    def _output(self, x: torch.Tensor, log_q: torch.Tensor, z: torch.Tensor) -> torch.Tensor:
        """Return the outputs of proposals x, [W], whose terms of ln q are `log_q`."""
        if not self._law.gives_z:
            return self._model.output(x)
        z_new: torch.Tensor = self._law.loss(log_q).to(z.dtype)
        watch(self._model, x, z_new)
        return z_new

    @property
    def _version(self) -> int:
        return 0 if self._kv_cache is None else int(self._kv_cache.version)
