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
    finish,
    new_parser,
    new_record,
)
from omniinput_hpc.errors import UserError
from omniinput_hpc.plots import look
from omniinput_hpc.results import comparison
from omniinput_hpc.results.curves import density_for, other_side
from omniinput_hpc.results.names import claim_name, names_of, words_of
from omniinput_hpc.results.run_groups import group_of, require_one_space

OF_MODELS = ("rule", "scores", "bank", "judge_scores", "key", "side", "recall_range", "range")
"""Options that only a comparison of models uses; --width needs --rule or --bank."""


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
        require_one_space(runs)
        one_model = len({run.fingerprint for run in runs}) == 1
        by = curve_options(options)
        unused = [f"--{name.replace('_', '-')}" for name in OF_MODELS if vars(options)[name]]
        if one_model and unused:
            raise UserError(
                "these are runs of one model, whose densities are compared: leave out "
                + ", ".join(unused)
            )
        if not one_model and not (by.rule or by.labelled):
            raise UserError("these are runs of different models: give --rule, --scores or --bank")
        densities = [density_for(group, by) for group in groups]
        for run in runs:
            record.add_run(run)
        if one_model:
            found: comparison.Compared = comparison.compare_two_samplers(groups, densities, names)
        else:
            curves = comparison.curves_of(groups, densities, by)
            found = comparison.compare_with_first(
                groups, densities, names, curves, options.range, by.recall_range
            )
        words = words_of(by.rule, by.scores, other_side(runs, by.side), by.judges, by.bank)

    tag = claim_name(record, f".{found.name}.csv", ["+".join(names[1:]), *words])
    finish(record, found, tag)
