"""Counter-based random streams, keyed by (seed, purpose, indices), never by rank.

Streams have no saved state: a resumed run makes the same streams again. The generator is Philox4x64
(Salmon et al. 2011), keyed by a hash of numpy's SeedSequence.
"""

from __future__ import annotations

import numpy as np

_PURPOSES = {
    "start": 0,
    "moves": 1,
    "exchange": 2,
    "conservation": 3,
    "fingerprint": 4,
    "choices": 5,
    "trial": 6,
    "look-ahead": 7,
    "first-values": 8,
}


def generator(seed: int, purpose: str, *indices: int) -> np.random.Generator:
    """Return the random stream of a key; equal keys give equal streams.

    Parameters
    ----------
    seed : the run's seed, below 2^32
    purpose : one of "start", "moves", "exchange", "conservation", "fingerprint", "choices",
        "trial", "look-ahead", "first-values"
    indices : the rest of the key (rung, round, exchange), each below 2^32
    """
    words = (_PURPOSES[purpose], *indices)
    key = np.random.SeedSequence(seed, spawn_key=words).generate_state(2, np.uint64)
    return np.random.Generator(np.random.Philox(key=key))
