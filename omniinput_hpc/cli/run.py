"""From the command line to a finished run: check everything, build, sample, report.

Exit codes: 0 complete; 2 bad input; 75 stopped early, with everything committed; 1 any other
failure. All ranks exit with the same code; a failure on one rank aborts all of them (MPI_Abort).
"""

from __future__ import annotations

import argparse
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from omniinput_hpc import models
from omniinput_hpc.cli import arguments, common, doctor, salvage, verify
from omniinput_hpc.cli.verbs import salvage as salvage_verb
from omniinput_hpc.cli.verbs import verify as verify_verb
from omniinput_hpc.config import Config
from omniinput_hpc.errors import EXIT_COMPLETE, StopRun, UserError
from omniinput_hpc.parallel import comm
from omniinput_hpc.parallel.comm import World
from omniinput_hpc.parallel.signals import request
from omniinput_hpc.parallel.stopping import StopCheck
from omniinput_hpc.runfile import layout, lock, writers
from omniinput_hpc.sampling import kept_walkers, restart, shapes
from omniinput_hpc.text import __version__, amount, duration, shown_path

if TYPE_CHECKING:  # they import torch: only once the input and the run file have been checked
    from omniinput_hpc.sampling import plan
    from omniinput_hpc.sampling.built import Built

log = logging.getLogger("omniinput_hpc")

PROGRAM = "python -m omniinput_hpc"
OTHERS: dict[str, Callable[..., int]] = {
    "doctor": doctor.command,
    "verify": verify_verb.command,
    "salvage": salvage_verb.command,
}
"""Verbs that ``python -m omniinput_hpc`` also has as options."""


def main(
    argv: Sequence[str] | None = None, world: World | None = None, verb: str = "", program: str = ""
) -> int:
    """Run the program on this rank and return its exit code.

    `argv` are the arguments of ``python -m omniinput_hpc`` (`verb` ""), or of one of the verbs run,
    check and `OTHERS`. `program` is the command's name in help texts and messages.
    """
    command = OTHERS.get(verb) or partial(_run, verb=verb)
    return common.main(partial(command, program=program), argv, world)


def _run(world: World, argv: Sequence[str] | None, verb: str, program: str) -> int:
    args = world.together(lambda: parse_arguments(verb, program, world.rank, argv))
    if args.doctor:
        return doctor.run(world, args.input or Path())
    if args.verify:
        return verify.run(world, args.input, args.rescore or 0, args.set)
    if args.salvage:
        return salvage.run(world, args.input, args.salvage)
    given, config = _read_input(world, args)
    about = world.on_rank_0(lambda: models.preflight(config, hashed=False))
    fingerprint = models.pending_fingerprint(config, about).result if world.rank == 0 else str
    found = restart.Existing(
        **world.on_rank_0(lambda: vars(restart.find_existing(given, fingerprint, args.restart)))
    )
    complete = found.resume and found.rounds >= config.run.rounds
    if complete and found.settled and not args.check:
        log.info("%s is complete (%d rounds); nothing to do", config.run.output, found.rounds)
        return EXIT_COMPLETE
    config = found.as_begun(given) if found.resume else config
    hosts = world.hosts()
    log.info("all ranks are ready after %s; loading torch and the model", duration(request.age))
    from omniinput_hpc.sampling import build, forecast, plan

    built = build.build(world, config, about.get("folder"))
    about = {**about, "fingerprint": world.on_rank_0(fingerprint)}
    to_find = given if given.sampler.walkers == "auto" and not found.resume else None
    built, measured, trials = _tried(world, built, to_find, about["fingerprint"], args.check)
    built = replace(built, geometry=found.shapes(built.geometry))
    here = _identity(world, built, about)
    target = layout.target_of(Path(config.run.output))
    writer_kind, reason = world.on_rank_0(
        lambda: writers.choose_writer(config.run.writer, target, len(set(hosts)))
    )
    forecasted = forecast.tried(world, built) if args.check else None
    _show_plan(
        world,
        plan.Plan(
            built.config, built.geometry, world.texts(built.device), hosts, about["bytes"],
            models.offers_of(built.model).cache_bytes(), writer_kind, reason, found,
            trials, measured, built.without_anchor, forecasted, built.model_beta,
            world.on_rank_0(lambda: models.about_tokens(config)), built.inside,
        ),
    )  # fmt: skip
    world.on_rank_0(lambda: restart.check_resume(built.config, built.geometry, here, found))
    if found.resume:
        world.together(lambda: restart.check_rounds(Path(config.run.output), built.written))
    if args.check:
        return _end_check(world, given)
    with lock.hold(Path(config.run.output), world) as held_lock:

        def prepare() -> None:  # another run may have written while this one loaded its model
            fresh = restart.find_existing(built.config, here.fingerprint, args.restart)
            if fresh != found:
                restart.check_resume(built.config, built.geometry, here, fresh)
            header = {"config": common.to_toml(built.config), "package_version": __version__}
            build.prepare_file(built, here, fresh, header, held_lock.heartbeat)

        world.on_rank_0(prepare)
        _sample(world, built, writer_kind, args.max_walltime, held_lock)
    return EXIT_COMPLETE


