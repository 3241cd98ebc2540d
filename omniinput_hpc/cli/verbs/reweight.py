"""Estimate how many inputs of the whole space get each output, from runs of one model.

Writes RUN.density.csv and .png, or for several runs A+B.density.csv and .png next to the first.
With --bins it writes RUN.bins_LOWER_UPPER_WIDTH.density.csv and .png instead, and with --width
RUN.width_WIDTH.density.csv and .png. With --certified it also writes RUN.certified.csv and .png:
bounds on the number of inputs below each z, from an ancestral run, or on the probability below z,
from a run with a [law]. Of runs with a [law], log_g is ln of a probability in place of a number.
"""

from __future__ import annotations

import argparse
from contextlib import ExitStack
from pathlib import Path

import numpy as np

from omniinput_hpc.cli.scripts import (
    add_figure_options,
    add_range,
    new_parser,
    new_record,
    other_bins_of,
)
from omniinput_hpc.estimators import EstimateError
from omniinput_hpc.estimators.comparison.joined import joined_density
from omniinput_hpc.estimators.comparison.to_exact import coarsen_exact
from omniinput_hpc.estimators.density import other_bins
from omniinput_hpc.estimators.density.certified import KnownBelow, certify, predicted_sites
from omniinput_hpc.estimators.density.density import log_total
from omniinput_hpc.estimators.density.wide_bins import in_wider_bins
from omniinput_hpc.plots import look
from omniinput_hpc.results import density as results
from omniinput_hpc.results import tables
from omniinput_hpc.results.canonical import canonical_share
from omniinput_hpc.results.certified import CertifiedResult, drawn_line
from omniinput_hpc.results.curves import confident_side
from omniinput_hpc.results.representatives import how_to_show
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
    add("--width", type=float, help="join bins to this width, a multiple of that of the bins")
    certified = "bounds that hold for any number of independent draws (ancestral, or under a law)"
    add("--certified", action="store_true", help=certified)
    census = "RUN.census.h5 of the same model, for --certified: exact as far as it is complete"
    add("--census", type=Path, metavar="FILE", help=census)
    add_range(
        parser, "how many inputs have an output from LOW to HIGH", action="append", default=[]
    )
    add_figure_options(parser)
    options = parser.parse_args(arguments)
    look.use([options.run], options.label, options.title, options.style)
    for name in ("unbinned", "certified"):
        if getattr(options, name) and len(options.run) > 1:
            raise EstimateError(f"--{name} takes one run file")
    if options.certified and options.bins is not None:
        raise EstimateError("--certified takes the run's own bins: leave out --bins")
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
        bins = remark = ""
        if options.bins is not None:
            bins = record.parameters["bins"] = other_bins.name_of(options.bins)
            remark = "; " + results.other_bins_clause(runs)
            runs = [other_bins.in_other_bins(run, options.bins) for run in runs]
        density = joined_density(runs)
        side, how = confident_side(files[0]).end, how_to_show(files[0].config, render=False)
        share = canonical_share(runs, density, side, how)
        further = [line for file in files for line in results.constants_of_run(file.data)]
        further += [results.mbar_line(runs[0], density.f_k)] if options.unbinned else []
        more: list[str] = []
        if options.certified:
            known = _known_below(options.census, files[0]) if options.census else None
            if known is not None and density.measure == "probability":
                raise EstimateError("--census counts inputs: leave it out under a law")
            bounds = certify(files[0].data, predicted_sites(files[0].data), known)
            certified = CertifiedResult(files, [density], bounds)
            more, further = certified.write(record), further + certified.summary()
        exact = tables.read_exact(options.exact, density.edges) if options.exact else None
        for low, high in options.range:
            total, *ends = log_total(density, low, high)
            what = density.words.whole
            if not density.absolute:
                what = f"the {density.words.share} in visited bins"
            record.add_interval(f"ln of {what} from {ends[0]:.6g} to {ends[1]:.6g}", total)
            further.append(results.total_line(density, total, ends, exact))
            further += [line for run in runs for line in drawn_line(run, *ends)]
    if options.width is not None:
        bins = "_".join(filter(None, [bins, f"width_{options.width:g}"]))
        remark += f"; bins joined to a width of {options.width:g}"
        fine, density = density, in_wider_bins(density, options.width)
        exact = coarsen_exact(exact, fine.edges, density.edges) if exact else None
    result = results.DensityResult(files, [density], exact, further, bins, remark, share)
    written = result.write(record)
    record.notes = result.lines()
    record.save()
    print("\n".join([*record.notes, *written, *more]))


def _known_below(path: Path, run: RunReader) -> KnownBelow:
    """Read a census of the run's model; raise an EstimateError if it is of another model."""
    census = census_file.read(path)
    if census.texts["model_fingerprint"] != run.fingerprint:
        raise EstimateError(f"{path} is a census of another model than that of {run.path}")
    numbers = census.numbers
    if numbers["n_sites"] != run.n_sites:
        raise EstimateError(
            f"{path} is a census of inputs of {numbers['n_sites']:g} sites; {run.path} has "
            f"{run.n_sites}"
        )
    least = np.nextafter(numbers["least_unlisted"], -np.inf)
    complete = min(numbers["complete_below"], least)
    return KnownBelow(float(complete), census.arrays["found/z"].astype(np.float64))
