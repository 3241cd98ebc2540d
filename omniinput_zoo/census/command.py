"""Find all inputs up to an output Z: ``[mpirun -n R] omniinput census INPUT.toml``.

This searches the tree of prefixes of an autoregressive model. A prefix bounds the losses of its
continuations from below, so it is pruned together with them if its loss is too large. ``--below Z``
finds every input with z <= Z. ``--seconds S`` expands the lowest losses first, and reports up to
which z all inputs are found and how many there can be beyond. After a stop or a kill, the same
command resumes on any number of ranks.
"""

from __future__ import annotations

import argparse
import logging
import math
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from omniinput_hpc import models, rng
from omniinput_hpc.cli import arguments, common
from omniinput_hpc.cli.arguments import positive_count
from omniinput_hpc.cli.scripts import new_record
from omniinput_hpc.config import Config
from omniinput_hpc.errors import EXIT_COMPLETE, UserError
from omniinput_hpc.kernels.parts import conditionals
from omniinput_hpc.parallel.comm import World
from omniinput_hpc.parallel.signals import request
from omniinput_hpc.parallel.stopping import StopCheck
from omniinput_hpc.results.record import Record
from omniinput_hpc.runfile import census_file, lock
from omniinput_hpc.sampling import shapes
from omniinput_zoo.census import report, saved
from omniinput_zoo.census.search import CensusState, Search, Space
from omniinput_zoo.census.session import Session

log = logging.getLogger("omniinput_hpc")

PROGRAM = "omniinput census"
MARGIN = 4.0
"""The margin of z for pruning, as a multiple of the rounding error."""
FRONTIER, LISTED = 2_000_000, 1_000_000
ROWS_AT_ONCE, FEWEST, MOST = 1 << 18, 64, 2048
"""The default batch has this many logits, but at least and at most this many prefixes."""
MAX_BATCHES = 16
"""The most batches per walk, so that a rank regularly checks for stop requests."""
WALKERS = 64
"""Inputs per batch if the input file has ``walkers = "auto"``."""
N_TRIED = 64
"""Inputs that `try_losses` compares, at least."""


def main(
    argv: Sequence[str] | None = None, world: World | None = None, program: str = PROGRAM
) -> int:
    """Run the program on this rank and return its exit code; `program` is the command as typed."""
    return common.main(partial(_run, program=program), argv, world)


