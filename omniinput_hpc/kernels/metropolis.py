"""The Metropolis kernel: change a few uniformly drawn sites to uniformly drawn other values."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from omniinput_hpc.config.kernels import Metropolis as Options
from omniinput_hpc.errors import UserError
from omniinput_hpc.kernels.parts.compiled_loop import CompiledLoop, Trace
from omniinput_hpc.kernels.parts.conditionals import kv_cache_of
from omniinput_hpc.kernels.parts.device_rng import DeviceStream
from omniinput_hpc.kernels.state import Info, State, Untuned, accept, decide
from omniinput_hpc.models import Model, law_of, offers_of
from omniinput_hpc.models.checked import compare, seen_finite, watch, watch_law
from omniinput_hpc.models.compiled_change import as_change
from omniinput_hpc.tempering.ensembles import Ensemble

if TYPE_CHECKING:
    from omniinput_hpc.models.language.kv_cache import KVCache
    from omniinput_hpc.models.protocol import Change


def reaches_every_input(sites_of_parts: Sequence[int], n_values: int, n_sites: int) -> bool:
    """Return whether moves that change so many sites (one entry per part) reach every input.

    With three or more values per site they always do: a site can change and change back. With two
    values a move flips its sites. An even number of flips conserves the parity of the number of 1s,
    and flips of all sites alternate between two inputs.
    """
    odd = any(sites % 2 for sites in sites_of_parts)
    return n_values > 2 or (odd and (n_sites == 1 or min(sites_of_parts) < n_sites))


EVALUATE_EVERY = 1000
"""Moves after which z is evaluated again, so that rounding in the sum of changes stays small."""


@dataclass(frozen=True)
class Summed:
    """z as the sum of an evaluated output and all changes since.

    Attributes
    ----------
    z : float64 [W]
    n_moves : moves since the evaluation
    """

    z: torch.Tensor
    n_moves: int = 0


@dataclass(frozen=True)
class OnKvCache:
    """The version of the KV cache that holds x, and ln q(x), float64 [W], if it is kept."""

    version: int
    log_q: torch.Tensor | None = None


class Metropolis(Untuned):
    """Propose new values at `sites` different sites; accept with probability min(1, weight ratio).

    The sites are a uniformly drawn set, and each new value is uniform among the n_values - 1 other
    values. The proposal is therefore symmetric (Metropolis et al. 1953).

    If the model has a KV cache, all walkers change the same sites, drawn independently of the
    state, so that only the sequence from the first of these sites on is evaluated.

    If the model can compute how z changes with one site (`change`) and `sites` is 1, moves add up
    these changes. Whole inputs are then evaluated only at the start, after exchanges, and every
    `EVALUATE_EVERY` moves.

    Attributes
    ----------
    loop : makes moves in compiled code; None unless `sites` is 1 and the model supports it
    rows_alone : whether a walker's move depends on its own random numbers and outputs alone
    """

    def __init__(self, options: Options, model: Model, n_walkers: int) -> None:
        super().__init__()
        if options.sites > model.n_sites:
            raise UserError(
                f"kernel.sites = {options.sites} is more than the model's {model.n_sites} sites"
            )
        self.parts = options.part_names
        self._model, self._sites = model, options.sites
        self._offers = offers_of(model)
        self._kv_cache = kv_cache_of(self._offers, None, n_walkers)
        draws_for_sites = 1 if options.sites == 1 else model.n_sites
        if self._kv_cache is not None:
            draws_for_sites = 0
        draws_for_values = 0 if model.n_values == 2 and self._kv_cache is None else options.sites
        self.uniforms_per_move = n_walkers * (draws_for_sites + draws_for_values + 1)
        self._law = law_of(model)
        self.rows_alone = self._kv_cache is None and self._law is None
        single = options.sites == 1 and self.rows_alone
        self._change = self._offers.change if single else None
        self._change_on_cpu = self._change
        self.loop: CompiledLoop | None = None
        compiled = self._offers.compiled_change
        if single and compiled is not None:
            self._change_on_cpu = as_change(compiled)
            self.loop = CompiledLoop(compiled, model.n_values, model.n_sites)

    def start(self, x: torch.Tensor, z: torch.Tensor) -> State:
        """Return the state of walkers; if moves sum changes of z, evaluate z again."""
        if self._change_of(x) is None:
            return State(x, z)
        z_again = self._model.output(x)
        compare(self._model, x, z, z_again, summed=True)
        return State(x, z_again, Summed(z_again.double()))

    def step(
        self, state: State, ensemble: Ensemble, stream: DeviceStream, replace: bool = False
    ) -> tuple[State, Info]:
        """Move every walker once; `replace` lets a move of whole inputs write into `state.x`."""
        self._kv_cache = kv_cache_of(self._offers, self._kv_cache, len(state.x))
        if self._kv_cache is not None:
            return self._step_with_kv_cache(self._kv_cache, state, ensemble, stream)
        change = self._change_of(state.x)
        if change is not None:
            return self._step_by_change(change, state, ensemble, stream)
        n_walkers, n_sites = state.x.shape
        site = self._choose_sites(n_walkers, n_sites, stream)  # [W, sites]
        old = state.x.gather(1, site)
        value = self._other_values(old, stream)  # [W, sites]
        log_q = self._log_q(state.x, state.z) if state.cache is None else state.cache
        scatter = torch.Tensor.scatter_ if replace else torch.Tensor.scatter
        x_new = scatter(state.x, 1, site, value)  # [W, D]
        z_new = self._model.output(x_new)  # [W]
        log_q_new = self._log_q(x_new, z_new)
        u = stream.uniform(n_walkers)
        accepted = decide(ensemble, state.z, z_new, log_q_new - log_q, u)  # [W]
        kept = accept(accepted, value, old)
        x = scatter(state.x, 1, site, kept)
        z = accept(accepted, z_new, state.z)
        return State(x, z, self._kept(accepted, log_q_new, log_q)), Info(accepted)

    def _other_values(self, old: torch.Tensor, stream: DeviceStream) -> torch.Tensor:
        """Return uniformly drawn values other than the old ones, int64 of the same shape."""
        n_values = self._model.n_values
        if n_values == 2:
            return old ^ 1
        return (old + 1 + stream.integers(n_values - 1, *old.shape)) % n_values

    def _log_q(self, x: torch.Tensor, z: torch.Tensor) -> Any:
        """Return ln q of inputs x, float64 [W], whose outputs are z; 0 without a law."""
        if self._law is None:
            return 0.0
        log_q = self._law.log_q(x, z)
        watch_law(self._model, x, log_q)
        return log_q

    def _kept(self, accepted: torch.Tensor, log_q_new: Any, log_q: Any) -> torch.Tensor | None:
        """Return ln q of the walkers, float64 [W]; None if it follows from z, or is 0."""
        if self._law is None or self._law.gives_z:
            return None
        return accept(accepted, log_q_new, log_q)

    @property
    def sums_changes(self) -> bool:
        """Whether moves on a CPU add up changes of z."""
        return self._change_on_cpu is not None

    def _change_of(self, x: torch.Tensor) -> Change | None:
        """Return the function that computes changes of z on the device of x, or None."""
        return self._change_on_cpu if x.is_cpu else self._change

    def _step_by_change(
        self, change: Change, state: State, ensemble: Ensemble, stream: DeviceStream
    ) -> tuple[State, Info]:
        """Change one site of each walker. The state's cache is a `Summed`; z is its rounded z."""
        if state.cache is None or state.cache.n_moves >= EVALUATE_EVERY:
            state = self.start(state.x, state.z)
        x, summed = state.x, state.cache
        n_walkers, n_sites = x.shape
        site = self._choose_sites(n_walkers, n_sites, stream)  # [W, 1]
        old = x.gather(1, site)  # [W, 1]
        value = self._other_values(old, stream)
        exact = summed.z + change(x, site[:, 0], value[:, 0])  # float64 [W]
        z_new = exact.to(state.z.dtype)
        if not seen_finite(z_new):
            watch(self._model, x.scatter(1, site, value), z_new)
        accepted = decide(ensemble, state.z, z_new, 0.0, stream.uniform(n_walkers))  # [W]
        cache = Summed(accept(accepted, exact, summed.z), summed.n_moves + 1)
        x = x.scatter(1, site, accept(accepted, value, old))
        return State(x, accept(accepted, z_new, state.z), cache), Info(accepted)

    def step_many(
        self, state: State, ensemble: Ensemble, stream: DeviceStream, trace: Trace
    ) -> tuple[State, int, int]:
        """Make one move per row of `trace` in the compiled loop; requires `loop`.

        Returns the new state, the number of accepted moves and the number of recorded samples.
        """
        assert self.loop is not None
        n_accepted = n_samples = done = 0
        while done < len(trace.z_tw):
            if state.cache is None or state.cache.n_moves >= EVALUATE_EVERY:
                state = self.start(state.x, state.z)
            summed = state.cache
            n = min(len(trace.z_tw) - done, EVALUATE_EVERY - summed.n_moves)
            part = trace.part(done, n, n_samples)
            made = self.loop.run(state.x, summed.z, ensemble, stream, part)
            if made.x_bad is not None:
                watch(self._model, made.x_bad, torch.full((1,), torch.nan))
            cache = Summed(made.exact, summed.n_moves + n)
            state = State(made.x, made.exact.to(state.z.dtype), cache)
            n_accepted, n_samples = n_accepted + made.n_accepted, n_samples + made.n_samples
            done += n
        return state, n_accepted, n_samples

    def _step_with_kv_cache(
        self, kv_cache: KVCache, state: State, ensemble: Ensemble, stream: DeviceStream
    ) -> tuple[State, Info]:
        """Change the same sites in all walkers. The state's cache is a `OnKvCache`."""
        x, z, n_walkers = state.x, state.z, len(state.x)
        cache = state.cache or OnKvCache(-1)
        if cache.version != kv_cache.version:
            z = kv_cache.evaluate(x)  # rounded in the same way as the shared part of proposals
            compare(self._model, x, state.z, z)
        log_q = (
            self._log_q(x, z) if cache.log_q is None else cache.log_q
        )  # before a proposal is cached
        sites = self._shared_sites(x.shape[1], stream)
        shift = 1 + stream.integers(self._model.n_values - 1, n_walkers, self._sites)
        x_new = x.clone()
        for index, site in enumerate(sites):
            x_new[:, site] = (x[:, site] + shift[:, index]) % self._model.n_values
        z_new = kv_cache.propose(x_new, min(sites))  # [W]
        watch(self._model, x_new, z_new)
        log_q_new = self._log_q(x_new, z_new)
        accepted = decide(ensemble, z, z_new, log_q_new - log_q, stream.uniform(n_walkers))  # [W]
        kv_cache.accept(accepted)
        z = accept(accepted, z_new, z)
        cache = OnKvCache(kv_cache.version, self._kept(accepted, log_q_new, log_q))
        return State(accept(accepted, x_new, x), z, cache), Info(accepted)

    def _shared_sites(self, n_sites: int, stream: DeviceStream) -> list[int]:
        """Return a uniformly drawn set of sites, shared by all walkers."""
        if self._sites == 1:
            return [int(stream.shared_uniform(1)[0] * n_sites)]
        return [int(site) for site in stream.shared_uniform(n_sites).argsort()[: self._sites]]

    def _choose_sites(self, n_walkers: int, n_sites: int, stream: DeviceStream) -> torch.Tensor:
        if self._sites == 1:
            return stream.integers(n_sites, n_walkers, 1)
        return stream.uniform(n_walkers, n_sites).topk(self._sites, dim=1).indices
