"""The papers' Toy: sequences of 8 digits whose sum is divisible by 30 (OmniInput, section 3.1).

This module holds the rule and the exact conditional probabilities that follow from it; it needs
numpy alone, so that ``omniinput_hpc.zoo.toy:is_valid`` can score samples on a login node.
``python -m omniinput_hpc.zoo.toy`` trains the model (see `toy_training`, which needs torch).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

N_DIGITS = 8
N_VALUES = 10
DIVISOR = 30


def is_valid(x: NDArray[np.integer]) -> NDArray[np.float64]:
    """Score inputs by the Toy's rule: 1 where the digits' sum is divisible by 30, else 0.

    Parameters
    ----------
    x : integer array [n, 8], digits 0 to 9

    Returns
    -------
    float64 array [n]
    """
    return np.asarray(x.sum(axis=1, dtype=np.int64) % DIVISOR == 0, dtype=np.float64)


def completions() -> NDArray[np.int64]:
    """Count the ways to complete a prefix to a valid sequence.

    Returns
    -------
    int64 array [9, 73]
        Entry [t, s]: valid completions of a prefix of t digits that sum to s.
    """
    largest = N_DIGITS * (N_VALUES - 1)
    count_ts = np.zeros((N_DIGITS + 1, largest + 1), dtype=np.int64)
    count_ts[N_DIGITS, ::DIVISOR] = 1
    for t in range(N_DIGITS - 1, -1, -1):
        for s in range(t * (N_VALUES - 1) + 1):
            count_ts[t, s] = count_ts[t + 1, s : s + N_VALUES].sum()
    return count_ts


def next_digit_probabilities() -> NDArray[np.float64]:
    """Return the exact distribution of the next digit of a uniformly drawn valid sequence.

    Returns
    -------
    float64 array [8, 73, 10]
        Entry [t, s, v]: probability that digit t is v after t digits with sum s; all zero where
        no valid sequence begins so.
    """
    count_ts = completions()
    p_tsv = np.zeros((N_DIGITS, count_ts.shape[1], N_VALUES))
    for t in range(N_DIGITS):
        for s in range(t * (N_VALUES - 1) + 1):
            if count_ts[t, s]:
                p_tsv[t, s] = count_ts[t + 1, s : s + N_VALUES] / count_ts[t, s]
    return p_tsv


if __name__ == "__main__":
    from omniinput_hpc.zoo.toy_training import main

    raise SystemExit(main())
