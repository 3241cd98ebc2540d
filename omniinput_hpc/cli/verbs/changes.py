"""Compare the outputs of two models on the independent draws of one run.

RUN.h5 is an ancestral run; RUN.rescored.NAME.h5 holds the other model's outputs of its draws
(omniinput rescore). Writes RUN.changes.NAME.csv and .png: how the outputs differ in
each bin of z. Also writes RUN.log_g_changes.NAME.csv: the densities of both models from the same
draws, so that their difference is known better than either density.
"""

from __future__ import annotations

import math
from pathlib import Path

from omniinput_hpc.cli.scripts import (
    add_figure_options,
    finish,
    new_parser,
    recall_range,
    recorded_run,
)
from omniinput_hpc.errors import UserError
from omniinput_hpc.estimators import EstimateError
from omniinput_hpc.estimators.comparison.other_outputs import AuprChange
from omniinput_hpc.plots import look
from omniinput_hpc.results.changes import ChangesResult, aupr_of, extremes, read_changed


def main(arguments: list[str], program: str = "changes.py") -> None:
    """Read, estimate, write, and print where the results are."""
    example = "runs/my.h5 runs/my.rescored.other.h5 --rule my_words:english"
    parser = new_parser(program, __doc__, example, "an ancestral run")
    add = parser.add_argument
    add("rescored", type=Path, metavar="RUN.rescored.NAME.h5", help="the other model's outputs")
    add("--width", type=float, help="width of the bins of z (default: the run's)")
    add("--rule", metavar="RULE", help="how the AUPR by this rule changes, too")
    add("--side", choices=["low", "high"], help="the confident end (default: the run's own)")
    shown = "show the N draws that rise most, and those that fall most (default: %(default)s)"
    add("--show", type=int, default=0, metavar="N", help=shown)
    below = "of those with z up to Z (default: of all); addresses are masked"
    add("--show-below", type=float, default=math.inf, metavar="Z", help=below)
    over = "range of recall of the AUPR, 10^LOW:10^HIGH or LOW:HIGH of ln recall (default: what "
    over += "both curves reach)"
    add("--recall-range", type=recall_range, metavar="LOW:HIGH", help=over)
    add_figure_options(parser)
    options = parser.parse_args(arguments)
    look.use([[options.run], [options.rescored]], options.label, options.title, options.style)
    if options.show < 0:
        raise UserError(f"--show {options.show}: expected 0 or more")
    if not options.rule and (options.side or options.recall_range):
        raise UserError("--side and --recall-range are of the AUPR by a rule: give --rule, too")

    with recorded_run(program, arguments, options) as (record, run):
        found = read_changed(run, options.rescored, options.width)
        name = options.rescored.stem.rpartition(".rescored.")[2]
        aupr: AuprChange | EstimateError | None = None
        if options.rule:
            try:
                aupr = aupr_of(found, run, options.rule, options.side, options.recall_range)
            except EstimateError as error:  # the other results do not depend on it
                aupr = error
        inputs = extremes(run, found, options.show, options.show_below)
    result = ChangesResult([run], found.densities, found, aupr, names=(options.run.stem, name))
    finish(record, result, more=inputs)
