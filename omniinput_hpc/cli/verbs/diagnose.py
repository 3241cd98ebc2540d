"""Diagnose how well a run mixes, and what to change: moves, swaps, round trips, R-hat.

Writes RUN.diagnose.csv and .png.
"""

from __future__ import annotations

from omniinput_hpc.cli.scripts import add_figure_options, finish, new_parser, new_record
from omniinput_hpc.plots import look
from omniinput_hpc.results.diagnosis import diagnosis_of
from omniinput_hpc.runfile.reader import open_run


def main(arguments: list[str], program: str = "diagnose.py") -> None:
    """Read, diagnose, write, and print what to change."""
    parser = new_parser(program, __doc__, "runs/toy.h5")
    add_figure_options(parser)
    options = parser.parse_args(arguments)
    look.use([[options.run]], options.label, options.title, options.style)
    record = new_record(program, arguments, options, options.run)
    with open_run(options.run, options.on_damage) as run:
        record.add_run(run)
        found = diagnosis_of(run)
    finish(record, found)