def _end_check(world: World, config: Config) -> int:
    """Warn if the analysis cannot begin, which the run does not need; return the exit code."""
    from omniinput_hpc.results.rules import check_analysis

    def warn() -> None:
        try:
            check_analysis(config)
        except UserError as error:
            log.warning("warning: %s", error)

    world.on_rank_0(warn)
    return EXIT_COMPLETE


def _tried(
    world: World, built: Built, to_find: Config | None, fingerprint: str, check: bool
) -> tuple[Built, str | None, str]:
    """Choose the number of walkers if the input leaves it open, and try moves for --check.

    `to_find` is the input that leaves it open, or None. Also returns sentences on memory (for
    --check) and on how the number was found.
    """
    from omniinput_hpc.models import device as devices
    from omniinput_hpc.sampling import auto_walkers, build

    if to_find is None:
        return built, auto_walkers.memory_of_moves(world, built) if check else None, ""
    setting = kept_walkers.Setting(to_find, fingerprint, world.texts(devices.size(built.device)))
    kept = None if check else world.on_rank_0(lambda: kept_walkers.find_kept(setting))
    if kept is not None:
        built = build.with_walkers(world, built, kept)
        return built, None, f"found by --check ({kept_walkers.path_of(setting)})"
    built, trials, measured = auto_walkers.find_walkers(world, built)
    if check:
        n_walkers = built.config.sampler.n_walkers
        world.on_rank_0(lambda: kept_walkers.keep(setting, n_walkers))
    return (
        built,
        measured if check else None,
        auto_walkers.shown(trials, "block" if built.config.sampler.blocks > 1 else "rung"),
    )


def _identity(world: World, built: Built, about: Mapping[str, Any]) -> restart.Identity:
    """Return the data by which a resumed run recognizes the same model and machine.

    `about` is the result of `models.preflight`.
    """
    from omniinput_hpc.models import device as devices
    from omniinput_hpc.sampling import plan

    world.together(built.check_is_function)
    m = built.model_beta
    versions = {**plan.environment(), **devices.versions(), "package_version": __version__}
    source = {"model_source": about["source"]} if about["source"] else {}
    source |= about["sources"]
    return restart.Identity(
        fingerprint=about["fingerprint"],
        probe_z=world.together(built.probe),
        marks=world.together(built.marks),
        environment={**versions, **source, **plan.gpus(world, devices.gpu(built.device))},
        model_beta=float("nan") if m is None else m,
        rows_normalized=m is not None and built.rows is not None and built.rows.normalized,
        space=models.space_of(built.model),
        inside=built.inside,
    )


def _show_plan(world: World, the_plan: plan.Plan) -> None:
    """Log the plan, and warn if the file is large or the disk is too full."""
    from omniinput_hpc.sampling import plan

    log.info("omniinput_hpc %s\n%s", __version__, plan.describe(the_plan))
    for warning in plan.disk_warnings(the_plan.config, the_plan.geometry):
        if world.rank == 0:
            log.warning("warning: %s", warning)


