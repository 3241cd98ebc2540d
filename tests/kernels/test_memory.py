"""Rounds of moves leave nothing behind: resident memory stays where it is."""

import multiprocessing
import os
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import numpy as np
import pytest
import torch

from omniinput_hpc import kernels, rng
from omniinput_hpc.config import CausalLm
from omniinput_hpc.config.kernels import LmConditional, Metropolis
from omniinput_hpc.models.checked import CheckedModel
from omniinput_hpc.models.language import causal_lm
from omniinput_hpc.sampling.walkers import Recording, Walkers
from omniinput_hpc.tempering.ensembles import Canonical

pytestmark = pytest.mark.slow

TOY = Path(__file__).resolve().parents[2] / "inputs/models/toy"
ROUNDS = int(os.environ.get("MEMORY_ROUNDS", "60"))  # MEMORY_ROUNDS=10000 is the long version
GROWTH = 2 << 20


def resident():
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


def grown(kernel_options, rounds, hoards=False):
    """Return how many bytes rounds of 5 moves of 8 walkers add, after a sixth of them.

    In a process of its own: memory that earlier tests freed would take up what these rounds leave.
    """
    spawn = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(1, mp_context=spawn) as pool:
        return pool.submit(_grown_here, kernel_options, rounds, hoards).result()


def _grown_here(kernel_options, rounds, hoards):
    model = CheckedModel(
        causal_lm.build(CausalLm(kind="causal-lm", path=str(TOY), length=8), "cpu"), "toy"
    )
    kernel = kernels.build(kernel_options, model, 8)
    recording = Recording(5, 5, np.dtype(np.uint8))
    walkers = Walkers(kernel, model, Canonical(1.0), torch.device("cpu"), recording)
    walkers.place(np.zeros((8, 8), dtype=np.uint8), np.ones(8, dtype=np.float32))
    before, hoard = 0, []
    for r in range(rounds):
        own, shared = (rng.generator(1, purpose, r) for purpose in ("moves", "choices"))
        segment = walkers.begin_segment(own, shared, 0)
        for _ in range(5):
            segment.step()
        segment.recorded()
        walkers.place(*walkers.configurations())
        if hoards:
            hoard.append(np.ones(1 << 14))
        if r == rounds // 6:
            before = resident()
    return resident() - before


@pytest.mark.parametrize("options", [Metropolis(), LmConditional(name="lm-conditional")])
def test_resident_memory_is_flat(options):
    assert grown(options, ROUNDS) < GROWTH


def test_a_kernel_that_hoards_is_noticed():
    assert grown(Metropolis(), 60, hoards=True) > GROWTH
