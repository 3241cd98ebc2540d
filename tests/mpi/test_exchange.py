"""Exchanges between ranks: walkers stay a permutation, and a wrong exchange is caught."""

from dataclasses import replace

import numpy as np
import pytest
from mpi4py import MPI

from omniinput_hpc.parallel.comm import World
from omniinput_hpc.runfile.layout import Geometry
from omniinput_hpc.sampling.exchange import Exchanger, LostWalker
from omniinput_hpc.tempering.ensembles import Canonical
from omniinput_hpc.tempering.ladder import Block, Grid

N_RUNGS, W, D = 12, 12, 3
GEOMETRY = Geometry(1, N_RUNGS, W, 10, W, D, 9, 1)


class FakeWalkers:
    def __init__(self, x, z):
        self.place(x, z)

    def place(self, x, z):
        self.x, self.z = x.copy(), z.copy()

    def configurations(self):
        return self.x, self.z


class FakeRung:
    """A block of a rung whose configurations name their walker, so that any mixing shows."""

    def __init__(self, block):
        self.k, self.ensemble = block.k, Canonical(0.02 * block.k)
        self.walker_w = np.array(block.lanes(W), dtype=np.int32) + self.k * W
        self.direction_w = np.zeros(len(self.walker_w), dtype=np.int8)
        x = np.stack([self.walker_w // 9, self.walker_w % 9, self.walker_w * 0], axis=1)
        self.walkers = FakeWalkers(x.astype(np.uint8), self.walker_w.astype(np.float32))


def play(exchanger_type, n_blocks=1, n_rungs=N_RUNGS, n_exchanges=40):
    """Exchange often; return all walkers, [K, W], and x, and what each pair accepted."""
    world = World()
    geometry = replace(GEOMETRY, n_rungs=n_rungs)
    grid = Grid(n_rungs, n_blocks, world.size)
    exchanger = exchanger_type(geometry, np.linspace(0.0, 1.0, 11), 3, world, grid)
    held = [Block(k, b, n_blocks) for k in grid.rungs(world.rank) for b in grid.blocks(world.rank)]
    rungs = [FakeRung(block) for block in held]
    exchanger.begin_round()
    for exchange in range(n_exchanges):
        exchanger.swap(rungs, exchange)
    walker = np.zeros((n_rungs, W), dtype=np.int64)
    x = np.zeros((n_rungs, W, D), dtype=np.int64)
    for block, rung in zip(held, rungs, strict=True):
        walker[block.k, block.lanes(W)] = rung.walker_w
        x[block.k, block.lanes(W)] = rung.walkers.x
    accepted = world.sum(exchanger.accepted_k)
    exchanger.check(world.sum(exchanger.imbalance_w))
    return world.sum(walker), world.sum(x), accepted


@pytest.mark.mpi(min_size=2)
def test_walkers_stay_a_permutation_and_keep_their_configuration():
    check_permutation(*play(Exchanger))


@pytest.mark.mpi(min_size=2)
def test_blocks_exchange_as_whole_rungs_do():
    """Of 12 lanes in blocks: more ranks than rungs hold them, or as many."""
    for n_rungs, n_blocks in ((3, 4), (3, 12), (4, 12)):
        found = play(Exchanger, n_blocks, n_rungs)
        check_permutation(*found)
        for mine, theirs in zip(found, play_alone(n_rungs), strict=True):
            np.testing.assert_array_equal(mine, theirs)


def play_alone(n_rungs):
    """Return what `play` gives of rungs in one block, on this rank alone."""
    world = World(MPI.COMM_SELF)
    geometry = replace(GEOMETRY, n_rungs=n_rungs)
    grid = Grid(geometry.n_rungs, 1, world.size)
    exchanger = Exchanger(geometry, np.linspace(0.0, 1.0, 11), 3, world, grid)
    rungs = [FakeRung(Block(k)) for k in range(n_rungs)]
    for exchange in range(40):
        exchanger.swap(rungs, exchange)
    walker = np.stack([rung.walker_w for rung in rungs])
    return walker, np.stack([rung.walkers.x for rung in rungs]), exchanger.accepted_k


def check_permutation(walker, x, accepted):
    """Assert that walkers have moved, in their lanes, and kept their inputs."""
    n_rungs = len(walker)
    for lane in range(W):
        np.testing.assert_array_equal(np.sort(walker[:, lane]), np.arange(n_rungs) * W + lane)
    np.testing.assert_array_equal(x[..., 0].astype(int) * 9 + x[..., 1], walker)
    assert (accepted > 0).all()
    assert (walker != np.arange(n_rungs * W).reshape(n_rungs, W)).any()


class OneSided(Exchanger):
    """The upper partner keeps what it has: one walker twice, one lost."""

    def _swap_pair(self, k, held, near, ensembles, exchange):
        upper = held.get(k + 1)
        super()._swap_pair(k, held, near, ensembles, exchange)
        if upper is not None:
            held[k + 1] = upper


class Mislabelled(Exchanger):
    """Configurations travel, identities stay."""

    def _swap_pair(self, k, held, near, ensembles, exchange):
        names = {j: held[j]["walker"].copy() for j in (k, k + 1) if j in held}
        super()._swap_pair(k, held, near, ensembles, exchange)
        for j, walker in names.items():
            held[j]["walker"] = walker


class OwnUniforms(Exchanger):
    """Each partner draws its own random numbers, so that they may decide differently."""

    def _swap_pair(self, k, held, near, ensembles, exchange):
        other = exchange + 1000 * (k + 1 in held and k not in held)
        super()._swap_pair(k, held, near, ensembles, other)


class OtherBlock(Exchanger):
    """What comes is the next block's configuration, under the own record."""

    def _swap_pair(self, k, held, near, ensembles, exchange):
        before = {j: lanes.copy() for j, lanes in {**near, **held}.items()}
        super()._swap_pair(k, held, near, ensembles, exchange)
        for j, other in ((k, k + 1), (k + 1, k)):
            if j in held:
                came = held[j]["walker"] != before[j]["walker"]
                shifted = np.roll(before[other], 3)
                held[j]["x"][came], held[j]["z"][came] = shifted["x"][came], shifted["z"][came]


class BlocksTurned(Exchanger):
    """The blocks of a rung swap whole walkers among themselves, of which nothing is counted."""

    def _swap_pair(self, k, held, near, ensembles, exchange):
        super()._swap_pair(k, held, near, ensembles, exchange)
        for j in (k, k + 1):
            if j in held:
                held[j] = np.roll(held[j], 3)


@pytest.mark.mpi(min_size=2)
@pytest.mark.parametrize("wrong", [OneSided, Mislabelled, OwnUniforms])
def test_wrong_exchanges_are_caught(wrong):
    with pytest.raises(LostWalker):
        play(wrong)


@pytest.mark.mpi(min_size=2)
@pytest.mark.parametrize("wrong", [OneSided, Mislabelled, OwnUniforms, OtherBlock, BlocksTurned])
def test_wrong_exchanges_of_blocks_are_caught(wrong):
    with pytest.raises(LostWalker):
        play(wrong, n_blocks=4)
