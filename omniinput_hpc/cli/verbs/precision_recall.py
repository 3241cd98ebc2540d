"""Draw the precision-recall curve of a model over its whole input space.

A rule or people's scores determine which inputs are right. Writes RUN.pr.csv, .pr.png and .roc.png,
with --scores also RUN.r.png, and with a rule and --exact also RUN.rho_r.png. Every picture is also
written as PDF. Several runs of one model can be joined by a plus sign, A.h5+B.h5; the files are
then named A+B.pr.csv and so on.
"""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path

from omniinput_hpc.cli.scripts import (
    add_figure_options,
    add_score_options,
    add_threshold_options,
    curve_options,
    new_parser,
    new_record,
)
from omniinput_hpc.estimators.comparison.to_exact import coarsen_exact, compare_curve
from omniinput_hpc.plots import look
from omniinput_hpc.plots.scores import curve_figures
from omniinput_hpc.plots.style import about_curve, caption_of, save, z_label
from omniinput_hpc.results import curve_tables, tables
from omniinput_hpc.results.curves import (
    chosen_thresholds,
    curve_of,
    density_for,
    notes_of,
    other_side,
    reach_lines,
    side_lines,
)
from omniinput_hpc.results.density import describe_density
from omniinput_hpc.results.names import claim_name, words_of
from omniinput_hpc.results.run_groups import group_of


def main(arguments: list[str], program: str = "precision_recall.py") -> None:
    """Read, estimate, write, and print where the results are."""
    example = "runs/toy.h5 --rule omniinput_hpc.zoo.toy:is_valid"
    parser = new_parser(program, __doc__, example, "the run file, or several joined: A.h5+B.h5")
    add_score_options(parser, rule=True)
    parser.add_argument("--exact", type=Path, metavar="FILE.csv", help="exact density and r(z)")
    add_threshold_options(parser)
    add_figure_options(parser, by_rule=True)
    options = parser.parse_args(arguments)
    sets = tables.read_test_sets(options.test_sets) if options.test_sets else {}
    thresholds = chosen_thresholds(options.threshold, sets)
    by, group = curve_options(options), group_of(options.run)
    look.use([group.files], options.label, options.title, options.style)
    record = new_record(program, arguments, options, group.path)

    with ExitStack() as stack:
        runs = group.open(stack, options.on_damage)
        for run in runs:
            record.add_run(run)
        fine = density_for(runs, by)
        exact = tables.read_exact(options.exact, fine.edges, ["r"]) if options.exact else None
        source, label = tables.describe_run(*runs), z_label(runs[0].config)
        found = curve_of(runs, fine, by)
        caption = caption_of(runs, [fine], about_curve(found.side.end, found.by))
        words = words_of(by.rule, by.scores, other_side(runs, by.side))
    name = claim_name(record, ".pr.csv", words)
    density, curve = found.density, found.curve
    notes = side_lines(found) + notes_of(found) + reach_lines(found, thresholds, sets)
    if exact and len(density.edges) != len(fine.edges):  # those of the scores, or of --width
        exact = coarsen_exact(exact, fine.edges, density.edges)
    truth = compare_curve(density, curve, exact, curve.side) if exact else None

    about = curve_tables.describe_curve(curve, found.by, by.fewest)
    about += notes + describe_density(density, source)
    columns = curve_tables.curve_columns(curve)
    record.add_table(tables.beside(record.run_path, f".pr{name}.csv"), about, columns)
    figures = curve_figures(density, curve, label, exact, truth, by_scores=bool(found.result))
    for ending, figure in figures.items():
        path = tables.beside(record.run_path, ending.replace(".png", f"{name}.png"))
        save(figure, path, caption)
        record.files.append(str(path))

    record.notes = [source, *curve_tables.summarize_curve(density, curve, by.fewest), *notes]
    record.notes += [] if truth is None else [str(truth)]
    record.add_density(density, group.path.stem)
    record.add_curve(curve, group.path.stem)
    record.save()
    print("\n".join([*record.notes, *record.files]))
