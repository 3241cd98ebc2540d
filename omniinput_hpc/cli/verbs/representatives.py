"""Show some inputs of each bin of the output: RUN.representatives.csv, .png and .pdf.

Also draws RUN.density_with_inputs.png and .pdf: the density, with one of these inputs next to each
bin. Recorded samples are drawn in proportion to the number of inputs that each of them represents.
"""

from __future__ import annotations

from omniinput_hpc.cli.scripts import add_shown_options, new_parser, new_record
from omniinput_hpc.errors import UserError
from omniinput_hpc.estimators.density.density import density_of_run
from omniinput_hpc.plots.density_with_inputs import density_with_inputs_figure
from omniinput_hpc.plots.representatives import representatives_figure
from omniinput_hpc.plots.style import caption_of, save, z_label
from omniinput_hpc.results.curves import confident_side
from omniinput_hpc.results.representatives import columns_of, edges_for, representatives
from omniinput_hpc.results.tables import beside, describe_run
from omniinput_hpc.runfile.reader import open_run


def main(arguments: list[str], program: str = "representatives.py") -> None:
    """Read, draw, write, and print where the results are."""
    parser = new_parser(program, __doc__, "runs/toy.h5 --per-bin 5")
    add_shown_options(parser)
    add, first = parser.add_argument, "which bin comes first (default: the model's confident side)"
    add("--side", choices=["low", "high"], help=first)
    add("--seed", type=int, default=1, help="seed of the draws (default: %(default)s)")
    options = parser.parse_args(arguments)
    if options.per_bin < 1 or options.seed < 0:
        raise UserError("--per-bin must be 1 or more, --seed 0 or more")

    record = new_record(program, arguments, options, options.run)
    with open_run(options.run, options.on_damage) as run:
        record.add_run(run)
        density = density_of_run(run)
        edges = edges_for(density, options.range, options.width)
        found = representatives(run, density, edges, options.per_bin, options.seed, options.render)
        side = confident_side(run, options.side).end
        source, label = describe_run(run), z_label(run.config)
        caption = caption_of([run], [density])
    found = found.masked() if options.mask else found

    table, picture = (beside(record.run_path, f".representatives.{end}") for end in ("csv", "png"))
    columns = columns_of(found, with_values=not options.mask)
    record.add_table(table, [f"representative inputs: {found.how_drawn}", source], columns)
    save(representatives_figure(found, side, label), picture, caption)
    both = beside(record.run_path, ".density_with_inputs.png")
    save(density_with_inputs_figure(density, found, side, label), both, caption)
    record.files += [str(picture), str(both)]
    record.notes = [source, f"{found.note}; {found.how_drawn}"]
    record.add_density(density, options.run.stem)
    record.save()
    print("\n".join([*record.notes, *record.files]))
