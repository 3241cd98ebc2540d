"""Moves of a KV cache as kernels make them: tails rewritten at once or token by token."""

from __future__ import annotations

import torch


def moves_of(kv_cache, model, n_moves):
    """Rewrite random tails, some of them token by token; return all z and rows that are seen."""
    n_walkers, n_sites = kv_cache.n_walkers, model.n_sites
    device = model.token_ids.device
    g = torch.Generator().manual_seed(1)

    def integers(high, *shape):
        return torch.randint(high, shape, generator=g).to(device)

    x = integers(model.n_values, n_walkers, n_sites)
    seen = [kv_cache.evaluate(x)]
    for move in range(n_moves):
        t = int(integers(n_sites - 1, 1))
        y = x.clone()
        y[:, t:] = integers(model.n_values, n_walkers, n_sites - t)
        if move % 3:
            seen.append(kv_cache.propose(y, t))
        else:
            kv_cache.begin(t)
            for site in range(t, n_sites - 1):
                kv_cache.extend(y[:, site])
                seen.append(kv_cache.row())
            kv_cache._score(y, t)
        accepted = (torch.rand(n_walkers, generator=g) < 0.5).to(device)
        kv_cache.accept(accepted)
        x = torch.where(accepted[:, None], y, x)
        if move % 10 == 9:
            seen.append(kv_cache.evaluate(x))
    return seen
