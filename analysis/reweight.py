"""Reweight a run's histograms into the density of its outputs: RUN.density.csv and .png."""

from __future__ import annotations

import argparse
from pathlib import Path

from _common import beside, run_script

from omniinput_hpc import figures
from omniinput_hpc.estimators.compare import compare_density, read_exact
from omniinput_hpc.estimators.density import density_of_run
from omniinput_hpc.estimators.tables import (
    density_columns,
    describe_density,
    describe_run,
    summarize_density,
    write_table,
)
from omniinput_hpc.run_reader import open_run


def main(arguments: list[str]) -> None:
    """Read, estimate, write, and print where the results are."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("run", type=Path, metavar="RUN.h5", help="the run file")
    parser.add_argument(
        "--exact", type=Path, metavar="FILE.csv", help="exact density to compare with"
    )
    options = parser.parse_args(arguments)

    with open_run(options.run) as run:
        density = density_of_run(run)
        source, config = describe_run(run), run.config
    exact = read_exact(options.exact, density.edges) if options.exact else None

    table = beside(options.run, ".density.csv")
    write_table(table, describe_density(density, source), density_columns(density))
    picture = beside(options.run, ".density.png")
    figures.save(figures.density_figure(density, figures.z_label(config), exact), picture)

    print(source)
    print("\n".join(summarize_density(density)))
    if exact is not None:
        for fewest in (10_000, 1_000):
            print(compare_density(density, exact, fewest))
    print(f"{table}\n{picture}")


if __name__ == "__main__":
    raise SystemExit(run_script(main))
