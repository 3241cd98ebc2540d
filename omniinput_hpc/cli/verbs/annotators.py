"""Compare annotators with each other, and show whether more scores would change the curve.

Writes RUN.annotators.csv and RUN.convergence.csv, each with a picture.
"""

from __future__ import annotations

import numpy as np

from omniinput_hpc.cli.scripts import (
    add_figure_options,
    add_score_options,
    curve_options,
    new_parser,
    new_record,
)
from omniinput_hpc.estimators.precision_recall.annotators import (
    annotator_columns,
    convergence,
    steps_from,
)
from omniinput_hpc.models.table import z_label
from omniinput_hpc.plots import look
from omniinput_hpc.plots.scores import annotators_figure, convergence_figure
from omniinput_hpc.plots.style import save_as
from omniinput_hpc.results.caption import caption_of
from omniinput_hpc.results.curve import record_aupr
from omniinput_hpc.results.curves import curve_by_scores, density_for, other_side
from omniinput_hpc.results.density import DensityResult
from omniinput_hpc.results.names import claim_name, words_of
from omniinput_hpc.results.score_tables import agreement_lines
from omniinput_hpc.results.tables import describe_run
from omniinput_hpc.runfile.reader import open_run


def main(arguments: list[str], program: str = "annotators.py") -> None:
    """Read, estimate, write, and print where the results are."""
    parser = new_parser(program, __doc__, "runs/toy.h5 --scores runs/toy.scores.*.jsonl")
    add_score_options(parser)
    add_figure_options(parser)
    options = parser.parse_args(arguments)
    look.use([[options.run]], options.label, options.title, options.style)
    record = new_record(program, arguments, options, options.run)

    with open_run(options.run, options.on_damage) as run:
        record.add_run(run)
        density = density_for([run], curve_options(options))
        joined, result = curve_by_scores([run], density, curve_options(options))
        source, label = describe_run(run), z_label(run.config)
        caption = caption_of([run], [density])
        words = words_of(None, options.scores, other_side([run], options.side))
    name = claim_name(record, ".annotators.csv", words)
    steps = steps_from(options.fewest_inputs)
    settled = convergence(density, joined.scored, result.curve.side, steps, options.fewest_lanes)

    lines = agreement_lines(
        joined.scored, joined.first_ar, joined.second_ar, joined.given_ag, joined.gold_g
    )
    figure = annotators_figure(joined.scored, result.used_b, label)
    about, columns = [*lines, f"source: {source}"], annotator_columns(joined.scored)
    files = record.add_results(f"annotators{name}", about, columns, save_as(figure, caption))
    rows = [(n, curve.aupr, curve.aupr_low, curve.aupr_high) for n, curve in settled.items()]
    names = ("per_bin", "aupr", "low", "high")
    columns = dict(zip(names, map(np.array, zip(*rows, strict=True)), strict=True))
    about = ["AUPR from a part of the scores, 95% interval", source]
    figure = convergence_figure(settled, density.absolute)
    files += record.add_results(f"convergence{name}", about, columns, save_as(figure, caption))
    DensityResult([run], density).record(record)
    for n, curve in settled.items():
        record_aupr(record, curve, f"{n} scores a bin")
    record.notes = [source, *joined.notes, *lines]
    record.save()
    print("\n".join([*record.notes, *files]))
