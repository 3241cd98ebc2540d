"""Compare the precision-recall curves of models, or the densities of two runs of one model.

Writes A.compared.csv (A.samplers.csv for runs of one model) and .png next to the first run. Several
runs of one model can be joined by a plus sign, as in A1.h5+A2.h5 B.h5.
"""

from __future__ import annotations

from contextlib import ExitStack

from omniinput_hpc.cli.scripts import (
    add_figure_options,
    add_range,
    add_score_options,
    curve_options,
    new_parser,
    new_record,
)
from omniinput_hpc.errors import UserError
from omniinput_hpc.models.table import z_label
from omniinput_hpc.plots import look
from omniinput_hpc.plots.comparison import models_figure, samplers_figure
from omniinput_hpc.plots.style import save_as
from omniinput_hpc.results import comparison
from omniinput_hpc.results.caption import caption_of
from omniinput_hpc.results.curve import about_curve, record_aupr
from omniinput_hpc.results.curves import density_for, other_side
from omniinput_hpc.results.density import DensityResult, verdict_lines
from omniinput_hpc.results.names import claim_name, names_of, words_of
from omniinput_hpc.results.run_groups import group_of
from omniinput_hpc.results.tables import describe_run


def main(arguments: list[str], program: str = "compare.py") -> None:
    """Read, compare each run with the first, write, and print where the results are."""
    example = "runs/toy.h5 runs/toy-worse.h5 --rule omniinput_hpc.zoo.toy:is_valid"
    files = "run files (A.h5, or A.h5+B.h5); the first is compared with each other one"
    parser = new_parser(program, __doc__, example, files, nargs="+")
    add_score_options(parser, rule=True, required=False)
    add_range(parser, "outputs that both models share, to normalize by")
    add_figure_options(parser, by_rule=True)
    options = parser.parse_args(arguments)
    if len(options.run) < 2:
        raise UserError("give two run files or more: A.h5 B.h5 ...")
    given = [group_of(word) for word in options.run]
    names = names_of([group.path for group in given])
    look.use([group.files for group in given], options.label, options.title, options.style)
    record = new_record(program, arguments, options, given[0].path)
    with ExitStack() as stack:
        groups = [group.open(stack, options.on_damage) for group in given]
        runs = [run for group in groups for run in group]
        comparison.require_one_space(runs)
        one_model = len({run.fingerprint for run in runs}) == 1
        if not one_model and not (options.rule or options.scores):
            raise UserError("these are runs of different models: give --rule or --scores")
        densities = [density_for(group, curve_options(options)) for group in groups]
        lines = [describe_run(*group) for group in groups]
        for run in runs:
            record.add_run(run)
        for name, density in zip(names, densities, strict=True):
            lines += [f"{name}: {line}" for line in verdict_lines(density)]
            DensityResult(runs, density).record(record, name)
        if one_model:
            about = ""
            ending, two = "samplers", comparison.compare_two_samplers(groups, densities, names)
            pair, label = (names[0], names[1]), z_label(runs[0].config)
            figure = samplers_figure(densities[0], densities[1], two.found, pair, label)
            lines, columns = lines + two.lines, two.columns
        else:
            ending = "compared"
            by = curve_options(options)
            curves = comparison.curves_of(groups, densities, by)
            several = comparison.compare_with_first(
                groups, densities, names, curves, options.range, by.recall_range
            )
            about = about_curve(curves[0].side, options.rule)
            absolute = all(density.absolute for density in densities)
            for name, curve, _ in several.curves:
                record_aupr(record, curve, name)
            for name, found in several.comparisons:
                comparison.add_to(record, found, names[0], name)
            figure = models_figure(several.curves, several.comparisons, absolute)
            lines, columns = lines + several.lines, several.columns

        caption = caption_of(runs, densities, about)
        by = curve_options(options)
        words = words_of(by.rule, by.scores, other_side(runs, by.side))

    name = claim_name(record, f".{ending}.csv", ["+".join(names[1:]), *words])
    written = record.add_results(f"{ending}{name}", lines, columns, save_as(figure, caption))
    record.notes = lines
    record.save()
    print("\n".join([*lines, *written]))
