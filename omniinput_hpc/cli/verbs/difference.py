"""The difference D = z_A - z_B of two models' outputs, over the inputs in a range of either's z.

Each model must have evaluated the samples of the other's run (omniinput rescore). Writes
A.difference.B.csv, .png and .pdf: how many inputs have each D. Also writes
A.difference_by_z.B.csv: mean and standard deviation of D in each bin of z. Prints whether both
runs are of the same model.
"""

from __future__ import annotations

from omniinput_hpc.cli.scripts import (
    add_figure_options,
    add_range,
    finish,
    new_parser,
    new_record,
)
from omniinput_hpc.errors import UserError
from omniinput_hpc.plots import look
from omniinput_hpc.results.difference import MAX_CELLS, difference_of, examples
from omniinput_hpc.results.names import names_of
from omniinput_hpc.results.run_groups import require_apart
from omniinput_hpc.runfile.reader import open_run


def main(arguments: list[str], program: str = "difference.py") -> None:
    """Read, estimate, write, and print where the results are."""
    example = "runs/toy.h5 runs/toy-worse.h5 --range 1.6 2.2"
    parser = new_parser(program, __doc__, example, "one run of each model", nargs=2)
    add = parser.add_argument
    add_range(parser, "range of z (default: all bins in which A has counts)")
    add("--width", type=float, help="width of the bins of z (default: at most 12 bins)")
    add("--cells", type=int, default=MAX_CELLS, help="cells of D, at most (default: %(default)s)")
    shown = "show N texts of each end of D from either run (default: %(default)s)"
    add("--show", type=int, default=3, metavar="N", help=f"{shown}; addresses are masked")
    add_figure_options(parser)
    options = parser.parse_args(arguments)
    look.use([[run] for run in options.run], options.label, options.title, options.style)
    if options.cells < 1:
        raise UserError(f"--cells {options.cells}: expected 1 or more")
    if options.show < 0:
        raise UserError(f"--show {options.show}: expected 0 or more")
    one, two = options.run
    record = new_record(program, arguments, options, one)
    first, second = names_of(options.run)
    with open_run(one, options.on_damage) as run_a, open_run(two, options.on_damage) as run_b:
        pair, asked = (run_a, run_b), options.range
        require_apart([[run] for run in pair])
        for run in pair:
            record.add_run(run)
        found = difference_of(
            pair, (first, second), tuple(asked) if asked else None, options.width, options.cells
        )
        inputs = examples(found, pair, options.show)
    finish(record, found, more=inputs)
