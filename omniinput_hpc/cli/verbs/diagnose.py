"""Diagnose how well a run mixes, and what to change: moves, swaps, round trips, R-hat.

Writes RUN.diagnose.csv and .png.
"""

from __future__ import annotations

from omniinput_hpc.cli.scripts import add_figure_options, finish, new_parser, recorded_run
from omniinput_hpc.plots import look
from omniinput_hpc.results.diagnosis import diagnosis_of


def main(arguments: list[str], program: str = "diagnose.py") -> None:
    """Read, diagnose, write, and print what to change."""
    parser = new_parser(program, __doc__, "runs/toy.h5")
    add_figure_options(parser)
    options = parser.parse_args(arguments)
    look.use([[options.run]], options.label, options.title, options.style)
    with recorded_run(program, arguments, options) as (record, run):
        found = diagnosis_of(run)
    finish(record, found)
