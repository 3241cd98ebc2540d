"""Compute the exact density: ``[mpirun -n R] omniinput enumerate INPUT.toml``.

Evaluates every input of a small space and counts them per bin of z. A model with a KV cache
(`begin`, `extend`, `branch`) evaluates the inputs as a tree of prefixes, each prefix once; any
other model evaluates batches. Ranks share the blocks of inputs.
"""

from __future__ import annotations

import logging
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from omniinput_hpc import models
from omniinput_hpc.cli import arguments, common
from omniinput_hpc.cli.scripts import check_output, new_record
from omniinput_hpc.config import Config
from omniinput_hpc.errors import EXIT_COMPLETE, UserError
from omniinput_hpc.estimators import EstimateError
from omniinput_hpc.estimators.precision_recall.from_rule import Rule
from omniinput_hpc.histogram import bin_of
from omniinput_hpc.models import constraint
from omniinput_hpc.parallel.comm import World
from omniinput_hpc.results.record import Record
from omniinput_hpc.results.rules import rule_of
from omniinput_hpc.sampling import shapes
from omniinput_hpc.text import duration

log = logging.getLogger("omniinput_hpc")

INPUTS_PER_BLOCK = 100_000
INPUTS_TRIED = 1000  # scored by the rule before anything is counted
BATCH = 4096
SECONDS_BETWEEN_LINES = 10.0
PROGRAM = "omniinput enumerate"

Block = Callable[[int], NDArray[np.float32]]
"""Maps the number of a block to z of its inputs, which begin with the same values."""
Weights = Callable[[NDArray[np.int64], NDArray[np.float32]], NDArray[np.float64]]
"""Maps inputs, int64 [n, D], and their outputs [n] to the inputs' weights, float64 [n]."""


class Enumeration:
    """Counts of inputs and of right inputs per bin.

    Attributes
    ----------
    count_b : int64 [B + 2], inputs per bin, then below and above the bins
    weight_b : float64 [B + 2], the sum of their weights: 1 each, or their probabilities under a law
    right_b : float64 [B + 2], the sum of score times weight
    mass_right : float64, sum of score times exp(-m z), where z is the mean over m predicted sites
    highest_right : float64, the largest z of an input with score 1
    """

    def __init__(self, edges: NDArray[np.float64], rule: Rule | None, m: int | None) -> None:
        self._edges, self.rule, self._m = edges, rule, m
        self.count_b = np.zeros(len(edges) + 1, dtype=np.int64)
        self.weight_b, self.right_b = np.zeros(len(edges) + 1), np.zeros(len(edges) + 1)
        self.mass_right, self.mass, self.highest_right = 0.0, 0.0, -np.inf

    def add(
        self, x: NDArray[np.int64], z: NDArray[np.float32], q: NDArray[np.float64] | None = None
    ) -> None:
        """Count inputs, int64 [n, D], with outputs z, float32 [n], and weights q [n] or 1."""
        z64 = z.astype(np.float64)
        if not np.isfinite(z64).all():
            bad = x[~np.isfinite(z64)][0].tolist()
            raise ArithmeticError(f"the model returned a z that is not finite for values {bad}")
        n_bins = len(self._edges) - 1
        index = bin_of(z64, self._edges)
        index = np.where(index < 0, n_bins, np.where(index >= n_bins, n_bins + 1, index))
        self.count_b += np.bincount(index, minlength=n_bins + 2)
        self.weight_b += np.bincount(index, weights=q, minlength=n_bins + 2)
        if self.rule is not None:
            r = self.rule(x)
            right = r if q is None else r * q
            self.right_b += np.bincount(index, weights=right, minlength=n_bins + 2)
            if self._m is not None:
                p = np.exp(-self._m * z64)
                self.mass, self.mass_right = self.mass + p.sum(), self.mass_right + float(r @ p)
            self.highest_right = max(self.highest_right, float(z64[r == 1].max(initial=-np.inf)))


def block_depth(n_values: int, n_sites: int) -> int:
    """Return how many leading sites number the blocks, for about 100,000 inputs per block."""
    depth = n_sites - 1
    while depth > 1 and n_values ** (n_sites - depth + 1) <= INPUTS_PER_BLOCK:
        depth -= 1
    return depth


def inputs_of(block: int, depth: int, n_values: int, n_sites: int) -> NDArray[np.int64]:
    """Return a block's inputs, int64 [n_values^(D - depth), D]; the last site varies fastest."""
    n_rest = n_sites - depth
    rest = np.indices((n_values,) * n_rest, dtype=np.int64).reshape(n_rest, -1).T
    x = np.empty((len(rest), n_sites), dtype=np.int64)
    x[:, :depth] = head_of(block, depth, n_values)
    x[:, depth:] = rest
    return x


