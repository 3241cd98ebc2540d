"""Rescore a run: ``[mpirun -n R] omniinput rescore RUN.h5 INPUT.toml``.

The model of INPUT.toml evaluates every recorded sample of the run. Its outputs go to the side file
``RUN.rescored.INPUT.h5`` (see `rescored`), from which the verbs normalize, compare and
changes compare the two models. Each rank takes an equal share of the rungs. Rounds are
committed one by one: after a stop or a kill, the same command resumes.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from omniinput_hpc import models
from omniinput_hpc.cli import arguments, common
from omniinput_hpc.config import Config
from omniinput_hpc.errors import EXIT_COMPLETE, StopRun, UserError, ending_all_ranks
from omniinput_hpc.models import input_space
from omniinput_hpc.parallel import comm
from omniinput_hpc.parallel.comm import World
from omniinput_hpc.parallel.signals import request
from omniinput_hpc.parallel.stopping import StopCheck
from omniinput_hpc.runfile import checksums, layout, lock, rescored, writers
from omniinput_hpc.runfile.open_file import OpenFile
from omniinput_hpc.runfile.reader import RunReader, open_run
from omniinput_hpc.runfile.writers import GuardedWriter
from omniinput_hpc.sampling import shapes
from omniinput_hpc.tempering.ladder import placement
from omniinput_hpc.text import __version__, duration

if TYPE_CHECKING:
    from omniinput_hpc.models.checked import CheckedModel

log = logging.getLogger("omniinput_hpc")

SECONDS_BETWEEN_LINES = 5.0
PROGRAM = "omniinput rescore"


def main(
    argv: Sequence[str] | None = None, world: World | None = None, program: str = PROGRAM
) -> int:
    """Run the program on this rank and return its exit code; `program` is the command as typed."""
    return common.main(partial(_run, program=program), argv, world)


def _run(world: World, argv: Sequence[str] | None, program: str) -> int:
    args = world.together(lambda: _arguments(world, argv, program))
    world.together(lambda: shapes.check_launch(comm.connected()))
    config = common.read_input(world, args)
    about = world.on_rank_0(lambda: models.preflight(config))
    path = rescored.path_of(args.run, args.input.stem)
    world.on_rank_0(lambda: open_run(args.run).close())  # so that an error is reported once
    with world.together(lambda: open_run(args.run, tried=True)) as run:
        rounds = world.on_rank_0(lambda: run.rounds)  # the same everywhere, even in a live run
        world.on_rank_0(lambda: _check(run, config, args.input, about, rounds))
        world.together(lambda: shapes.check_shares(run.geometry.n_rungs, world.size))
        done = world.on_rank_0(lambda: _rounds_done(path, run, about["fingerprint"], args.input))
        if done >= rounds and not about["source"]:
            return _nothing_to_do(run, path, rounds)

        batch = _batch(run, config)
        model, device = _build(world, run, config, args.input, about, rounds)
        world.together(lambda: _try_out(model, run, config, args.input, batch, device))
        if done:
            world.on_rank_0(lambda: _check_last(model, run, config, path, batch, device))
        if done >= rounds:
            return _nothing_to_do(run, path, rounds)
        attributes = {
            "config": common.to_toml(config),
            "model_fingerprint": about["fingerprint"],
            "package_version": __version__,
            "model_source": about["source"],
        }
        with lock.hold(path, world, key="") as held_lock:
            # again: another job may have written meanwhile
            first = world.on_rank_0(lambda: _prepare(path, run, attributes, args.input))
            stopping = StopCheck(request, world, args.max_walltime, held_lock.heartbeat)
            checked = _checked(model, config, args.input)

            def evaluate(x_sd: NDArray[Any]) -> NDArray[np.float32]:
                return _outputs(checked, x_sd, batch, device, stopping.after_move)

            writer = _open_writer(world, run, path, config.run.writer, held_lock)
            stopping.moves_begin()
            try:
                with writer.or_end(str(path)):
                    _rescore(world, run, writer, evaluate, checked, range(first, rounds))
            except StopRun as stop:
                stop.outcome = stopping.outcome(_batches_of_round(world, run, batch))
                writer.close()
                raise
            except UserError:  # on all ranks; other failures abort them with the file open
                writer.close()
                raise
            writer.close()
        if world.rank == 0 and rounds < run.rounds_planned:
            log.info(
                "%s holds %d of %d rounds so far: run the same command again for the rest",
                run.path, rounds, run.rounds_planned,
            )  # fmt: skip
    log.info("complete: %s, %s", path, duration(request.age))
    return EXIT_COMPLETE


def _build(
    world: World, run: RunReader, config: Config, name: Path, about: dict[str, Any], rounds: int
) -> tuple[models.Model, str]:
    """Return the other model and its device on this rank."""
    device = shapes.choose_device(world, config)
    models.import_builder(config.model)
    model = world.one_a_host_first(lambda: models.build(config, device, about.get("folder")))
    if model.n_values and about["n_values"] is None:  # known only now
        shape = {"n_values": model.n_values, "n_sites": model.n_sites}
        world.together(lambda: _check(run, config, name, shape, rounds))
    return model, device


def _checked(model: models.Model, config: Config, name: Path) -> CheckedModel:
    from omniinput_hpc.models.checked import CheckedModel  # imports torch

    return CheckedModel(model, _name(name), dtype=getattr(config.model, "dtype", "float32"))


def _outputs(
    model: models.Model, x_sd: NDArray[Any], batch: int, device: str,
    after_batch: Callable[[], object] = lambda: None,
) -> NDArray[np.float32]:  # fmt: skip
    """Return z of recorded inputs, ids [S, D]."""
    from omniinput_hpc.models import batches

    x_sd = models.space_of(model).to_values(x_sd)
    return batches.evaluate(model, x_sd, batch, device, after_batch)


def _name(input_path: Path) -> str:
    return f"the model of {input_path}"


def _try_out(
    model: models.Model, run: RunReader, config: Config, name: Path, batch: int, device: str
) -> None:
    """Raise a UserError if outputs are invalid or not reproducible, or the model changes inputs."""
    from omniinput_hpc.models import batches
    from omniinput_hpc.models.checked import check_is_function, check_keeps_inputs, try_out
    from omniinput_hpc.sampling.anchors import zero_inputs

    try_out(model, zero_inputs(batch, run.n_sites, device), _name(name))
    check_keeps_inputs(model, (batch, run.n_sites), _name(name), device, own=False)
    check_is_function(
        lambda x_wd: batches.evaluate(model, x_wd, batch, device),
        (batch, run.n_sites),
        run.n_values,
        models.rounding(config, model),
        _name(name),
    )


def _nothing_to_do(run: RunReader, path: Path, rounds: int) -> int:
    log.info("%s holds all %d rounds of %s; nothing to do", path, rounds, run.path)
    return EXIT_COMPLETE


def _check_last(
    model: models.Model, run: RunReader, config: Config, path: Path, batch: int, device: str
) -> None:
    """Raise a UserError if the side file's last outputs are not those of the model now.

    The fingerprint of a python model covers neither the code of its factory nor the files that it
    reads. A run that was salvaged may have sampled its last rounds again.
    """
    with rescored.open_rescored(path) as old:
        last = min(old.rounds, run.rounds) - 1
        before_s = old.z(last)[0, :batch]
    z_s = _outputs(model, _inputs(run, last, range(1))[0][0][:batch], batch, device)
    if not models.same_outputs(before_s, z_s, config):
        raise UserError(
            f"{path} holds outputs of another model or of other samples (they differ now); move it "
            "away"
        )


def _check(run: RunReader, config: Config, name: Path, shape: dict[str, Any], rounds: int) -> None:
    """Check that there are samples, and that both models have the same input space."""
    if rounds == 0:
        raise UserError(f"{run.path} has no committed rounds yet, so it has no samples")
    if shape["n_values"] is None:
        return  # known once the model is built
    own = input_space.space_of(str(run.path), run.config, run.n_sites, run.n_values)
    other = input_space.space_of(str(name), config, shape["n_sites"], shape["n_values"])
    input_space.require_same(own, other)


def _rounds_done(path: Path, run: RunReader, fingerprint: str, name: Path) -> int:
    """Return the number of rounds in the side file; refuse a file of another run or model."""
    if not os.path.exists(path):
        return 0
    with rescored.open_rescored(path) as old:
        if not old.belongs_to(run):
            raise UserError(
                f"{path} was computed from other samples than {run.path} holds; move it away"
            )
        if old.fingerprint != fingerprint:
            raise UserError(
                f"{path} holds the outputs of a model other than that of {name}; move it away"
            )
        return old.rounds


def _batches_of_round(world: World, run: RunReader, batch: int) -> int:
    """Return how many batches this rank evaluates per round."""
    g = run.geometry
    return len(placement(g.n_rungs, world.size, world.rank)) * -(-g.samples_per_round // batch)


def _inputs(run: RunReader, round_: int, rungs: range) -> tuple[NDArray[Any], NDArray[Any]]:
    """Return the inputs of some rungs in a round, and their checksums; the reader checks them."""
    sums_k = rescored.sums_of_inputs(run, range(round_, round_ + 1))[0, rungs.start : rungs.stop]
    return run.round(round_, rungs).samples_x, sums_k


def _prepare(path: Path, run: RunReader, attributes: dict[str, str], name: Path) -> int:
    """Create the side file or make it longer; return the number of rounds that it holds."""
    done = _rounds_done(path, run, attributes["model_fingerprint"], name)
    try:
        if not os.path.exists(path):
            rescored.create(path, run, attributes)
        else:
            with rescored.open_rescored(path) as old:
                too_short = old.rounds_planned < run.rounds_planned
            checksums.settle_file(path)
            if too_short:
                rescored.grow(path, run)
    except OSError as error:
        raise UserError(f"{path} cannot be made: {error.strerror or error}") from None
    return done


def _batch(run: RunReader, config: Config) -> int:
    """Return the batch size: of the other model's input file or, if that is "auto", of the run."""
    if config.sampler.walkers != "auto":
        return config.sampler.block_walkers
    return run.walkers // run.config.sampler.blocks


