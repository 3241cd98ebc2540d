"""The KV caches that a model owns: of the walkers, of whole evaluations, and of draws."""

from __future__ import annotations

from collections.abc import Callable

import torch

from omniinput_hpc.errors import UserError
from omniinput_hpc.models.device import release_unused
from omniinput_hpc.models.language.kv_cache import KVCache


class SharedCaches:
    """At most one KV cache for each use.

    Parameters
    ----------
    make : returns a `KVCache` of W inputs
    n_sites : D, for messages
    device : of the model
    """

    def __init__(self, make: Callable[[int], KVCache], n_sites: int, device: torch.device) -> None:
        self._make, self._n_sites, self._device = make, n_sites, device
        self._kv_cache: KVCache | None = None
        self._scratch: KVCache | None = None
        self._drawing: KVCache | None = None

    @property
    def n_bytes(self) -> int:
        """Memory of the caches in bytes."""
        return sum(cache.n_bytes for cache in self._all)

    @property
    def without_graphs(self) -> str:
        """Why a GPU evaluates without CUDA graphs; "" if it uses them, and on a CPU."""
        return next((c.without_graphs for c in self._all if c.without_graphs), "")

    @property
    def _all(self) -> list[KVCache]:
        caches = (self._kv_cache, self._scratch, self._drawing)
        return [cache for cache in caches if cache is not None]

    def drawing(self, n: int) -> KVCache:
        """Return a cache that draws n inputs: an existing one of this size, or a separate one."""
        if any(c is not None and c.n_walkers == n for c in (self._kv_cache, self._scratch)):
            return self.whole(n)
        if self._drawing is None or self._drawing.n_walkers != n:
            self._drawing = None
            release_unused()
            try:
                self._drawing = self._make(n)
            except torch.OutOfMemoryError:
                raise UserError(
                    f"keys and values of {n} inputs of {self._n_sites} tokens, which are drawn "
                    f"together, do not fit on {self._device} beside the model; set a smaller "
                    "sampler.walkers, or ladder.anchors = false"
                ) from None
        return self._drawing

    def shared(self, n_walkers: int) -> KVCache:
        """Return the cache of W walkers, which all callers with the same W share."""
        if self._kv_cache is None or self._kv_cache.n_walkers != n_walkers:
            self._kv_cache = None
            if self._scratch is not None and self._scratch.n_walkers != n_walkers:
                self._scratch = None
            release_unused()  # else a smaller cache would keep parts of a larger one's memory
            try:
                self._kv_cache, self._scratch = self.whole(n_walkers), None
                self._kv_cache.allocate()
            except torch.OutOfMemoryError:
                raise UserError(
                    f"keys and values of {n_walkers} inputs of {self._n_sites} tokens do not fit "
                    f"on {self._device} beside the model; set a smaller sampler.walkers"
                ) from None
        return self._kv_cache

    def whole(self, n_walkers: int) -> KVCache:
        """Return the cache that evaluates whole inputs: the shared one if it has W inputs.

        Otherwise another one is kept, and replaced if it has a different W.
        """
        if self._kv_cache is not None and self._kv_cache.n_walkers == n_walkers:
            return self._kv_cache
        if self._scratch is None or self._scratch.n_walkers != n_walkers:
            self._scratch = self._make(n_walkers)
        return self._scratch
