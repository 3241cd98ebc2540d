"""Compare annotators with each other, and show whether more scores would change the curve.

Writes RUN.annotators.csv and RUN.convergence.csv, each with a picture.
"""

from __future__ import annotations

from omniinput_hpc.cli.scripts import (
    add_figure_options,
    add_score_options,
    curve_options,
    finish,
    new_parser,
    recorded_run,
)
from omniinput_hpc.estimators.precision_recall.annotators import convergence, steps_from
from omniinput_hpc.plots import look
from omniinput_hpc.results.curves import curve_by_scores, density_for, other_side
from omniinput_hpc.results.names import claim_name, words_of
from omniinput_hpc.results.scores import AnnotatorsResult


def main(arguments: list[str], program: str = "annotators.py") -> None:
    """Read, estimate, write, and print where the results are."""
    parser = new_parser(program, __doc__, "runs/toy.h5 --scores runs/toy.scores.*.jsonl")
    add_score_options(parser, judge=False)
    add_figure_options(parser)
    options = parser.parse_args(arguments)
    look.use([[options.run]], options.label, options.title, options.style)
    with recorded_run(program, arguments, options) as (record, run):
        by = curve_options(options)
        density = density_for([run], by)
        joined, scored = curve_by_scores([run], density, by)
        words = words_of(None, by.scores, other_side([run], options.side), bank=by.bank)
    tag = claim_name(record, ".annotators.csv", words)
    steps, side = steps_from(options.fewest_inputs), scored.curve.side
    settled = convergence(density, joined.scored, side, steps, options.fewest_lanes)
    finish(record, AnnotatorsResult([run], [density], joined, scored, settled), tag)
