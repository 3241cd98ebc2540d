"""From the command line to a finished run: check everything, build, sample, report.

Exit codes: 0 complete, 2 bad input, 75 stopped early in good order, 1 any other failure. All
ranks leave with the same code; a failure on one rank ends all of them (MPI_Abort).
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from omniinput_hpc import __version__, models, rng
from omniinput_hpc.cli import arguments, common, doctor, verify
from omniinput_hpc.config import Config, input_file
from omniinput_hpc.errors import EXIT_COMPLETE, StopRun, UserError
from omniinput_hpc.parallel import comm
from omniinput_hpc.parallel.comm import World
from omniinput_hpc.parallel.signals import request
from omniinput_hpc.parallel.stopping import StopCheck
from omniinput_hpc.runfile import layout, lock, reader, writers
from omniinput_hpc.runfile.guarded_writer import GuardedWriter
from omniinput_hpc.sampling import auto_walkers, build, loop, plan, restart, versions
from omniinput_hpc.sampling.progress import Progress
from omniinput_hpc.sampling.timing import Clock
from omniinput_hpc.tempering import ensembles
from omniinput_hpc.tempering.adaptation import LadderTuning
from omniinput_hpc.text import amount, duration

if TYPE_CHECKING:
    from omniinput_hpc.sampling.rung import Rung

log = logging.getLogger("omniinput_hpc")

N_PROBES = 16


def main(argv: Sequence[str] | None = None, world: World | None = None) -> int:
    """Run the program on this rank and return its exit code."""
    return common.main(_run, argv, world)


def _run(world: World, argv: Sequence[str] | None) -> int:
    args = world.together(lambda: arguments.parse(world, argv))
    if args.doctor:
        return doctor.run(world, args.input or Path())
    if args.verify:
        return verify.run(world, args.input, args.rescore or 0, args.set)
    world.together(lambda: plan.check_launch(comm.connected()))
    text = world.on_rank_0(lambda: common.read_input(args))
    asked = input_file.parse(text, str(args.input))
    auto = asked.sampler.walkers == "auto"
    config = asked.with_walkers(auto_walkers.FEWEST) if auto else asked
    world.together(lambda: plan.check_ranks(config, world.size))
    world.together(lambda: plan.check_counters(config))
    about = world.on_rank_0(lambda: models.preflight(config))
    found = world.on_rank_0(lambda: restart.judge(asked, about["fingerprint"], args.restart))
    if found["resume"] and found["rounds"] >= config.run.rounds and not args.check:
        log.info("%s is complete (%d rounds); nothing to do", config.run.output, found["rounds"])
        return EXIT_COMPLETE

    if auto and found["resume"]:
        config = asked.with_walkers(found["walkers"])
    hosts = world.hosts()
    built = build.build(world, config, about.get("folder"))
    measured = None
    if args.check or (auto and not found["resume"]):
        built, measured = build.try_moves(world, built, hosts, auto and not found["resume"])
    config, geometry, rungs = built.config, built.geometry, built.rungs
    probe_z = world.together(lambda: _probe(geometry, rungs[0]))
    about["model_beta"] = rungs[0].model_beta

    folder = Path(config.run.output).absolute().parent
    writer_kind, reason = writers.choose_writer(config.run.writer, folder, len(set(hosts)))
    the_plan = plan.Plan(
        config, geometry, world.texts(built.device), hosts, about["bytes"],
        models.offers_of(built.model).cache_bytes(), writer_kind, reason, found,
        auto_walkers.shown(built.trials), measured if args.check else None,
    )  # fmt: skip
    log.info("omniinput_hpc %s\n%s", __version__, plan.describe(the_plan))
    warning = plan.disk_warning(config, geometry)
    if warning and world.rank == 0:
        log.warning("warning: %s", warning)
    from omniinput_hpc.models import device as devices

    now = {**versions.here(), **devices.versions()}
    world.on_rank_0(lambda: _check_resume(config, geometry, probe_z, now, found))
    if args.check:
        return EXIT_COMPLETE

    with lock.hold(Path(config.run.output), world) as mine:

        def prepare() -> None:  # another run may have written while this one read its model
            fresh = restart.judge(config, about["fingerprint"], args.restart)
            if fresh != found:
                _check_resume(config, geometry, probe_z, now, fresh)
            _prepare_file(config, geometry, about, probe_z, now, fresh, mine)

        world.on_rank_0(prepare)
        return _sample(world, config, geometry, rungs, writer_kind, args.max_walltime, mine)


def _probe(g: layout.Geometry, rung: Rung) -> list[float]:
    """Return z at 16 inputs that never change: they tell whether the model is still the same."""
    shape = (g.n_walkers, g.n_sites)
    z: list[float] = []
    random = rng.generator(0, "fingerprint", g.n_sites)
    while len(z) < N_PROBES:
        x = random.integers(g.n_values, size=shape).astype(g.x_dtype)
        z.extend(rung.batch.evaluate(x).tolist())
    return z[:N_PROBES]


def _check_resume(
    config: Config, g: layout.Geometry, probe_z: list[float], here: dict[str, str], found: Any
) -> None:
    """Compare the model and the machine with those of the file; warn, or refuse."""
    if not found["resume"]:
        return
    path = Path(config.run.output)
    with reader.open_run(path) as run:
        fits = layout.Geometry(**{**vars(run.geometry), "rounds": g.rounds}) == g
        stored_z = run.probe_z
        run.checkpoint(range(run.geometry.n_rungs))  # refuses what nobody can go on from
        threads = run.config["run"].get("threads", 1)
    same = fits and stored_z.shape == (len(probe_z),)
    if not same or not np.abs(stored_z - probe_z).max() <= models.closeness(config):
        raise UserError(
            f"run.output = {path} holds a run of another model (its outputs differ); choose "
            "another run.output, or move it away"
        )
    now = {**here, "threads": str(config.run.threads)}
    then = {**found["attributes"], "threads": str(threads)}
    changed = [f"{k} was {then[k]}, is {now[k]}" for k in now if then.get(k, now[k]) != now[k]]
    if changed:
        log.warning(
            "warning: going on elsewhere than before, so that the last bits of z may differ: %s",
            "; ".join(changed),
        )


def _prepare_file(
    config: Config,
    g: layout.Geometry,
    about: dict[str, Any],
    probe_z: list[float],
    here: dict[str, str],
    found: dict[str, Any],
    mine: lock.RunLock,
) -> None:
    """Create the run file, or make it longer."""
    path = Path(config.run.output)
    toml = common.to_toml(config)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        if not found["resume"]:
            attributes = {
                "config": toml,
                "model_fingerprint": about["fingerprint"],
                "package_version": __version__,
                "model_probe_z": np.array(probe_z),
                "model_beta": np.nan if about["model_beta"] is None else about["model_beta"],
                **here,
            }
            layout.create(path, g, _first_values(config), attributes)
        elif config.run.rounds > found["planned"]:
            layout.grow(path, g, toml, mine.heartbeat)
    except OSError as error:
        reason = error.strerror or str(error)
        raise UserError(f"run.output = {path} cannot be made: {reason}") from None


def _first_values(config: Config) -> dict[str, Any]:
    beta_k, edges, all_k = config.beta_k, config.bins.edges, ensembles.of_run(config)
    return layout.first_values(
        beta_k,
        edges,
        np.stack([ensembles.log_weight_b(one, edges) for one in all_k]),
        np.array([getattr(one, "kappa", 0.0) for one in all_k]),
        np.array([getattr(one, "z0", 0.0) for one in all_k]),
    )


def _sample(
    world: World,
    config: Config,
    g: layout.Geometry,
    rungs: Sequence[Rung],
    writer_kind: str,
    max_walltime: float | None,
    mine: lock.RunLock,
) -> int:
    from omniinput_hpc.sampling.exchange import Exchanger

    path, held = Path(config.run.output), range(rungs[0].k, rungs[-1].k + 1)
    checkpoint, first = world.together(lambda: _read_checkpoint(path, config, held))
    m = rungs[0].model_beta
    tune = config.ladder is not None and config.ladder.tune
    fixed = (0.0,) if m is None else (0.0, m)
    tuning = LadderTuning(config.beta_k, config.run.burn_in, tune, fixed)
    exchanger = Exchanger(ensembles.of_run(config), g, config.run.seed, world)
    for rung in rungs:  # one object for both: what a rung learns its exchanges know
        exchanger.ensembles[rung.k] = rung.host_ensemble
    if checkpoint is not None:
        tuning.resume(checkpoint.adapted["beta"], checkpoint.adapted["swaps"])
        if tune:
            loop.take_betas(tuning, rungs, exchanger)
    for index, rung in enumerate(rungs):
        if checkpoint is None:
            rung.start()
        else:
            rung.resume(checkpoint, index)
    writer = GuardedWriter(writers.open_writer(writer_kind, path, g, held, world), mine, world)
    stopping = StopCheck(request, world, max_walltime, mine.heartbeat)
    moves = config.sampler.moves_per_round * g.n_walkers * g.n_rungs
    progress = Progress(
        first, g.rounds, config.run.burn_in, moves, world.rank == 0, config.sampler.exchanges
    )
    clock = Clock(world)
    in_all = f"{path} ({amount(layout.size_in_bytes(g))} in all)"
    try:
        with writer.or_end(in_all):
            totals = loop.run(
                config, rungs, exchanger, tuning, writer, world, stopping, clock, progress, first
            )
    except (StopRun, UserError):  # on all ranks; other failures end them with the file open
        writer.close()
        raise
    finally:
        progress.close()
    writer.close()
    _report(world, config, clock, totals, tuning)
    return EXIT_COMPLETE


def _read_checkpoint(
    path: Path, config: Config, rungs: range
) -> tuple[reader.Checkpoint | None, int]:
    """Return the walkers to go on with, and the next round (burn-in is negative)."""
    with reader.open_run(path) as run:
        next_round = run.rounds or run.burn_in_committed - config.run.burn_in
        return run.checkpoint(rungs), next_round


def _report(
    world: World, config: Config, clock: Clock, totals: loop.Totals, tuning: LadderTuning
) -> None:
    """Print where the time went, and what looks wrong."""
    table = clock.table()
    seconds = request.age
    log.info("%s", table)
    if world.rank == 0:
        loop.warn(totals, tuning.beta_k)
    log.info("complete: %s, %s", config.run.output, duration(seconds))
