"""Compare the outputs of two models on the independent draws of one run.

RUN.h5 is an ancestral run; RUN.rescored.NAME.h5 holds the other model's outputs of its draws
(omniinput rescore). Writes RUN.changes.NAME.csv and .png: how the outputs differ in
each bin of z. Also writes RUN.log_g_changes.NAME.csv: the densities of both models from the same
draws, so that their difference is known better than either density.
"""

from __future__ import annotations

import math
from pathlib import Path

from omniinput_hpc.cli.scripts import add_figure_options, new_parser, new_record, recall_range
from omniinput_hpc.errors import UserError
from omniinput_hpc.estimators import EstimateError
from omniinput_hpc.estimators.comparison.other_outputs import log_g_change
from omniinput_hpc.models.table import z_label
from omniinput_hpc.plots import look
from omniinput_hpc.plots.changes import changes_figure
from omniinput_hpc.plots.style import save_as
from omniinput_hpc.results.caption import caption_of
from omniinput_hpc.results.changes import (
    aupr_line,
    aupr_of,
    bin_columns,
    density_columns,
    extremes,
    lines_of,
    read_changed,
)
from omniinput_hpc.results.density import DensityResult
from omniinput_hpc.results.tables import beside, describe_run
from omniinput_hpc.runfile.reader import open_run


def main(arguments: list[str], program: str = "changes.py") -> None:
    """Read, estimate, write, and print where the results are."""
    example = "runs/my.h5 runs/my.rescored.other.h5 --rule words:english"
    parser = new_parser(program, __doc__, example, "an ancestral run")
    add = parser.add_argument
    add("rescored", type=Path, metavar="RUN.rescored.NAME.h5", help="the other model's outputs")
    add("--width", type=float, help="width of the bins of z (default: the run's)")
    add("--rule", metavar="MODULE:FUNCTION", help="how the AUPR by this rule changes, too")
    add("--side", choices=["low", "high"], help="the confident end (default: the run's own)")
    shown = "show the N draws that rise most, and those that fall most (default: %(default)s)"
    add("--show", type=int, default=0, metavar="N", help=shown)
    below = "of those with z up to Z (default: of all); addresses are masked"
    add("--show-below", type=float, default=math.inf, metavar="Z", help=below)
    over = "range of ln recall of the AUPR (default: what both curves reach)"
    add("--recall-range", type=recall_range, metavar="LOW:HIGH", help=over)
    add_figure_options(parser)
    options = parser.parse_args(arguments)
    look.use([[options.run], [options.rescored]], options.label, options.title, options.style)
    if options.show < 0:
        raise UserError(f"--show {options.show}: expected 0 or more")

    record = new_record(program, arguments, options, options.run)
    with open_run(options.run, options.on_damage) as run:
        record.add_run(run)
        found = read_changed(run, options.rescored, options.width)
        name = options.rescored.stem.rpartition(".rescored.")[2]
        names = (options.run.stem, name)
        lines = [
            describe_run(run),
            f"{found.runs[0].rounds} rounds rescored",
            *lines_of(found, names),
        ]
        if options.rule:
            try:
                aupr = aupr_of(found, run, options.rule, options.side, options.recall_range)
            except EstimateError as error:  # the other results do not depend on it
                lines.append(f"AUPR: {error}")
            else:
                lines.append(aupr_line(aupr, names))
                record.add_interval("change of the AUPR", aupr.change)
        inputs = extremes(run, found, options.show, options.show_below)
        label, caption = z_label(run.config), caption_of([run], found.densities)
    table = beside(record.run_path, f".log_g_changes.{name}.csv")
    record.add_table(table, ["both models' densities, of the same draws"], density_columns(found))
    change = log_g_change(*found.densities)
    figure = changes_figure(found.changes, found.densities[0], change, names, label)
    about = ["z' - z over all inputs of a bin of z, z' of the other model", *lines]
    files = record.add_results(
        f"changes.{name}", about, bin_columns(found), save_as(figure, caption)
    )
    for stem, density in zip(names, found.densities, strict=True):
        DensityResult([run], density).record(record, stem)
    record.notes = lines
    record.save()
    print("\n".join([*lines, *inputs, str(table), *files]))
