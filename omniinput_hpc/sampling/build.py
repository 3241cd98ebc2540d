"""Build a rank's part of a run from an input: the model, the rungs, the file, the first walkers."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from omniinput_hpc import models
from omniinput_hpc.config import Config, WangLandau
from omniinput_hpc.errors import UserError
from omniinput_hpc.parallel.comm import World
from omniinput_hpc.parallel.stopping import StopCheck
from omniinput_hpc.runfile import checksums, layout, lock, reader, records, writers
from omniinput_hpc.runfile.block_histograms import BlockCounts, counts_before
from omniinput_hpc.runfile.open_file import OpenFile
from omniinput_hpc.runfile.side_checkpoint import SideWriter
from omniinput_hpc.sampling import shapes
from omniinput_hpc.sampling.built import Built, grid_of, initial_ensembles, name_of
from omniinput_hpc.sampling.progress import Progress
from omniinput_hpc.sampling.restart import Existing, Identity
from omniinput_hpc.sampling.timing import Clock
from omniinput_hpc.tempering.adaptation import LadderTuning
from omniinput_hpc.tempering.ensembles import Ensemble, Gaussian, Tabulated, log_weight_b
from omniinput_hpc.tempering.ladder import Block

LOSS_ERROR = 0.02
"""Largest relative difference between a law's output and the loss by its rows: that of bfloat16."""

if TYPE_CHECKING:
    from omniinput_hpc.kernels.independent import RowSums
    from omniinput_hpc.kernels.parts.constrained import InputLaw
    from omniinput_hpc.kernels.parts.tilt import SecondDirection
    from omniinput_hpc.models.checked import CheckedModel
    from omniinput_hpc.sampling.anchors import Anchors
    from omniinput_hpc.sampling.exchange import Exchanger
    from omniinput_hpc.sampling.loop import LiveRun
    from omniinput_hpc.sampling.population import OwnDraws
    from omniinput_hpc.sampling.rung import Rung


def build(world: World, given: Config, folder: str | None) -> Built:
    """Build this rank's model and rungs, and decide what the input leaves to the model.

    All ranks call this.

    All ranks import first, at once. Then one rank per host builds, so that an error shows before
    the others read the model's files. Raises a UserError on all ranks if the model cannot be built,
    or cannot be used as the input asks.
    """
    device = shapes.choose_device(world, given)
    models.import_builder(given.model)

    def make() -> Built:
        from omniinput_hpc.models import lattice
        from omniinput_hpc.models.checked import try_out
        from omniinput_hpc.sampling import anchors

        model = models.build(given, device, folder)
        config = with_look_ahead(given, model)
        law = law_of(config, model, device)
        n_ids = models.space_of(model).n_ids_if_some
        geometry = shapes.geometry_of(config, model.n_values, model.n_sites, n_ids)
        batch = config.sampler.block_walkers
        zero = anchors.zero_inputs(batch, geometry.n_sites, device)
        try_out(model, zero, name_of(config))  # before any other use of the model
        if models.on_lattice(config):
            lattice.keep_off_edges(model, config.bins.lower, config.bins.width, batch, device)
        rows = anchors.rows_of(config, model, batch, device)
        mine = _mine(world, config)
        exact = Exact(rows, law)
        rungs = make_rungs(config, geometry, model, device, mine.rungs, exact, mine.blocks)
        return Built(config, device, model, geometry, rungs, rows, law=law)

    return _agree_on_rows(world, world.one_a_host_first(make))


def law_of(config: Config, model: models.Model, device: str) -> InputLaw | None:
    """Return the law of a run's inputs, or that of a constrained space; None if all weigh the same.

    Raises a UserError if it is none: if its model has no conditionals, or rows that do not sum to 1
    at temperature 1; or if a constraint is wrong.
    """
    from omniinput_hpc.kernels.independent import try_rows
    from omniinput_hpc.kernels.parts import constrained, law
    from omniinput_hpc.models import checked, constraint
    from omniinput_hpc.models.law import build as parts_of

    inside = constraint.of(config, model)
    if inside is not None and config.law is None:
        return constrained.UniformInside(inside, device)
    parts = parts_of(config, device, model)
    if parts is None or config.law is None:
        return None
    found = law.of_parts(parts, device, gives_z=parts.is_model and parts.model is model)
    n_walkers = config.sampler.block_walkers
    of_keys = (("law", parts.model, config.law), ("law.prompt", parts.prompt, config.law.prompt))
    for key, of, table in of_keys:
        if table is not None and table.kind == "python":
            checked.check_keeps_inputs(of, (n_walkers, of.n_sites), key, device, own=True)
        used = hasattr(of, "output") and (key != "law" or not found.normalizes)
        rows = try_rows(of, n_walkers, device) if used else None
        if rows is not None and not rows.normalized:
            raise UserError(
                f"{key}: {rows.problem or 'the rows of its conditional_logits sum to less than 1'}"
                "; give a model whose rows are log-probabilities"
            )
    if not found.loss_error(n_walkers, device) < LOSS_ERROR:
        raise UserError(
            "law: the output of its model is not the mean of minus the log-probabilities in its "
            "conditional_logits; give such an output"
        )
    found.automaton = inside
    return found


