"""The blocks of a device stream change nothing but the number of copies."""

import numpy as np
import torch

from omniinput_hpc import rng
from omniinput_hpc.kernels import DeviceStream


def take(block):
    stream = DeviceStream(rng.generator(1, "moves", 2, 3), torch.device("cpu"), block)
    parts = [stream.uniform(5), stream.uniform(2, 3).flatten(), stream.uniform(40)]
    return torch.cat(parts).numpy()


def test_block_size_does_not_matter():
    expected = rng.generator(1, "moves", 2, 3).random(51)
    for block in (1, 7, 51, 1000):
        np.testing.assert_array_equal(take(block), expected)


def test_integers_are_uniform():
    stream = DeviceStream(rng.generator(1, "moves", 0), torch.device("cpu"), 1000)
    n = 70_000
    counts = torch.bincount(stream.integers(7, n), minlength=7).numpy()
    chi_square = ((counts - n / 7) ** 2 / (n / 7)).sum()
    assert chi_square < 6 + 5 * np.sqrt(12)  # 5 sigma for 6 degrees of freedom