def _sample(
    world: World,
    built: Built,
    writer_kind: str,
    max_walltime: float | None,
    held_lock: lock.RunLock,
) -> None:
    """Sample until all rounds are in the file, then log where the time went."""
    from omniinput_hpc.sampling import build, loop

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
        stop.outcome = stopping.outcome(moves, ", or use a smaller sampler.exchanges in a new run")
        run.writer.close()
        raise
    except UserError:  # on all ranks; other failures abort them with the file open
        run.writer.close()
        raise
    finally:
        run.progress.close()
    run.writer.close()
    log.info("%s", run.clock.table())
    seconds = request.age
    run.observer.warn()
    log.info("complete: %s, %s", path, duration(seconds))
    log.info(
        "for its density, and whether it has converged: omniinput reweight %s",
        shown_path(path),
    )


def _read_input(world: World, args: argparse.Namespace) -> tuple[Config, Config]:
    """Return the checked input, as given and with a first number of walkers in place of "auto"."""
    world.together(lambda: shapes.check_launch(comm.connected()))
    given = models.with_side(common.read_input(world, args))
    config = given
    if given.sampler.walkers == "auto":
        config = given.with_walkers(shapes.FIRST_WALKERS * given.sampler.blocks)
    world.together(lambda: shapes.check_ranks(config, world.size))
    world.together(lambda: shapes.check_counters(config))
    return given, config


def parse_arguments(
    verb: str, program: str, rank: int, argv: Sequence[str] | None
) -> argparse.Namespace:
    """Parse the command line of run, check, or ("") ``python -m omniinput_hpc``."""
    if not verb:
        return _parse_options(rank, argv)
    if verb == "check":
        words = "Check an input file, try its model, and print the plan, without a run."
        example, help_ = "inputs/toy.toml", "the input file"
    else:
        words = "Sample a model's whole input space as described in an input file."
        example = "inputs/toy.toml --set run.output=runs/look.h5 --set run.rounds=4"
        help_ = "the input file, or a run file, to continue with its stored input"
    parser = arguments.new_parser(program, words, example)
    checks = verb == "check"
    parser.set_defaults(check=checks, doctor=False, verify=False, salvage=None, max_walltime=None)
    parser.add_argument("input", type=Path, metavar="INPUT.toml", help=help_)
    arguments.add_set(parser)
    _add_restart(parser)
    if not checks:
        arguments.add_max_walltime(parser)
    return arguments.parse(parser, rank, argv)


def _parse_options(rank: int, argv: Sequence[str] | None) -> argparse.Namespace:
    words = "Sample a model's whole input space as described in an input file."
    verbs = f"Verbs work, too ({PROGRAM} reweight RUN.h5): see omniinput --help."
    more = f"{arguments.EXIT_CODES}\n{verbs}"
    parser = arguments.new_parser(PROGRAM, words, "inputs/toy.toml --check", more)
    parser.add_argument("input", type=Path, nargs="?", metavar="INPUT.toml")
    instead = parser.add_mutually_exclusive_group()
    instead.add_argument(
        "--check", action="store_true", help="check everything, print the plan, and exit"
    )
    instead.add_argument(
        "--doctor", action="store_true", help="check this machine and a folder, and exit"
    )
    instead.add_argument(
        "--verify", action="store_true", help="check a run file (instead of INPUT.toml), and exit"
    )
    instead.add_argument(
        "--salvage",
        type=Path,
        metavar="NEW.h5",
        help="recover the rounds of a damaged run file (instead of INPUT.toml) into a new "
        "one, with the help of its side file RUN.h5.checkpoint, and exit",
    )
    arguments.add_rescore(parser, "with --verify: evaluate N samples again")
    arguments.add_set(parser)
    _add_restart(parser)
    arguments.add_max_walltime(parser)
    args = arguments.parse(parser, rank, argv)
    if args.input is None and not args.doctor:
        what = "RUN.h5" if args.verify or args.salvage else "INPUT.toml"
        parser.error(f"the following arguments are required: {what}")
    if args.rescore and not args.verify:
        parser.error("--rescore requires --verify")
    return args


def _add_restart(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--restart",
        choices=("auto", "never", "require"),
        default="auto",
        help="auto: resume if the run file exists; never: refuse if it exists; require: refuse if "
        "it does not (default: %(default)s)",
    )
