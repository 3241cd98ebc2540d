"""Collect scores in a bank, and show how many labels a run's model has there: RUN.bank.csv.

With --scores, scores of the run's tasks are added to the bank. Other verbs take the bank instead of
--scores. The models of all runs in the bank, and of the run that is analysed, must have evaluated
each other's samples (omniinput rescore). The bank shows z: annotators must not see it.
"""

from __future__ import annotations

from pathlib import Path

from omniinput_hpc.annotation.bank import write_bank
from omniinput_hpc.cli.scripts import (
    add_figure_options,
    add_key,
    check_output,
    finish,
    new_parser,
    recorded_run,
)
from omniinput_hpc.errors import UserError
from omniinput_hpc.estimators.density.density import density_of_run
from omniinput_hpc.plots import look
from omniinput_hpc.results.banked import added, labels_for
from omniinput_hpc.results.labels import LabelsResult
from omniinput_hpc.results.names import claim_name, words_of


def main(arguments: list[str], program: str = "bank.py") -> None:
    """Read, add, write, and print the labels of each bin."""
    example = "runs/toy.h5 --bank runs/bank.jsonl --scores runs/toy.scores.*.jsonl"
    parser = new_parser(program, __doc__, example)
    add, files = parser.add_argument, "score files of this run's tasks to add to the bank"
    add("--bank", type=Path, required=True, metavar="BANK.jsonl", help="made if it is missing")
    add("--scores", type=Path, nargs="+", metavar="FILE", help=files)
    add_key(parser)
    width = "width of the bins (default: that of the bank's first tasks)"
    add("--width", dest="curve_width", type=float, metavar="WIDTH", help=width)
    add_figure_options(parser)
    options = parser.parse_args(arguments)
    check_output(options.bank, [*(options.scores or []), options.key], ".jsonl", "--bank")
    look.use([[options.run]], options.label, options.title, options.style)
    with recorded_run(program, arguments, options) as (record, run):
        density = density_of_run(run.data)
        if options.scores:
            bank, lines = added(options.bank, run, density, options.scores, options.key)
            write_bank(bank)
            print("\n".join(lines))
        try:
            joined = labels_for(options.bank, [run], density, options.curve_width)
        except UserError as error:
            if not options.scores:
                raise
            print(f"the labels cannot be weighed yet: {error}")  # they have been added
            return
    tag = claim_name(record, ".bank.csv", words_of(None, [], bank=options.bank))
    finish(record, LabelsResult.of(run, density, joined), tag)
