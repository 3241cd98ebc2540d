"""Put the densities of two models on one scale: A.normalized.B.csv and .png.

Each model must first have rescored the other model's run (omniinput rescore).
"""

from __future__ import annotations

from omniinput_hpc.cli.scripts import add_figure_options, add_range, finish, new_parser, new_record
from omniinput_hpc.estimators.comparison.normalization import normalize
from omniinput_hpc.estimators.density.density import density_of_run
from omniinput_hpc.plots import look
from omniinput_hpc.results.names import names_of
from omniinput_hpc.results.normalization import NormalizationResult, read_pairs
from omniinput_hpc.results.run_groups import require_one_space
from omniinput_hpc.runfile.reader import open_run


def main(arguments: list[str], program: str = "normalize.py") -> None:
    """Read, estimate, write, and print where the results are."""
    example = "runs/toy.h5 runs/toy-worse.h5 --range 1.6 2.2"
    parser = new_parser(program, __doc__, example, "one run of each model", nargs=2)
    add_range(parser, "outputs that both models share, to normalize by", required=True)
    add_figure_options(parser)
    options = parser.parse_args(arguments)
    look.use([[run] for run in options.run], options.label, options.title, options.style)
    one, two = options.run
    record = new_record(program, arguments, options, one)
    first, second = names_of(options.run)
    names = (first, second)

    with open_run(one, options.on_damage) as run_a, open_run(two, options.on_damage) as run_b:
        require_one_space([run_a, run_b])
        record.add_run(run_a)
        record.add_run(run_b)
        a, b = density_of_run(run_a.data), density_of_run(run_b.data)
        pairs_a, from_a = read_pairs(run_a, run_b, a)
        pairs_b, from_b = read_pairs(run_b, run_a, b)
    found = normalize(a, b, pairs_a, pairs_b, *options.range)
    result = NormalizationResult([run_a, run_b], [a, b], found, (from_a, from_b), names=names)
    finish(record, result)