def head_of(block: int, depth: int, n_values: int) -> list[int]:
    """Return the leading values of a block's inputs: the digits of the block's number."""
    return [block // n_values**i % n_values for i in range(depth - 1, -1, -1)]


def block_evaluator(model: Any, depth: int, device: str) -> Block:
    """Return an evaluator of blocks: as a tree of prefixes if the model can, else in batches."""
    from omniinput_hpc.models import batches  # imports torch

    def as_tree(block: int) -> NDArray[np.float32]:
        return batches.evaluate_continuations(model, head_of(block, depth, model.n_values), device)

    def in_batches(block: int) -> NDArray[np.float32]:
        x_nd = inputs_of(block, depth, model.n_values, model.n_sites)
        return batches.evaluate(model, x_nd, min(BATCH, len(x_nd)), device)

    offers = models.offers_of(model)
    branches = offers.prefixes is not None and offers.prefixes.branch is not None
    return as_tree if branches and offers.predicted_from == 1 else in_batches


def try_rule(rule: Rule, x: NDArray[np.int64]) -> None:
    """Score some inputs, int64 [n, D]; raise a `UserError` if the rule fails."""
    try:
        rule(x)
    except EstimateError as error:
        raise UserError(str(error)) from None


def law_evaluator(config: Config, model: Any, device: str) -> Weights | None:
    """Return the function that evaluates the run's law of inputs; None if all weigh the same."""
    from omniinput_hpc.kernels.parts.law import probabilities
    from omniinput_hpc.sampling.build import law_of

    if config.law is None:
        return None
    law: Any = law_of(config, model, device)
    return partial(probabilities, law, batch=BATCH, device=device)


def count_all(
    model: Any, config: Config, rule: Rule | None, device: str, world: World, max_hours: float
) -> Enumeration:
    """Enumerate the space over all ranks; every rank returns all counts.

    Raises
    ------
    UserError
        The time of the first block predicts more than `max_hours`, or the rule fails.
    """
    v, d, ids = model.n_values, model.n_sites, models.space_of(model)
    depth = block_depth(v, d)
    if rule is not None:
        first = ids.to_ids(inputs_of(0, depth, v, d)[:INPUTS_TRIED])
        world.together(lambda: try_rule(rule, first))
    n_blocks = v**depth
    evaluate = block_evaluator(model, depth, device)
    weigh = world.one_a_host_first(lambda: law_evaluator(config, model, device))
    space = world.together(lambda: constraint.of(config, model))
    evaluate(0)  # the first evaluation is slower than the others
    begin = time.monotonic()
    evaluate(0)
    seconds = float(world.max(np.array([time.monotonic() - begin]))[0]) * n_blocks / world.size
    size = f"{v}^{d} = {float(v) ** d:.3g} inputs"
    if seconds > 3600 * max_hours:
        years = seconds / 3.156e7
        wait = f"{years:.3g} years" if years > 1 else duration(seconds)
        raise UserError(
            f"{size} would take about {wait} on {world.size} rank(s), more than --max-hours "
            f"{max_hours:g}; sample this space instead, or raise --max-hours"
        )
    log.info("%s in %d blocks; about %s", size, n_blocks, duration(seconds))
    offers = models.offers_of(model)
    generates = offers.conditional_logits is not None and weigh is None and space is None
    m = d - offers.predicted_from if generates else None
    found = Enumeration(config.bins.edges, rule, m)

    def count_mine() -> None:
        try:
            for block in _reported(range(world.rank, n_blocks, world.size)):
                x, z = inputs_of(block, depth, v, d), evaluate(block)
                if space is not None:
                    inside = space.contains(x)
                    x, z = x[inside], z[inside]
                if not len(x):
                    continue
                found.add(ids.to_ids(x), z, None if weigh is None else weigh(x, z))
        except EstimateError as error:  # from the rule, for inputs that `try_rule` did not score
            raise UserError(str(error)) from None

    world.together(count_mine)
    found.count_b = world.sum(found.count_b)
    found.weight_b, found.right_b = world.sum(found.weight_b), world.sum(found.right_b)
    found.mass, found.mass_right = world.sum(np.array([found.mass, found.mass_right])).tolist()
    if m is not None:
        found.mass /= float(v) ** (d - m)  # sites that are not predicted are uniform
        found.mass_right /= float(v) ** (d - m)
    found.highest_right = float(world.max(np.array([found.highest_right]))[0])
    return found


def _reported(blocks: range) -> Iterator[int]:
    begin = last = time.monotonic()
    for done, block in enumerate(blocks):
        now = time.monotonic()
        if now - last > SECONDS_BETWEEN_LINES:
            last = now
            left = (now - begin) / done * (len(blocks) - done)
            log.info("%.0f%% done, %s left", 100 * done / len(blocks), duration(left))
        yield block


def write(record: Record, found: Enumeration, config: Config, source: list[str]) -> None:
    """Write the counts as a density CSV, with r if there is a rule, to the path of the record."""
    path = record.run_path
    inside, edges = found.count_b[:-2], config.bins.edges
    weight_b = found.weight_b[:-2]
    bins = np.flatnonzero(weight_b)
    columns: dict[str, NDArray[Any]] = {
        "z_lower": edges[bins],
        "z_upper": edges[bins + 1],
        "log_g": np.log(weight_b[bins]),
        "log_g_error": np.zeros(len(bins)),
        "count": inside[bins],
    }
    header = [
        "absolute: yes (exact, by enumeration)",
        *([] if config.law is None else ["measure: probability under the input file's [law]"]),
        f"inputs: {found.count_b.sum()}, of them {found.count_b[-2]} below the bins and "
        f"{found.count_b[-1]} above",
        *source,
    ]
    if found.rule is not None:
        words = "share of right inputs among what the model generates"
        # rows that are not normalized generate nothing
        normalized = found.mass < 1.001 and (found.mass > 0.999 or config.allowed is not None)
        share = [f"{words}: {found.mass_right:.8f}"] if found.mass_right and normalized else []
        columns["r"] = found.right_b[bins] / weight_b[bins]
        what = "right inputs" if config.law is None else "probability of right inputs"
        header += [f"{what}: {found.right_b.sum():.10g}", *share]
        if np.isfinite(found.highest_right):  # some input scores 1
            header.append(f"highest z of a right input: {found.highest_right:.6f}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        record.add_table(path, header, columns)
        record.save()
    except OSError as error:
        raise UserError(f"{path} cannot be written: {error.strerror}") from None


def run(world: World, argv: Sequence[str] | None, program: str = PROGRAM) -> int:
    """Run the program on this rank, and return its exit code."""
    args = world.together(lambda: _arguments(world, argv, program))
    world.together(lambda: check_output(args.output, [args.input]))
    config = common.read_input(world, args)
    about = world.on_rank_0(lambda: models.preflight(config))
    output = args.output or Path("inputs/exact") / f"{args.input.stem}.csv"
    rule = world.together(lambda: rule_of(args.rule, config)) if args.rule else None

    from omniinput_hpc.models.checked import try_out
    from omniinput_hpc.sampling.anchors import zero_inputs

    device = shapes.choose_device(world, config)
    models.import_builder(config.model)
    model = world.one_a_host_first(lambda: models.build(config, device, about.get("folder")))
    v, d = model.n_values, model.n_sites
    if d * np.log10(v) > 300:  # beyond float64
        raise UserError(f"{v}^{d} inputs cannot be enumerated; sample this space instead")
    zero = zero_inputs(1, model.n_sites, device)
    world.together(lambda: try_out(model, zero, f"the model ({config.model.kind})"))
    begin = time.monotonic()
    found = count_all(model, config, rule, device, world, args.max_hours)
    source = [
        f"source: {args.input}, {model.n_sites} sites of {model.n_values} values, "
        f"model {about['fingerprint']}",
        f"scores: {args.rule}",
    ]
    record = new_record(program, argv or sys.argv[1:], args, output)
    world.on_rank_0(lambda: write(record, found, config, source if rule else source[:1]))
    seconds = time.monotonic() - begin
    log.info("%s: %d inputs in %s", output, found.count_b.sum(), duration(seconds))
    return EXIT_COMPLETE


def _arguments(world: World, argv: Sequence[str] | None, program: str) -> Any:
    words = "Evaluate every input of a small space; write its exact density, and r(z) of a rule."
    example = "inputs/toy.toml --rule omniinput_hpc.zoo.toy:is_valid"
    parser = arguments.new_parser(program, words, example)
    parser.add_argument("input", type=Path, metavar="INPUT.toml", help="the input file")
    parser.add_argument("--rule", metavar="RULE", help="function that scores inputs")
    where = "the table to write (default without --set: inputs/exact/INPUT.csv)"
    parser.add_argument("--output", type=Path, metavar="FILE.csv", help=where)
    hours = "refuse if it would take longer (default: %(default)g)"
    parser.add_argument("--max-hours", type=float, default=1.0, metavar="HOURS", help=hours)
    arguments.add_set(parser)
    args = arguments.parse(parser, world.rank, argv)
    if args.set and args.output is None:
        raise UserError(
            "--set changes the input file's density: name the table to write with --output FILE.csv"
        )
    return args


def main(
    argv: Sequence[str] | None = None, world: World | None = None, program: str = PROGRAM
) -> int:
    """Run the program on this rank and return its exit code; `program` is the command as typed."""
    return common.main(partial(run, program=program), argv, world)
