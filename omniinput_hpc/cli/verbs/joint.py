"""The joint density of z and an observable.

Writes RUN.joint.NAME.csv, .png and .pdf: how many inputs have both in each cell.

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
from omniinput_hpc.errors import UserError
from omniinput_hpc.plots import look
from omniinput_hpc.results.observables import MAX_CELLS, NAMES, joint_of


def main(arguments: list[str], program: str = "joint.py") -> None:
    """Read, estimate, write, and print where the results are."""
    parser = new_parser(program, __doc__, "runs/english.h5 --observable length")
    add = parser.add_argument
    words = f"the observable: {', '.join(NAMES)}"
    add("--observable", required=True, metavar="NAME", help=words)
    add_range(parser, "range of z (default: all bins with counts)")
    add("--width", type=float, help="width of the bins of z (default: at most 12 bins)")
    add("--cells", type=int, default=MAX_CELLS, help="cells of y, at most (default: %(default)s)")
    add("--render", action="store_true", help="show inputs by the python model's own render")
    add_figure_options(parser)
    options = parser.parse_args(arguments)
    look.use([[options.run]], options.label, options.title, options.style)
    if options.cells < 1:
        raise UserError(f"--cells {options.cells}: expected 1 or more")
    with recorded_run(program, arguments, options) as (record, run):
        found = joint_of(
            run, options.observable, options.range, options.width, options.cells, options.render
        )
    finish(record, found)
