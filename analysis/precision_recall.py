"""Score a run's samples by a rule: its precision-recall curve, RUN.pr.csv and .png."""

from __future__ import annotations

import argparse
from pathlib import Path

from _common import beside, run_script

from omniinput_hpc import figures
from omniinput_hpc.estimators.compare import compare_curve, read_exact
from omniinput_hpc.estimators.density import density_of_run
from omniinput_hpc.estimators.precision_recall import precision_recall, sum_scores
from omniinput_hpc.estimators.rules import load_rule
from omniinput_hpc.estimators.tables import (
    curve_columns,
    describe_curve,
    describe_density,
    describe_run,
    summarize_curve,
    write_table,
)
from omniinput_hpc.run_reader import open_run


def main(arguments: list[str]) -> None:
    """Read, estimate, write, and print where the results are."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("run", type=Path, metavar="RUN.h5", help="the run file")
    parser.add_argument("--rule", required=True, metavar="MODULE:FUNCTION", help="scores inputs")
    parser.add_argument("--exact", type=Path, metavar="FILE.csv", help="exact density and r")
    parser.add_argument("--side", choices=["low", "high"], default="low", help="the confident end")
    options = parser.parse_args(arguments)

    rule = load_rule(options.rule)
    with open_run(options.run) as run:
        density = density_of_run(run)
        exact = read_exact(options.exact, density.edges, ["r"]) if options.exact else None
        curve = precision_recall(density, sum_scores(run, density, rule), options.side)
        source, z_label = describe_run(run), figures.z_label(run.config)
    truth = compare_curve(density, curve, exact, options.side) if exact else None

    table, picture = beside(options.run, ".pr.csv"), beside(options.run, ".pr.png")
    header = describe_curve(curve, options.side, options.rule) + describe_density(density, source)
    write_table(table, header, curve_columns(curve))
    figures.save(figures.curve_figure(density, curve, exact, truth), picture)
    paths = [table, picture]
    if exact is not None:
        paths.append(beside(options.run, ".rho_r.png"))
        figures.save(figures.rho_r_figure(density, curve, z_label, exact), paths[-1])

    print(source)
    print("\n".join(summarize_curve(density, curve)))
    if truth is not None:
        print(truth)
    print("\n".join(str(path) for path in paths))


if __name__ == "__main__":
    raise SystemExit(run_script(main))
