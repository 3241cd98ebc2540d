"""Counter-based random streams, keyed by (seed, purpose, indices), never by rank.

Streams have no saved state: a resumed run makes the same streams again. The generator is Philox4x64
(Salmon et al. 2011), keyed by a hash of numpy's SeedSequence.
"""

from __future__ import annotations

from functools import cache

import numpy as np
from numpy.typing import NDArray

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


class Streams:
    """The same streams, for many keys in turn: one generator, which is given another key.

    A new generator takes some 40 us, another key 1 us. A stream ends when the next one begins.
    """

    def __init__(self) -> None:
        self._philox = np.random.Philox(key=0)
        self._begin = self._philox.state
        self._generator = np.random.Generator(self._philox)

    def at(self, key: NDArray[np.uint64]) -> np.random.Generator:
        """Return the stream of a key, uint64 [2], that `keys` returned."""
        self._begin["state"]["key"] = key
        self._philox.state = self._begin
        return self._generator


def keys(seed: int, purpose: str, indices: NDArray[np.int64]) -> NDArray[np.uint64]:
    """Return the keys of n streams at once, uint64 [n, 2], as `generator` finds them one by one.

    indices : int64 [n, m], see `generator`; the result has what numpy's SeedSequence makes of each
    """
    words = np.insert(indices, 0, _PURPOSES[purpose], axis=1).astype(np.uint32)
    pool, constant = _pool_of_seed(seed)  # [4, 1]
    for word_n in words.T:
        factor, constant = _factors(constant, _MIX_A)
        pool = _mixed(pool, _hashed(word_n, factor))  # [4, n]
    factor, _ = _factors(_INIT_B, _MIX_B)
    return np.ascontiguousarray(_hashed(pool, factor).T).view(np.uint64)


# Constants of SeedSequence (O'Neill, "Developing a seed_seq alternative", 2015), which numpy keeps
# from version to version.
_INIT_A, _MIX_A, _INIT_B, _MIX_B = 0x43B0D7E5, 0x931E8875, 0x8B51F9DD, 0x58F38DED
_MIX_LEFT, _MIX_RIGHT = np.uint32(0xCA01F9DD), np.uint32(0x4973F715)
_HALF = np.uint32(16)


def _factors(constant: int, factor: int) -> tuple[NDArray[np.uint32], int]:
    """Return the constants of four hashes in turn, uint32 [5, 1], and the one for the next."""
    constants = [constant * factor**i % 2**32 for i in range(5)]
    return np.array(constants, dtype=np.uint32)[:, None], constants[-1]


def _hashed(words: NDArray[np.uint32], factor: NDArray[np.uint32]) -> NDArray[np.uint32]:
    """Return four hashes of words, uint32 [n] or [4, n]."""
    hashed: NDArray[np.uint32] = (words ^ factor[:-1]) * factor[1:]
    return hashed ^ (hashed >> _HALF)


def _mixed(x: NDArray[np.uint32], y: NDArray[np.uint32]) -> NDArray[np.uint32]:
    mixed: NDArray[np.uint32] = x * _MIX_LEFT - y * _MIX_RIGHT
    return mixed ^ (mixed >> _HALF)


@cache
def _pool_of_seed(seed: int) -> tuple[NDArray[np.uint32], int]:
    """Return the four words, uint32 [4, 1], into which a seed is mixed, and the next constant."""
    factor, constant = _factors(_INIT_A, _MIX_A)
    pool = _hashed(np.array([[seed], [0], [0], [0]], dtype=np.uint32), factor)
    for source in range(4):
        for to in (i for i in range(4) if i != source):
            one = np.array([[constant], [constant * _MIX_A % 2**32]], dtype=np.uint32)
            pool[to] = _mixed(pool[to], _hashed(pool[source], one)[0])
            constant = int(one[1, 0])
    return pool, constant