def with_look_ahead(config: Config, model: models.Model) -> Config:
    """Return the input with ``kernel.look_ahead`` decided if it was left out."""
    return config.with_look_ahead(model.n_sites, _own_beta(model))


def _own_beta(model: models.Model) -> float:
    """Return m, the beta of an autoregressive model's own distribution."""
    return float(model.n_sites - models.offers_of(model).predicted_from)


def _agree_on_rows(world: World, built: Built) -> Built:
    """Let all ranks agree on whether the model can be sampled directly (all ranks call this).

    Raises a UserError on all ranks if it cannot, but the input file requires anchors.
    """
    from omniinput_hpc.sampling import anchors

    before, rows = built.rows, anchors.agree(world, built.rows)
    without = anchors.missing(built.config, rows, _own_beta(built.model))
    built = replace(built, rows=rows, without_anchor=without)
    if rows is None or before is None or bool(rows.problem) == bool(before.problem):
        return built
    # Another rank's rounding changed the decision
    return with_input(built, built.config, *_mine(world, built.config))


def with_walkers(world: World, built: Built, n_walkers: int) -> Built:
    """Return `built` with another number of walkers per rung (all ranks call this)."""
    built.rungs.clear()  # their memory is needed
    config = built.config.with_walkers(n_walkers)
    return world.together(lambda: with_input(built, config, *_mine(world, config)))


def with_input(
    built: Built, config: Config, ks: Sequence[int], blocks: Sequence[int] | None = None
) -> Built:
    """Return `built` with the rungs `ks` of another input that has the same model."""
    g = built.geometry
    g = shapes.geometry_of(config, g.n_values, g.n_sites, g.n_ids)
    exact = Exact(built.rows, built.law)
    rungs = make_rungs(config, g, built.model, built.device, ks, exact, blocks)
    return replace(built, config=config, geometry=g, rungs=rungs)


class Exact(NamedTuple):
    """What inputs can be drawn from directly.

    Attributes
    ----------
    rows : sums of the model's conditional rows, if anchors need them
    law : of inputs; None: all weigh the same
    """

    rows: RowSums | None = None
    law: InputLaw | None = None


class _Mine(NamedTuple):
    """The rungs that a rank holds, and the blocks that it holds of each."""

    rungs: range
    blocks: range


def _mine(world: World, config: Config) -> _Mine:
    grid = grid_of(world, config)
    return _Mine(grid.rungs(world.rank), grid.blocks(world.rank))


