"""The mean of an observable over the inputs of each bin of z, with 95 % intervals.

Writes RUN.average.NAME.csv, .png and .pdf.

It is estimated from the recorded samples, weighted so that each represents its share of inputs.
"""

from __future__ import annotations

from omniinput_hpc.cli.scripts import (
    add_figure_options,
    add_range,
    finish,
    new_parser,
    new_record,
)
from omniinput_hpc.plots import look
from omniinput_hpc.results.observables import NAMES, average_of
from omniinput_hpc.runfile.reader import open_run


def main(arguments: list[str], program: str = "average.py") -> None:
    """Read, estimate, write, and print where the results are."""
    parser = new_parser(program, __doc__, "runs/english.h5 --observable length")
    add = parser.add_argument
    words = f"what is averaged: {', '.join(NAMES)}"
    add("--observable", required=True, metavar="NAME", help=words)
    add_range(parser, "range of z (default: all bins with counts)")
    add("--width", type=float, help="width of the bins of z (default: at most 12 bins)")
    add("--render", action="store_true", help="show inputs by the python model's own render")
    add_figure_options(parser)
    options = parser.parse_args(arguments)
    look.use([[options.run]], options.label, options.title, options.style)
    record = new_record(program, arguments, options, options.run)
    with open_run(options.run, options.on_damage) as run:
        record.add_run(run)
        found = average_of(run, options.observable, options.range, options.width, options.render)
    finish(record, found)
