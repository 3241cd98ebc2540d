"""Show some inputs of each bin of the output: RUN.representatives.csv, .png and .pdf.

Also draws RUN.density_with_inputs.png and .pdf: the density, with one of these inputs next to each
bin. Recorded samples are drawn in proportion to the number of inputs that each of them represents.
Pictures of several runs are shown side by side, in A+B.representatives.csv, .png and .pdf.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import replace

from omniinput_hpc.cli.scripts import (
    add_figure_options,
    add_shown_options,
    finish,
    new_parser,
    new_record,
)
from omniinput_hpc.errors import UserError
from omniinput_hpc.estimators import FloatArray
from omniinput_hpc.estimators.density.density import Density, density_of_run
from omniinput_hpc.estimators.density.wide_bins import edges_for
from omniinput_hpc.models.table import z_label
from omniinput_hpc.plots import look
from omniinput_hpc.results.canonical import canonical_share
from omniinput_hpc.results.curves import confident_side
from omniinput_hpc.results.names import names_of
from omniinput_hpc.results.representatives import (
    Representatives,
    RepresentativesResult,
    how_to_show,
    representatives,
    with_tokens,
)
from omniinput_hpc.results.run_groups import RunGroup
from omniinput_hpc.runfile.reader import RunReader, open_run


def main(arguments: list[str], program: str = "representatives.py") -> None:
    """Read, draw, write, and print where the results are."""
    options = read_arguments(arguments, program)
    names, edges = names_of(options.run), None
    record = new_record(program, arguments, options, RunGroup(tuple(options.run)).path)
    found, densities, sides, runs = [], [], [], []
    for path in options.run:
        with open_run(path, options.on_damage) as run:
            record.add_run(run)
            density = density_of_run(run.data)
            edges = edges_for(density, options.range, options.width) if edges is None else edges
            found.append(_inputs_of(run, density, edges, options))
            densities.append(density)
            sides.append(confident_side(run, options.side).end)
            runs.append(run)
    result = RepresentativesResult(runs, densities, found, sides[0], not options.mask, names=names)
    _check_together(found, [z_label(run.config) for run in runs], sides)
    finish(record, result)


def read_arguments(arguments: list[str], program: str) -> argparse.Namespace:
    """Parse and check the options."""
    files = "the run file; pictures of several are shown side by side, in the bins of the first"
    parser = new_parser(program, __doc__, "runs/toy.h5 --per-bin 5", files, nargs="+")
    add_shown_options(parser)
    add, first = parser.add_argument, "which bin comes first (default: the model's confident side)"
    add("--side", choices=["low", "high"], help=first)
    add("--seed", type=int, default=1, help="seed of the draws (default: %(default)s)")
    add("--tokens", action="store_true", help="show each text as the list of its tokens")
    add_figure_options(parser)
    options = parser.parse_args(arguments)
    look.use([[run] for run in options.run], options.label, options.title, options.style)
    if options.per_bin < 1 or options.seed < 0:
        raise UserError("--per-bin must be 1 or more, --seed 0 or more")
    if options.tokens and options.mask:
        raise UserError("--mask works on whole texts, not on --tokens: give one of them")
    return options


def _inputs_of(
    run: RunReader, density: Density, edges: FloatArray, options: argparse.Namespace
) -> Representatives:
    found = representatives(run, density, edges, options.per_bin, options.seed, options.render)
    side, how = confident_side(run, options.side).end, how_to_show(run.config, render=False)
    found = replace(found, share=canonical_share([run.data], density, side, how))
    found = with_tokens(found, run.config) if options.tokens else found
    return found.masked() if options.mask else found


def _check_together(
    found: list[Representatives], labels: Sequence[str], sides: Sequence[str]
) -> None:
    """Check that several runs can be shown side by side; else raise a UserError."""
    texts = [one.note for one in found if one.kind == "text"]
    if len(found) > 1 and texts:
        raise UserError(
            "several runs are shown side by side only as pictures, and these inputs are not "
            f"({texts[0]}): give one run file"
        )
    if len(set(labels)) > 1 or len(set(sides)) > 1:
        raise UserError(
            "these runs have different outputs, so that they share no bins: give runs of models "
            f"with the same output and side ({'; '.join(dict.fromkeys(labels))})"
        )