def make_rungs(
    config: Config,
    g: layout.Geometry,
    model: models.Model,
    device: str,
    ks: Sequence[int],
    exact: Exact | None = None,
    blocks: Sequence[int] | None = None,
) -> list[Rung]:
    """Return the rungs `ks` with unplaced walkers, after evaluating the model once.

    The result has `blocks` of each rung, by default all, and the blocks of a rung are adjacent.
    Raises a UserError if the model or the kernel does not support the run.
    """
    from omniinput_hpc import kernels
    from omniinput_hpc.kernels.wang_landau import WangLandauEnsemble
    from omniinput_hpc.models import observables
    from omniinput_hpc.models.checked import CheckedModel, try_out
    from omniinput_hpc.sampling.anchors import Anchors, zero_inputs
    from omniinput_hpc.sampling.rung import Rung, link_populations
    from omniinput_hpc.sampling.walkers import Recording, Walkers

    name, exact = name_of(config), exact or Exact()
    batch, n_blocks = config.sampler.block_walkers, config.sampler.blocks
    # First, because it reports a lack of memory, including memory taken by the model's first call.
    like = zero_inputs(batch, g.n_sites, device)
    try_out(model, like, name)
    dtype = getattr(config.model, "dtype", "float32")
    under = partial(CheckedModel, model, name, models.rounding(config, model), dtype)
    checked = under(exact.law)
    anchors = _anchors(config, checked, like, exact, g.log_q)
    recording = Recording(config.sampler.steps, config.samples.every, g.x_dtype)
    edges, options = config.bins.edges, config.wang_landau or WangLandau()
    observed = observables.of_run(config, models.space_of(model).to_ids(like.cpu().numpy()))
    second = second_direction(config, model)

    def make(block: Block, ensemble: Ensemble) -> Rung:
        law = exact.law if second is None else second.law(block.k, exact.law)
        model_k, drawn = checked, anchors
        if law is not exact.law:  # such a rung cannot be drawn from
            model_k, drawn = under(law), Anchors(checked, like, False, None, None)
        kernel = kernels.build(config.kernel, model_k, batch)
        if isinstance(ensemble, Tabulated):
            ensemble = WangLandauEnsemble(edges, ensemble.window, options, device, batch)
        walkers = Walkers(kernel, model_k, ensemble, device, recording)
        return Rung(block, walkers, drawn, g, edges, config.run.seed, observed)

    ensembles, mine_b = initial_ensembles(config), range(n_blocks) if blocks is None else blocks
    rungs = [make(Block(k, b, n_blocks), ensembles[k]) for k in ks for b in mine_b]
    if config.annealed:
        link_populations(rungs, g.n_walkers)
    return rungs


def _anchors(
    config: Config, checked: CheckedModel, like: Any, exact: Exact, weighed: bool
) -> Anchors | OwnDraws:
    """Return what draws rungs directly; `weighed`: whether draws carry weights; `like`: a batch."""
    from omniinput_hpc.sampling.anchors import Anchors, uniform_every_move
    from omniinput_hpc.sampling.population import OwnDraws

    if config.annealed:
        return OwnDraws(checked, len(like), config.beta_k)
    allowed = config.ladder is not None and config.ladder.with_anchors
    ancestral = config.beta_k.tolist() if weighed else None
    every_move = uniform_every_move(config.kernel, checked, str(like.device))
    n_segments = config.sampler.exchanges
    return Anchors(checked, like, allowed, exact.rows, ancestral, n_segments, every_move)


def second_direction(config: Config, model: models.Model) -> SecondDirection | None:
    """Return the lambdas and the observable of ``ladder.lambdas``; None without them."""
    from omniinput_hpc.kernels.parts.tilt import SecondDirection
    from omniinput_hpc.models import observables

    ladder = config.ladder
    if ladder is None or ladder.observable is None:
        return None
    what, to_ids = config.observed[ladder.observable], models.space_of(model).to_ids
    y = observables.build(what, config, f"observables.{ladder.observable} =")
    return SecondDirection(ladder.lambda_k, lambda x: y(to_ids(x)))


def prepare_file(
    built: Built,
    here: Identity,
    found: Existing,
    header: Mapping[str, str],
    heartbeat: Callable[[], object],
) -> None:
    """Create the run file, or extend it for more rounds (rank 0 only).

    `header` has further attributes of a new file; an extended file gets its "config" as well.
    `heartbeat` is called while a long file is copied. Raises a UserError if the file cannot be
    made.
    """
    from omniinput_hpc.sampling.anchors import COLD_STARTS

    config, path = built.config, Path(built.config.run.output)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        if not found.resume:
            attributes: dict[str, Any] = {
                **header,
                "model_fingerprint": here.fingerprint,
                "model_probe_z": np.array(here.probe_z),
                "model_beta": here.model_beta,
                "rows_normalized": int(here.rows_normalized),
                "cold_starts": COLD_STARTS,
                **here.inside,
                **here.marks,
                **here.environment,
            }
            layout.create(path, built.geometry, _first_values(built), attributes)
            return
        if not found.settled:
            checksums.settle_file(path)
        if config.run.rounds > found.rounds_planned:
            layout.grow(path, built.geometry, header["config"], heartbeat)
    except OSError as error:
        reason = error.strerror or str(error)
        raise UserError(f"run.output = {path} cannot be made: {reason}") from None


