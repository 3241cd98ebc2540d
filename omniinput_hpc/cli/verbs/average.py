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
    recorded_run,
)
from omniinput_hpc.plots import look
from omniinput_hpc.results.observables import NAMES, average_of


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
    with recorded_run(program, arguments, options) as (record, run):
        found = average_of(run, options.observable, options.range, options.width, options.render)
    finish(record, found)