def _run(world: World, argv: Sequence[str] | None, program: str) -> int:
    args = world.together(lambda: _arguments(world, argv, program))
    config = common.read_input(world, args)
    world.together(lambda: _check_input(config))
    about = world.on_rank_0(lambda: models.preflight(config))
    path = args.output or census_file.path_of(Path(config.run.output))
    from omniinput_hpc.models.prefix_tree import PrefixTree, render

    device = shapes.choose_device(world, config)
    model = world.one_a_host_first(lambda: models.build(config, device, about.get("folder")))
    name = f"the model ({config.model.kind})"
    space = world.together(lambda: space_of(model, config, args, device))
    batch = args.prefixes or min(max(ROWS_AT_ONCE // model.n_values, FEWEST), MOST)
    tree = PrefixTree(model, device, batch, MAX_BATCHES, name)
    world.together(lambda: try_losses(model, tree, space, name))
    texts = {"config": common.to_toml(config), "model_fingerprint": about["fingerprint"]}
    with lock.hold(path, world, key="") as held_lock:
        state = saved.begin(space, config.bins.edges, args.frontier, args.list)
        world.on_rank_0(lambda: saved.resume_if_there(path, state, space, texts))
        world.on_rank_0(lambda: check_found(model, tree, state, space, path))
        search = Search(world, space, model, tree, state, args.seconds is not None)
        stopping = StopCheck(request, world, args.max_walltime, held_lock.heartbeat)
        Session(world, search, path, texts).run(stopping, args.seconds)
        record = new_record(program, argv or sys.argv[1:], args, path)
        texts_of = partial(render, model, device=device)
        world.on_rank_0(lambda: _report(record, state, space, texts_of))
    return EXIT_COMPLETE


def space_of(model: Any, config: Config, args: argparse.Namespace, device: str) -> Space:
    """Return the space to search. Raise a `UserError` for an unsuitable model or argument."""
    conditionals.require_conditionals(model, "a census", "enumerate, or sample the space instead")
    first = models.offers_of(model).predicted_from
    if not 0 <= first < model.n_sites:
        raise UserError(
            f"model.length = {model.n_sites} leaves no predicted site; set a larger one"
        )
    if args.frontier < model.n_values:
        raise UserError(
            f"--frontier must be at least {model.n_values}, the number of values per site"
        )
    rounding = models.rounding(config)
    assert rounding is not None  # see `_check_input`
    reference = 1.0 if args.below is None else abs(args.below)
    margin = args.margin or MARGIN * (rounding[0] + rounding[1] * reference)
    batch = WALKERS if config.sampler.walkers == "auto" else config.sampler.block_walkers
    space = (model.n_sites, model.n_values, first)
    return Space(*space, args.below, margin, batch, device, models.space_of(model))


def try_losses(model: Any, tree: Any, space: Space, name: str) -> None:
    """Compare the outputs of some inputs with the means of their -l over predicted sites.

    Raises a `UserError` if they differ by more than the margin.
    """
    from omniinput_hpc.models import batches
    from omniinput_hpc.models.checked import try_out
    from omniinput_hpc.sampling.anchors import zero_inputs

    try_out(model, zero_inputs(space.walkers, space.n_sites, space.device), name)
    random = rng.generator(0, "fingerprint", space.n_sites, 3)
    for _ in range(-(-N_TRIED // tree.batch)):
        x = random.integers(space.n_values, size=(tree.batch, space.n_sites))
        z = batches.evaluate(model, x, space.walkers, space.device).astype(np.float64)
        expected = tree.losses(x) / space.m
        allowed = np.isfinite(expected)  # forbidden values have an infinite loss
        apart_n = np.abs(z - expected)[allowed]
        limit_n = space.margin * np.maximum(1.0, np.abs(expected[allowed]))
        if not (apart_n <= limit_n).all():
            raise UserError(
                f"{name}: z of an input differs from the mean of -l over its predicted sites by "
                f"{np.nanmax(apart_n):.3g} (the margin is {space.margin:.3g}): a census requires "
                "an output that follows from conditional_logits; if this is rounding, set --margin"
            )


def check_found(model: Any, tree: Any, state: CensusState, space: Space, path: Path) -> None:
    """Raise a `UserError` if what a resumed census has stored differs from the model now.

    This compares outputs of inputs that it has found, and losses of open prefixes. The fingerprint
    of a python model does not cover the code of its factory.
    """
    from omniinput_hpc.models import batches

    found, opened, same = state.found, state.frontier.nodes, True
    if len(found.z):
        some = _spread(len(found.z), N_TRIED)
        x = found.x[some].astype(np.int64)
        now = batches.evaluate(model, x, space.walkers, space.device)
        same = _close(now, found.z[some].astype(np.float64), space)
    known = opened.take(opened.depth > space.predicted_from)  # shorter ones have no loss
    if len(known):
        known = known.take(_spread(len(known), min(N_TRIED, tree.batch)))
        now = tree.losses(known.x, known.depth) / space.m
        same = same and _close(now, known.loss / space.m, space)
    if not same:
        raise UserError(
            f"{path} is a census of a model with other outputs: move it away, or give another "
            "--output"
        )


def _spread(n: int, n_tried: int) -> NDArray[np.int64]:
    """Return up to `n_tried` indices of n, evenly spaced."""
    return np.linspace(0, n - 1, min(n, n_tried)).astype(np.int64)


def _close(now: NDArray[Any], before: NDArray[np.float64], space: Space) -> bool:
    """Return whether outputs differ by at most the margin of a census."""
    return bool((np.abs(now - before) <= space.margin * np.maximum(1.0, np.abs(before))).all())


def _check_input(config: Config) -> None:
    if config.noisy:
        raise UserError("model.noise = true: a census requires a model without noise")
    if config.law is not None or config.constrained:
        key = "[law]" if config.law is not None else config.constraint
        raise UserError(f"{key}: a census is for all inputs, which weigh the same; leave it out")
    side = models.with_side(config).analysis
    if side is not None and side.side == "high":
        raise UserError(
            'analysis.side = "high": a census lists inputs with low outputs, where an '
            "autoregressive model is confident; it does not apply to this model"
        )


def _report(record: Record, state: CensusState, space: Space, texts: report.Texts) -> None:
    for line in report.lines(state, space):
        log.info("%s", line)
    paths = report.write(record, state, space, texts)
    log.info("%s", ", ".join(str(path) for path in (record.run_path, *paths)))


def _number(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise argparse.ArgumentTypeError(f"expected a finite number, found {text!r}")
    return value


def _arguments(world: World, argv: Sequence[str] | None, program: str) -> argparse.Namespace:
    words = "Find all inputs of an autoregressive model with an output up to Z, exactly."
    parser = arguments.new_parser(program, words, "inputs/toy.toml --below 1.7")
    add = parser.add_argument
    add("input", type=Path, metavar="INPUT.toml", help="the input file")
    z = "find all inputs with z <= Z (default: as far as --seconds allows)"
    add("--below", type=_number, metavar="Z", help=z)
    seconds = "expand the lowest losses for S seconds, and report up to which z it is complete"
    add("--seconds", type=arguments.positive_seconds, metavar="S", help=seconds)
    prefixes = "prefixes evaluated at once (default: 64 to 2048, fewer for more values)"
    add("--prefixes", type=positive_count, metavar="N", help=prefixes)
    frontier = "limit on open prefixes; beyond it, the highest losses are pruned and bounded"
    frontier += " (default: %(default)s)"
    add("--frontier", type=positive_count, default=FRONTIER, metavar="N", help=frontier)
    listed = "number of likeliest inputs to list; all are counted (default: %(default)s)"
    add("--list", type=positive_count, default=LISTED, metavar="N", help=listed)
    margin = "margin of z before a prefix is pruned (default: 4 times the rounding error)"
    add("--margin", type=arguments.positive_seconds, metavar="Z", help=margin)
    output = "file of the census (default: RUN.census.h5 beside run.output)"
    add("--output", type=Path, metavar="FILE.census.h5", help=output)
    arguments.add_set(parser)
    arguments.add_max_walltime(parser)
    args = arguments.parse(parser, world.rank, argv)
    if args.below is None and args.seconds is None:
        parser.error("give --below Z, or --seconds S, or both")
    if args.output is not None and not args.output.name.endswith(".census.h5"):
        raise UserError(f"--output {args.output}: the name must end with .census.h5")
    return args
