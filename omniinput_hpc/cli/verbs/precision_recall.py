"""Draw the precision-recall curve of a model over its whole input space.

A rule or people's scores determine which inputs are right. Writes RUN.pr.csv, .pr.png and .roc.png,
with --scores also RUN.r.png, and with a rule and --exact also RUN.rho_r.png. Every picture is also
written as PDF. Several runs of one model can be joined by a plus sign, A.h5+B.h5; the files are
then named A+B.pr.csv and so on.
"""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

from omniinput_hpc.cli.scripts import (
    add_figure_options,
    add_score_options,
    add_threshold_options,
    curve_options,
    finish,
    new_parser,
    new_record,
)
from omniinput_hpc.estimators.comparison.to_exact import coarsen_exact
from omniinput_hpc.plots import look
from omniinput_hpc.results import tables
from omniinput_hpc.results.aupr import example_lines
from omniinput_hpc.results.curves import chosen_thresholds, curve_of, density_for, other_side
from omniinput_hpc.results.names import claim_name, words_of
from omniinput_hpc.results.run_groups import group_of


def main(arguments: list[str], program: str = "precision_recall.py") -> None:
    """Read, estimate, write, and print where the results are."""
    example = "runs/toy.h5 --rule omniinput_hpc.zoo.toy:is_valid"
    parser = new_parser(program, __doc__, example, "the run file, or several joined: A.h5+B.h5")
    add_score_options(parser, rule=True)
    parser.add_argument("--exact", type=Path, metavar="FILE.csv", help="exact density and r(z)")
    add_threshold_options(parser)
    add_figure_options(parser, by_rule=True)
    options = parser.parse_args(arguments)
    sets = tables.read_test_sets(options.test_sets) if options.test_sets else {}
    thresholds = chosen_thresholds(options.threshold, sets)
    by, group = curve_options(options), group_of(options.run)
    look.use([group.files], options.label, options.title, options.style)
    record = new_record(program, arguments, options, group.path)

    with ExitStack() as stack:
        runs = group.open(stack, options.on_damage)
        for run in runs:
            record.add_run(run)
        fine = density_for(runs, by)
        exact = tables.read_exact(options.exact, fine.edges, ["r"]) if options.exact else None
        found = curve_of(runs, fine, by)
        found = replace(found, examples=example_lines(runs, found.density, found.curve))
        words = words_of(by.rule, by.scores, other_side(runs, by.side), by.judges, by.bank)
    if exact and len(found.density.edges) != len(fine.edges):  # those of the scores, or of --width
        exact = coarsen_exact(exact, fine.edges, found.density.edges)
    found = replace(found, exact=exact, thresholds=thresholds, test_sets=sets)
    finish(record, found, claim_name(record, ".pr.csv", words))
