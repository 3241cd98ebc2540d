"""A run's precision-recall curve from a rule or from people's scores: RUN.pr.csv, .png, .roc.png.

With --exact or --scores also RUN.rho_r.png or RUN.r.png; every picture also as PDF.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from _common import beside, run_script, scored_of, scores_arguments

from omniinput_hpc.estimators.comparison.to_exact import coarsen_exact, compare_curve
from omniinput_hpc.estimators.density.density import density_of_run
from omniinput_hpc.estimators.precision_recall.from_rule import load_rule, rule_curve, sum_scores
from omniinput_hpc.plots import density as figures
from omniinput_hpc.plots import scores
from omniinput_hpc.results.score_tables import summarize_scores
from omniinput_hpc.results.tables import (
    curve_columns,
    describe_curve,
    describe_density,
    describe_run,
    read_exact,
    summarize_curve,
    write_table,
)
from omniinput_hpc.runfile.reader import open_run


def main(arguments: list[str]) -> None:
    """Read, estimate, write, and print where the results are."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("run", type=Path, metavar="RUN.h5", help="the run file")
    scores_arguments(parser, rule=True)
    parser.add_argument("--exact", type=Path, metavar="FILE.csv", help="exact density and r")
    options = parser.parse_args(arguments)
    side, extra = options.side, []
    fewest = (options.fewest_inputs, options.fewest_lanes)

    with open_run(options.run) as run:
        fine = density = density_of_run(run)
        exact = read_exact(options.exact, fine.edges, ["r"]) if options.exact else None
        source, label = describe_run(run), figures.z_label(run.config)
        if options.rule:
            sums = sum_scores(run, density, load_rule(options.rule), fewest[0])
            curve = rule_curve(density, sums, side, fewest, whole=False)
            by = options.rule
        else:
            joined, result = scored_of(run, density, options)
            density, curve, by = result.density, result.curve, ", ".join(joined.scored.annotators)
            extra = [*joined.notes, *summarize_scores(result, joined.scored, side)]
            exact = coarsen_exact(exact, fine.edges, density.edges) if exact else None
    truth = compare_curve(density, curve, exact, side) if exact else None

    table = beside(options.run, ".pr.csv")
    header = describe_curve(curve, side, by, fewest) + extra + describe_density(density, source)
    write_table(table, header, curve_columns(curve))
    pictures = {
        ".pr.png": figures.curve_figure(density, curve, exact, truth),
        ".roc.png": scores.roc_figure(density, curve),
    }
    if options.scores:
        pictures[".r.png"] = scores.r_figure(density, curve, label, exact)
    elif exact is not None:
        pictures[".rho_r.png"] = figures.rho_r_figure(density, curve, label, exact)
    for ending, picture in pictures.items():
        figures.save(picture, beside(options.run, ending))

    print("\n".join([source, *summarize_curve(density, curve, fewest), *extra]))
    if truth is not None:
        print(truth)
    print("\n".join(str(beside(options.run, ending)) for ending in (".pr.csv", *pictures)))


if __name__ == "__main__":
    raise SystemExit(run_script(main))
