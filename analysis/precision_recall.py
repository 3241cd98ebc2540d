"""Draw the precision-recall curve of a model over its whole input space.

What is right is told by a rule or by people's scores. Writes RUN.pr.csv, .pr.png and .roc.png; with
--exact also RUN.rho_r.png, with --scores RUN.r.png; every picture also as PDF.
"""

from __future__ import annotations

from pathlib import Path

from _common import add_score_options, curve_options, new_parser, run_script

from omniinput_hpc.estimators.comparison.to_exact import coarsen_exact, compare_curve
from omniinput_hpc.estimators.density.density import density_of_run
from omniinput_hpc.plots.density import rho_r_figure
from omniinput_hpc.plots.scores import curve_figure, r_figure, roc_figure
from omniinput_hpc.plots.style import remark_of, save, z_label
from omniinput_hpc.results import tables
from omniinput_hpc.results.curves import curve_of
from omniinput_hpc.results.score_tables import summarize_scores
from omniinput_hpc.runfile.reader import open_run


def main(arguments: list[str]) -> None:
    """Read, estimate, write, and print where the results are."""
    parser = new_parser(__doc__, "runs/toy.h5 --rule omniinput_hpc.zoo.toy:is_valid")
    add_score_options(parser, rule=True)
    parser.add_argument("--exact", type=Path, metavar="FILE.csv", help="exact density and r(z)")
    options = parser.parse_args(arguments)
    by = curve_options(options)

    notes: list[str] = []
    with open_run(options.run, options.on_damage) as run:
        fine = density_of_run(run)
        exact = tables.read_exact(options.exact, fine.edges, ["r"]) if options.exact else None
        source, label = tables.describe_run(run), z_label(run.config)
        remark = remark_of(run.config)
        found = curve_of(run, fine, by)
    density, curve = found.density, found.curve
    if found.joined and found.result:
        notes = [*found.joined.notes, *summarize_scores(found.result, found.joined.scored, by.side)]
        exact = coarsen_exact(exact, fine.edges, density.edges) if exact else None
    truth = compare_curve(density, curve, exact, by.side) if exact else None

    about = tables.describe_curve(curve, by.side, found.by, by.fewest)
    about += notes + tables.describe_density(density, source)
    tables.write_table(tables.beside(options.run, ".pr.csv"), about, tables.curve_columns(curve))
    figures = {
        ".pr.png": curve_figure(density, curve, exact, truth),
        ".roc.png": roc_figure(density, curve),
    }
    if options.scores:
        figures[".r.png"] = r_figure(density, curve, label, exact)
    elif exact is not None:
        figures[".rho_r.png"] = rho_r_figure(density, curve, label, exact)
    for ending, figure in figures.items():
        save(figure, tables.beside(options.run, ending), remark)

    print("\n".join([source, *tables.summarize_curve(density, curve, by.fewest), *notes]))
    if truth is not None:
        print(truth)
    print("\n".join(str(tables.beside(options.run, ending)) for ending in (".pr.csv", *figures)))


if __name__ == "__main__":
    raise SystemExit(run_script(main))
