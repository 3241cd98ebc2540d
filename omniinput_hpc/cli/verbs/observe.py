"""Compute an observable of all recorded inputs of a run.

Writes RUN.observed.NAME.h5, from which `omniinput average` and `joint` take it.

An input file's [[observables]] do the same while the run samples.
"""

from __future__ import annotations

from omniinput_hpc.cli.scripts import new_parser
from omniinput_hpc.errors import UserError
from omniinput_hpc.results.observables import NAMES, observe_all
from omniinput_hpc.runfile.reader import open_run


def main(arguments: list[str], program: str = "observe.py") -> None:
    """Read, compute, write, and print where the result is."""
    parser = new_parser(program, __doc__, "runs/english.h5 --add length")
    add = parser.add_argument
    add("--add", required=True, metavar="NAME", help="its name, and what it is without --function")
    add("--function", metavar="WHAT", help=f"what it is: {', '.join(NAMES[:-1])}")
    add("--render", action="store_true", help="show inputs by the python model's own render")
    options = parser.parse_args(arguments)
    if options.results is not None:
        raise UserError(
            "--results: average and joint look for the file beside the run; leave this option out"
        )
    with open_run(options.run, options.on_damage) as run:
        print(observe_all(run, options.add, options.function, options.render))
