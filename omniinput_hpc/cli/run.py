"""From the command line to a finished run: check everything, build, sample, report.

Exit codes: 0 complete, 2 bad input, 75 stopped early in good order, 1 any other failure. All
ranks leave with the same code; a failure on one rank ends all of them (MPI_Abort).
"""

from __future__ import annotations

import argparse
import logging
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from omniinput_hpc import __version__, models
from omniinput_hpc.cli import arguments, common, doctor, salvage, verify
from omniinput_hpc.config import Config, input_file
from omniinput_hpc.errors import EXIT_COMPLETE, StopRun, UserError
from omniinput_hpc.parallel import comm
from omniinput_hpc.parallel.comm import World
from omniinput_hpc.parallel.signals import request
from omniinput_hpc.parallel.stopping import StopCheck
from omniinput_hpc.runfile import layout, lock, writers
from omniinput_hpc.sampling import auto_walkers, build, plan, restart
from omniinput_hpc.text import amount, duration

log = logging.getLogger("omniinput_hpc")


def main(
    argv: Sequence[str] | None = None, world: World | None = None, verb: str = "", program: str = ""
) -> int:
    """Run the program on this rank and return its exit code.

    `argv` are the arguments of ``python -m omniinput_hpc``, or of a `verb` of `arguments.VERBS`,
    whose help and messages call it `program`.
    """
    return common.main(partial(_run, verb=verb, program=program), argv, world)


def _run(world: World, argv: Sequence[str] | None, verb: str, program: str) -> int:
    args = world.together(lambda: arguments.parse_verb(verb, program, world.rank, argv))
    if args.doctor:
        return doctor.run(world, args.input or Path())
    if args.verify:
        return verify.run(world, args.input, args.rescore or 0, args.set)
    if args.salvage:
        return salvage.run(world, args.input, args.salvage)
    given, config = _read_input(world, args)
    auto = given.sampler.walkers == "auto"
    about = world.on_rank_0(lambda: models.preflight(config))
    found = restart.Existing(
        **world.on_rank_0(
            lambda: vars(restart.find_existing(given, about["fingerprint"], args.restart))
        )
    )
    complete = found.resume and found.rounds >= config.run.rounds
    if complete and found.settled and not args.check:
        log.info("%s is complete (%d rounds); nothing to do", config.run.output, found.rounds)
        return EXIT_COMPLETE
    if auto and found.resume:
        config = given.with_walkers(found.walkers)
    hosts = world.hosts()
    built, measured = build.build(world, config, about.get("folder")), None
    find_walkers = auto and not found.resume
    if args.check or find_walkers:
        built, measured = build.try_moves(world, built, hosts, find_walkers)
    if found.resume and not found.checksums:
        built = replace(built, geometry=replace(built.geometry, checksums=False))
    here = _identity(world, built, about)
    folder = layout.target_of(Path(config.run.output)).parent
    writer_kind, reason = world.on_rank_0(
        lambda: writers.choose_writer(config.run.writer, folder, len(set(hosts)))
    )
    _show_plan(
        world,
        plan.Plan(
            built.config, built.geometry, world.texts(built.device), hosts, about["bytes"],
            models.offers_of(built.model).cache_bytes(), writer_kind, reason, found,
            auto_walkers.shown(built.trials), measured if args.check else None,
            built.without_anchor,
        ),
    )  # fmt: skip
    world.on_rank_0(lambda: restart.check_resume(built.config, built.geometry, here, found))
    if found.resume:
        world.together(lambda: restart.check_rounds(Path(config.run.output), built.held))
    if args.check:
        return EXIT_COMPLETE
    with lock.hold(Path(config.run.output), world) as held_lock:

        def prepare() -> None:  # another run may have written while this one read its model
            fresh = restart.find_existing(built.config, here.fingerprint, args.restart)
            if fresh != found:
                restart.check_resume(built.config, built.geometry, here, fresh)
            header = {"config": common.to_toml(built.config), "package_version": __version__}
            build.prepare_file(built, here, fresh, header, held_lock.heartbeat)

        world.on_rank_0(prepare)
        _sample(world, built, writer_kind, args.max_walltime, held_lock)
    return EXIT_COMPLETE


def _identity(world: World, built: build.Built, about: Mapping[str, Any]) -> restart.Identity:
    """Return what tells whether a resumed run has the same model, on the same machine.

    `about` is what `models.preflight` found.
    """
    from omniinput_hpc.models import device as devices

    world.together(built.check_is_function)
    m = built.model_beta
    versions = {**plan.environment(), **devices.versions(), "package_version": __version__}
    source = {"model_source": about["source"]} if about["source"] else {}
    return restart.Identity(
        fingerprint=about["fingerprint"],
        probe_z=world.together(built.probe),
        environment={**versions, **source, **plan.gpus(world, devices.gpu(built.device))},
        model_beta=float("nan") if m is None else m,
    )


def _show_plan(world: World, the_plan: plan.Plan) -> None:
    """Log the plan, and a warning where the disk has too little room."""
    log.info("omniinput_hpc %s\n%s", __version__, plan.describe(the_plan))
    warning = plan.disk_warning(the_plan.config, the_plan.geometry)
    if warning and world.rank == 0:
        log.warning("warning: %s", warning)


def _sample(
    world: World,
    built: build.Built,
    writer_kind: str,
    max_walltime: float | None,
    held_lock: lock.RunLock,
) -> None:
    """Sample until all rounds are in the file, and say where the time went."""
    from omniinput_hpc.sampling import loop

    path = Path(built.config.run.output)
    stopping = StopCheck(request, world, max_walltime, held_lock.heartbeat)
    run = build.start(world, built, writer_kind, stopping, held_lock)
    stopping.moves_begin()
    size = amount(layout.size_in_bytes(built.geometry))
    try:
        with run.writer.or_end(f"{path} ({size} in all)"):
            loop.sample(run)
    except StopRun as stop:
        moves = built.config.sampler.moves_per_round * len(run.rungs)
        stop.outcome = stopping.outcome(moves, ", or fewer sampler.exchanges in a new run")
        run.writer.close()
        raise
    except UserError:  # on all ranks; other failures end them with the file open
        run.writer.close()
        raise
    finally:
        run.progress.close()
    run.writer.close()
    log.info("%s", run.clock.table())
    seconds = request.age
    loop.warn(run)
    log.info("complete: %s, %s", path, duration(seconds))


def _read_input(world: World, args: argparse.Namespace) -> tuple[Config, Config]:
    """Return the input as it is given, and with a number of walkers to begin with, checked."""
    world.together(lambda: plan.check_launch(comm.connected()))
    text = world.on_rank_0(lambda: common.read_input(args))
    given = models.with_side(input_file.parse(text, str(args.input)))
    config = given
    if given.sampler.walkers == "auto":
        config = given.with_walkers(auto_walkers.FIRST_WALKERS)
    world.together(lambda: plan.check_shares(len(config.beta_k), world.size))
    world.together(lambda: plan.check_counters(config))
    return given, config