def _first_values(built: Built) -> dict[str, NDArray[Any]]:
    config, allowed = built.config, models.space_of(built.model).allowed
    edges, ensembles = config.bins.edges, initial_ensembles(config)
    gaussians = [e if isinstance(e, Gaussian) else Gaussian(0.0, 0.0, 0.0) for e in ensembles]
    first: dict[str, NDArray[Any]] = layout.first_values(
        config.beta_k,
        edges,
        np.stack([log_weight_b(ensemble, edges) for ensemble in ensembles]),
        np.array([gaussian.kappa for gaussian in gaussians]),
        np.array([gaussian.z0 for gaussian in gaussians]),
    )
    return first if allowed is None else {**first, "space/allowed": allowed}


def start(
    world: World,
    built: Built,
    writer_kind: str,
    stopping: StopCheck,
    held_lock: lock.RunLock,
    shown: bool = True,
) -> LiveRun:
    """Return a run with placed walkers, either new or restored from the run file.

    All ranks call this after `prepare_file`. `shown` is whether progress is shown.
    """
    from omniinput_hpc.sampling.blocks import Gathering
    from omniinput_hpc.sampling.burn_in import BurnIn
    from omniinput_hpc.sampling.joined import join
    from omniinput_hpc.sampling.loop import LiveRun
    from omniinput_hpc.sampling.observer import Observer
    from omniinput_hpc.sampling.rung import start_all

    config, g, rungs = built.config, built.geometry, built.rungs
    path, grid = Path(config.run.output), grid_of(world, config)
    file = world.together(lambda: OpenFile(path, acting=world.rank == 0))
    written = grid.written(world.rank)
    checkpoint, first, counts = world.together(lambda: _read_checkpoint(built, written))
    has_m = built.law is None and models.offers_of(built.model).conditional_logits is not None
    m = _own_beta(built.model) if has_m else None  # it stays, drawn or not
    tune = config.ladder is not None and config.ladder.tune
    tuning = LadderTuning(g.n_rungs, config.run.burn_in, tune, (0.0,) if m is None else (0.0, m))
    if checkpoint is None:
        stopping.start(partial(start_all, rungs))
    else:
        tuning.resume(checkpoint.swaps_k2)
        for rung in rungs:
            rung.resume(checkpoint.rungs[rung.k - built.held.start], tuned_beta=tune)
    side = SideWriter(path, world)
    opened = writers.open_writer(writer_kind, path, g, written, world)
    burn_in = BurnIn(world, config, g, rungs, tuning)
    sampler, shown = config.sampler, shown and world.rank == 0
    exchanger = exchanger_of(world, built)
    moves = sampler.moves_per_round * g.n_walkers * g.n_rungs
    return LiveRun(
        config=config,
        geometry=g,
        rungs=rungs,
        gathering=Gathering(world, grid),
        block_counts=counts,
        exchanger=exchanger,
        joined=join(rungs, exchanger, config.run.seed),
        burn_in=burn_in,
        observer=Observer(world, config, rungs, first, burn_in.seen),
        writer=writers.GuardedWriter(opened, held_lock, file, world),
        side=side,
        world=world,
        stopping=stopping,
        clock=Clock(world),
        progress=Progress(first, g.rounds, config.run.burn_in, moves, shown, sampler.exchanges),
        next_round=first,
    )


def exchanger_of(world: World, built: Built) -> Exchanger:
    """Return what swaps configurations between the rungs of a run."""
    from omniinput_hpc.sampling.exchange import Exchanger

    config, grid = built.config, grid_of(world, built.config)
    second = second_direction(config, built.model)
    return Exchanger(built.geometry, config.bins.edges, config.run.seed, world, grid, second)


def _read_checkpoint(
    built: Built, written: range
) -> tuple[records.Checkpoint | None, int, BlockCounts]:
    """Return a rank's checkpoint, the next round (negative in burn-in), and its earlier counts.

    `written` are the rungs that the rank writes.
    """
    config = built.config
    with reader.open_run(Path(config.run.output), tried=True, live=False) as run:
        next_round = run.rounds or run.burn_in_committed - config.run.burn_in
        several = written if run.geometry.rounds_per_block > 1 else range(0)
        histograms = layout.layout(built.geometry)["histogram/counts"]
        counts = BlockCounts(histograms, counts_before(run, several))
        return run.checkpoint(built.held), next_round, counts