def _open_writer(
    world: World, run: RunReader, path: Path, requested: str, held_lock: lock.RunLock
) -> GuardedWriter:
    target, hosts = layout.target_of(path), set(world.hosts())
    kind, _ = world.on_rank_0(lambda: writers.choose_writer(requested, target, len(hosts)))
    g = run.geometry
    rungs = placement(g.n_rungs, world.size, world.rank)
    with world.together(lambda: rescored.open_rescored(path, tried=True)) as side:
        fields = rescored.fields_of(g, side.version)
    file = world.together(lambda: OpenFile(path, acting=world.rank == 0))
    opened = writers.open_writer(kind, path, g, rungs, world, fields)
    return GuardedWriter(opened, held_lock, file, world)


def _rescore(
    world: World,
    run: RunReader,
    writer: GuardedWriter,
    evaluate: Callable[[NDArray[Any]], NDArray[np.float32]],
    model: CheckedModel,
    rounds: range,
) -> None:
    """Evaluate and commit round by round; `evaluate` maps inputs [S, D] to z, float32 [S]."""
    g = run.geometry
    rungs = placement(g.n_rungs, world.size, world.rank)
    begin = last = time.monotonic()
    for round_ in rounds:
        x_ksd, sums_k = world.together(partial(_inputs, run, round_, rungs))
        with ending_all_ranks():
            z_ks = np.stack([evaluate(x_sd) for x_sd in x_ksd])
        model.raise_if_nonfinite()
        writer.commit(round_, {"samples/z": z_ks, rescored.INPUTS: sums_k}, round_ + 1)
        now = time.monotonic()
        if now - last > SECONDS_BETWEEN_LINES or round_ + 1 == rounds.stop:
            last, share = now, (round_ + 1 - rounds.start) / len(rounds)
            rate = share * len(rounds) * g.n_rungs * g.samples_per_round / (now - begin)
            left = duration((now - begin) * (1 / share - 1))
            log.info(
                "round %d of %d, %s samples/s, %s left",
                round_ + 1, rounds.stop, f"{rate:,.0f}", left,
            )  # fmt: skip


def _arguments(world: World, argv: Sequence[str] | None, program: str) -> Any:
    words = "Evaluate a run's recorded samples with another model: RUN.rescored.INPUT.h5."
    parser = arguments.new_parser(program, words, "runs/toy.h5 inputs/toy-worse.toml")
    parser.add_argument("run", type=Path, metavar="RUN.h5", help="the run with the samples")
    parser.add_argument(
        "input", type=Path, metavar="INPUT.toml", help="the other model's input file, or a run file"
    )
    arguments.add_set(parser)
    arguments.add_max_walltime(parser)
    return arguments.parse(parser, world.rank, argv)
