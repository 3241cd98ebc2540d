"""Estimate how many inputs of the whole space get each output, from runs of one model.

Writes RUN.density.csv and .png, or for several runs A+B.density.csv and .png next to the first.
With --bins it writes RUN.bins_LOWER_UPPER_WIDTH.density.csv and .png instead. With --certified it
also writes RUN.certified.csv and .png: bounds on the number of inputs up to each z, from an
ancestral run.
"""

from __future__ import annotations

import argparse
from contextlib import ExitStack
from pathlib import Path

import numpy as np

from omniinput_hpc.cli.scripts import add_figure_options, new_parser, new_record, other_bins_of
from omniinput_hpc.estimators import EstimateError
from omniinput_hpc.estimators.comparison.joined import joined_density
from omniinput_hpc.estimators.comparison.to_exact import compared_densities
from omniinput_hpc.estimators.density import other_bins
from omniinput_hpc.estimators.density.certified import KnownBelow, certify, predicted_sites
from omniinput_hpc.estimators.density.density import Density
from omniinput_hpc.plots import look
from omniinput_hpc.plots.certified import certified_figure
from omniinput_hpc.plots.density import density_figure
from omniinput_hpc.plots.style import Caption, caption_of, save_as, z_label
from omniinput_hpc.results import density as results
from omniinput_hpc.results import tables
from omniinput_hpc.results.record import Record
from omniinput_hpc.results.run_groups import RunGroup
from omniinput_hpc.runfile import census_file
from omniinput_hpc.runfile.reader import RunReader, open_run


def read_arguments(arguments: list[str], program: str) -> argparse.Namespace:
    """Parse and check the options."""
    example = "runs/toy.h5 --exact inputs/exact/toy.csv"
    parser = new_parser(program, __doc__, example, "run files", nargs="+")
    add, mbar_help = parser.add_argument, "compare with MBAR on one run's recorded samples"
    add("--exact", type=Path, metavar="FILE.csv", help="exact density to compare with")
    add("--unbinned", action="store_true", help=mbar_help)
    bins = "count the recorded samples in these bins instead: fewer counts, larger errors"
    add("--bins", type=other_bins_of, metavar="LOWER:UPPER:WIDTH", help=bins)
    certified = "bounds that hold for any number of independent draws (an ancestral run)"
    add("--certified", action="store_true", help=certified)
    census = "RUN.census.h5 of the same model, for --certified: exact as far as it is complete"
    add("--census", type=Path, metavar="FILE", help=census)
    add_figure_options(parser)
    options = parser.parse_args(arguments)
    look.use([options.run], options.label, options.title, options.style)
    for name in ("unbinned", "certified"):
        if getattr(options, name) and len(options.run) > 1:
            raise EstimateError(f"--{name} takes one run file")
    if options.census and not options.certified:
        raise EstimateError("--census is for --certified")
    return options


def main(arguments: list[str], program: str = "reweight.py") -> None:
    """Read, estimate, write, and print where the results are."""
    options = read_arguments(arguments, program)
    joined = RunGroup(tuple(options.run)).path
    record = new_record(program, arguments, options, joined)
    with ExitStack() as stack:
        files = [stack.enter_context(open_run(path, options.on_damage)) for path in options.run]
        for file in files:
            record.add_run(file)
        runs = [file.data for file in files]
        source, label = tables.describe_run(*files), z_label(files[0].config)
        if options.bins is not None:
            source += "; " + results.other_bins_clause(runs[0])
            runs = [other_bins.in_other_bins(run, options.bins) for run in runs]
        density = joined_density(runs)
        caption = caption_of(files, [density])
        constants = results.constants_lines(density.ends, density.pinned)
        for run in [file.data for file in files]:
            constants += results.populations_lines(run) + results.draw_constants_lines(run)
        without_bins = [results.mbar_line(runs[0], density.f_k)] if options.unbinned else []
        bounds: list[str] = []
        more: list[str] = []
        if options.certified:
            bounds, more = _certify(files[0], options.census, density, record, label, caption)
    exact = tables.read_exact(options.exact, density.edges) if options.exact else None

    figure = density_figure(density, label, exact)
    about, columns = results.describe_density(density, source), results.density_columns(density)
    name = "density"
    if options.bins is not None:
        name = f"{other_bins.name_of(options.bins)}.density"
        record.parameters["bins"] = other_bins.name_of(options.bins)
    written = record.add_results(name, about, columns, save_as(figure, caption))

    lines = [source, *results.summarize_density(density), *constants, *without_bins, *bounds]
    if exact is not None:
        lines += map(str, compared_densities(density, exact))
    lines += results.check_lines(density.verdict.checks)
    record.add_density(density, joined.stem)
    record.notes = lines
    record.save()
    print("\n".join([*lines, *written, *more]))


def _certify(
    run: RunReader, census: Path | None, density: Density, record: Record, label: str,
    caption: Caption,
) -> tuple[list[str], list[str]]:  # fmt: skip
    """Write the certified bounds; return the lines to print, and the names of the files."""
    known = _known_below(census, run) if census else None
    found = certify(run.data, predicted_sites(run.data), known)
    columns = results.certified_columns(found)
    about = results.describe_certified(found)
    draw = save_as(certified_figure(found, density, label), caption)
    files = record.add_results("certified", about, columns, draw)
    return [about[0], *results.compare_certified(found, density)], files


def _known_below(path: Path, run: RunReader) -> KnownBelow:
    """Read a census of the run's model; raise an EstimateError if it is of another model."""
    census = census_file.read(path)
    if census.texts["model_fingerprint"] != run.fingerprint:
        raise EstimateError(f"{path} is a census of another model than that of {run.path}")
    numbers = census.numbers
    least = np.nextafter(numbers["least_unlisted"], -np.inf)
    complete = min(numbers["complete_below"], least)
    return KnownBelow(float(complete), census.arrays["found/z"].astype(np.float64))
