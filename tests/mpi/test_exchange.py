"""Exchanges between ranks: walkers stay a permutation, and a wrong exchange is caught."""

import numpy as np
import pytest
from mpi4py import MPI

from omniinput_hpc.parallel.comm import World
from omniinput_hpc.runfile.layout import Geometry
from omniinput_hpc.sampling.exchange import Exchanger, LostWalker
from omniinput_hpc.tempering.ensembles import Canonical
from omniinput_hpc.tempering.ladder import placement

N_RUNGS, W, D = 12, 5, 3
GEOMETRY = Geometry(1, N_RUNGS, W, 10, W, D, 9, 1)


class FakeWalkers:
    def __init__(self, x, z):
        self.place(x, z)

    def place(self, x, z):
        self.x, self.z = x.copy(), z.copy()

    def configurations(self):
        return self.x, self.z


class FakeRung:
    """A rung whose configurations name their walker, so that any mixing shows."""

    def __init__(self, k):
        self.k, self.ensemble = k, Canonical(0.02 * k)
        self.walker_w = np.arange(k * W, (k + 1) * W, dtype=np.int32)
        self.direction_w = np.zeros(W, dtype=np.int8)
        x = np.stack([self.walker_w // 9, self.walker_w % 9, self.walker_w * 0], axis=1)
        self.walkers = FakeWalkers(x.astype(np.uint8), self.walker_w.astype(np.float32))


def play(exchanger_type, n_exchanges=40):
    """Exchange often; return all rungs' walkers, x and z of all ranks, and the imbalance."""
    world = World()
    exchanger = exchanger_type(GEOMETRY, np.linspace(0.0, 1.0, 11), 3, world)
    rungs = [FakeRung(k) for k in placement(N_RUNGS, world.size, world.rank)]
    exchanger.begin_round()
    for exchange in range(n_exchanges):
        exchanger.swap(rungs, exchange)
    walker = np.concatenate(MPI.COMM_WORLD.allgather(np.stack([r.walker_w for r in rungs])))
    x = np.concatenate(MPI.COMM_WORLD.allgather(np.stack([r.walkers.x for r in rungs])))
    accepted = world.sum(exchanger.accepted_k)
    exchanger.check(world.sum(exchanger.imbalance_w))
    return walker, x, accepted


@pytest.mark.mpi(min_size=2)
def test_walkers_stay_a_permutation_and_keep_their_configuration():
    walker, x, accepted = play(Exchanger)
    for lane in range(W):
        np.testing.assert_array_equal(np.sort(walker[:, lane]), np.arange(N_RUNGS) * W + lane)
    np.testing.assert_array_equal(x[..., 0].astype(int) * 9 + x[..., 1], walker)
    assert (accepted > 0).all()
    assert (walker != np.arange(N_RUNGS * W).reshape(N_RUNGS, W)).any()


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
        self._seed += 1000 * (k + 1 in held and k not in held)
        super()._swap_pair(k, held, near, ensembles, exchange)


@pytest.mark.mpi(min_size=2)
@pytest.mark.parametrize("wrong", [OneSided, Mislabelled, OwnUniforms])
def test_wrong_exchanges_are_caught(wrong):
    with pytest.raises(LostWalker):
        play(wrong)
