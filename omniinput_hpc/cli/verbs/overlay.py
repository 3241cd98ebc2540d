"""Draw the output distributions of several runs in one picture, with inputs and test sets.

Writes FILE.png and FILE.pdf. For image models it also shows inputs with low, middle and high z.
"""

from __future__ import annotations

from pathlib import Path

from omniinput_hpc.cli.arguments import count
from omniinput_hpc.cli.scripts import add_figure_options, check_output, new_parser, new_record
from omniinput_hpc.errors import UserError
from omniinput_hpc.estimators.density.density import density_of_run
from omniinput_hpc.estimators.density.wide_bins import in_wider_bins
from omniinput_hpc.models.table import z_label
from omniinput_hpc.plots import look, overlay
from omniinput_hpc.plots.style import save
from omniinput_hpc.results.caption import caption_of
from omniinput_hpc.results.curve import beyond_lines
from omniinput_hpc.results.names import names_of
from omniinput_hpc.results.representatives import pictures_at_ends
from omniinput_hpc.results.tables import read_test_sets
from omniinput_hpc.runfile.reader import open_run


def main(arguments: list[str], program: str = "overlay.py") -> None:
    """Read, estimate, draw, and print the name of the picture."""
    example = "runs/digits-mlp.h5 runs/digits-cnn.h5 --output runs/digits.png"
    parser = new_parser(program, __doc__, example, "run files", nargs="+")
    add = parser.add_argument
    add("--output", type=Path, required=True, metavar="FILE.png", help="the picture")
    add("--inputs", type=count, default=4, help="inputs shown at each place (default: 4)")
    sets = "outputs of test sets (omniinput test-sets), in the order of the runs"
    add("--test-sets", type=Path, action="append", default=[], metavar="FILE.csv", help=sets)
    add("--width", type=float, help="join each run's bins to this width, a multiple of theirs")
    add_figure_options(parser)
    options = parser.parse_args(arguments)
    look.use([[run] for run in options.run], options.label, options.title, options.style)
    if len(options.test_sets) > len(options.run):
        raise UserError("--test-sets: more files than runs")
    check_output(options.output, [*options.run, *options.test_sets], ".png")
    sets_of = [read_test_sets(path) for path in options.test_sets]
    models, runs, warnings = [], [], []
    record = new_record(program, arguments, options, options.run[0])
    sets_of += [{}] * (len(options.run) - len(sets_of))
    for path, name, shown in zip(options.run, names_of(options.run), sets_of, strict=True):
        with open_run(path, options.on_damage) as run:
            density, chosen = density_of_run(run.data), pictures_at_ends(run, options.inputs)
            if options.width is not None:
                density = in_wider_bins(density, options.width)
            record.add_run(run)
            record.add_density(density, name)
            runs.append(run)
        models.append(overlay.Overlaid(name, z_label(run.config), density, chosen, shown))
        warnings += beyond_lines(density, shown, name)
    caption = caption_of(runs, [model.density for model in models])
    save(overlay.overlay_figure(models), options.output, caption)
    record.files.append(str(options.output))
    record.notes = warnings
    record.save()
    print("\n".join([*warnings, str(options.output)]))
