"""A rank's part of a run, made from an input: its model, its rungs, as many walkers as fit."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from omniinput_hpc import models
from omniinput_hpc.config import Config, WangLandau
from omniinput_hpc.parallel.comm import World
from omniinput_hpc.runfile import layout
from omniinput_hpc.sampling import auto_walkers, plan
from omniinput_hpc.tempering import ensembles
from omniinput_hpc.tempering.ladder import placement

if TYPE_CHECKING:
    from omniinput_hpc.sampling.rung import Rung

LONGEST_TRIAL = 20.0
"""Seconds that a check alone may take to measure the memory of moves."""


@dataclass(frozen=True)
class Built:
    """What a rank runs.

    Attributes
    ----------
    device : "cpu", "cuda:2"
    trials : those that found the number of walkers, where the input leaves it open
    """

    config: Config
    device: str
    model: models.Model
    geometry: layout.Geometry
    rungs: list[Rung]
    trials: list[auto_walkers.Trial] = field(default_factory=list)


def build(world: World, config: Config, folder: str | None) -> Built:
    """Make this rank's model and rungs (all ranks call this).

    What is wrong shows on one rank a host, before the others take seconds to import torch.

    Raises
    ------
    UserError
        On all ranks: the model cannot be built, or not be used as the input asks.
    """
    local_rank = world.local_rank()

    def make() -> Built:
        from omniinput_hpc.models import device as devices  # imports torch

        device = devices.choose(config.run.device, local_rank, config.run.threads)
        model = models.build(config, device, folder)
        geometry = plan.geometry_of(config, model.n_values, model.n_sites)
        rungs = make_rungs(config, geometry, model, device, _mine(world, config))
        return Built(config, device, model, geometry, rungs)

    return world.one_a_host_first(make)


def try_moves(world: World, built: Built, hosts: list[str], find: bool) -> tuple[Built, str | None]:
    """Find the number of walkers, if it is wanted, and what memory moves take, for a person.

    None in place of the latter where moves take too long to try only for that.
    """
    trial, room, seconds = _trials(world, built, hosts)
    config, g = built.config, built.geometry
    if find:
        built.rungs.clear()
        trials = auto_walkers.find(world, trial, room, auto_walkers.most_walkers(config))
        config = config.with_walkers(trials[-1].n_walkers)
        g = plan.geometry_of(config, g.n_values, g.n_sites)
        mine_k = _mine(world, config)
        rungs = world.together(lambda: make_rungs(config, g, built.model, built.device, mine_k))
        built = replace(built, config=config, geometry=g, rungs=rungs, trials=trials)
    elif not world.all(2 * auto_walkers.MOVES * g.n_walkers * seconds < LONGEST_TRIAL):
        return built, None
    last = built.trials[-1] if find else trial(g.n_walkers)
    return built, auto_walkers.measured(world, last, room, built.device)


def _mine(world: World, config: Config) -> range:
    return placement(len(config.beta_k), world.size, world.rank)


def _trials(
    world: World, built: Built, hosts: list[str]
) -> tuple[Callable[[int], auto_walkers.Trial], auto_walkers.Room, float]:
    """Return what tries a number of walkers on a rung in the middle of this rank's, and its room.

    And the seconds of a move of one walker. See `fitting`.
    """
    from omniinput_hpc.models import device as devices

    config, g, device = built.config, built.geometry, built.device
    mine_k = _mine(world, config)

    def trial(n_walkers: int) -> auto_walkers.Trial:
        short = auto_walkers.trial_config(config, n_walkers)
        of_trial = plan.geometry_of(short, g.n_values, g.n_sites)
        k = mine_k[len(mine_k) // 2]
        return auto_walkers.try_rung(
            lambda: make_rungs(short, of_trial, built.model, device, [k])[0],
            of_trial,
            device,
            config.run.threads,
            several=len(mine_k) > 1,
        )

    first = trial(1)  # what libraries take at their first call is no walker's
    ranks_here = hosts.count(hosts[world.rank])
    room = auto_walkers.Room(
        len(mine_k),
        auto_walkers.FILL * devices.amount_free(device) / devices.sharers(device, ranks_here),
        auto_walkers.FILL * devices.amount_free("cpu") / ranks_here,
        plan.bytes_of_records(g, len(mine_k)) / g.n_walkers,
        devices.held(device),
        devices.held("cpu"),
    )
    return trial, room, first.seconds


def make_rungs(
    config: Config, g: layout.Geometry, model: models.Model, device: str, ks: Sequence[int]
) -> list[Rung]:
    """Return some rungs, their walkers not placed; the model is tried out.

    Raises
    ------
    UserError
        The model or the kernel cannot do what is asked.
    """
    import torch

    from omniinput_hpc import kernels
    from omniinput_hpc.kernels.wang_landau import FlatOnDevice
    from omniinput_hpc.models.checked import CheckedModel, try_out
    from omniinput_hpc.sampling.anchors import Anchors
    from omniinput_hpc.sampling.rung import Rung
    from omniinput_hpc.sampling.walkers import Batch

    name = f"the model ({config.model.kind})"
    checked = CheckedModel(model, name)
    try_out(model, torch.zeros((g.n_walkers, g.n_sites), dtype=torch.int64, device=device), name)
    s = config.sampler
    x_tried = torch.zeros((g.n_walkers, g.n_sites), dtype=torch.int64, device=device)
    ancestral = config.beta_k.tolist() if g.log_q else None
    anchors = Anchors(checked, x_tried, config.ladder is not None and config.ladder.anchors,
                      ancestral)  # fmt: skip
    host = ensembles.of_run(config)
    rungs = []
    for k in ks:
        kernel = kernels.build(config.kernel, checked, g.n_walkers)
        ensemble = host[k]
        batch = Batch(
            kernel,
            checked,
            ensemble,
            torch.device(device),
            s.steps,
            config.samples.every,
            g.x_dtype,
        )
        rung = Rung(k, batch, kernel, anchors, g, config.bins.edges, config.run.seed)
        on_device = ensemble
        if isinstance(ensemble, ensembles.Flat):
            options = config.wang_landau or WangLandau()
            on_device = FlatOnDevice(ensemble, options, torch.device(device), g.n_walkers)
        rung.sample_by(ensemble, on_device, float(config.beta_k[k]))
        rungs.append(rung)
    return rungs
