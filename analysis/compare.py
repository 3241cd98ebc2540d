"""Compare the precision-recall curves of models, or the densities of two runs of one model.

Writes A.compared.csv (of two runs of one model A.samplers.csv) and .png beside the first run.
"""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path

from _common import add_score_options, beside, new_parser, run_script

from omniinput_hpc.errors import UserError
from omniinput_hpc.estimators.density.density import density_of_run
from omniinput_hpc.estimators.precision_recall.rules import load_rule
from omniinput_hpc.plots.style import save
from omniinput_hpc.results import comparison, run_pair
from omniinput_hpc.results.tables import describe_run, verdict_lines, write_table
from omniinput_hpc.runfile.reader import open_run


def main(arguments: list[str]) -> None:
    """Read, compare each run with the first, write, and print where the results are."""
    parser = new_parser(
        __doc__, "runs/toy.h5 runs/toy-worse.h5 --rule omniinput_hpc.zoo.toy:is_valid"
    )
    parser.add_argument(
        "runs", type=Path, nargs="+", metavar="RUN.h5",
        help="run files; the first is compared with each of the others",
    )  # fmt: skip
    add_score_options(parser, rule=True, required=False)
    parser.add_argument(
        "--range", type=float, nargs=2, metavar=("LOW", "HIGH"),
        help="outputs that both models share, to normalize by",
    )  # fmt: skip
    options = parser.parse_args(arguments)
    if len(options.runs) < 2:
        raise UserError("give two run files or more: A.h5 B.h5 ...")
    names = [path.stem for path in options.runs]
    with ExitStack() as stack:
        runs = [stack.enter_context(open_run(path)) for path in options.runs]
        run_pair.require_one_space(runs)
        one_model = len({run.fingerprint for run in runs}) == 1
        if not one_model and not (options.rule or options.scores):
            raise UserError("these are runs of different models: give --rule or --scores")
        densities = [density_of_run(run) for run in runs]
        lines = [describe_run(run) for run in runs]
        for name, density in zip(names, densities, strict=True):
            lines += [f"{name}: {line}" for line in verdict_lines(density)]
        if one_model:
            result = comparison.samplers(runs, densities, names)
        else:
            least = (options.side, (options.fewest_inputs, options.fewest_lanes))
            both = list(zip(runs, densities, strict=True))
            if options.rule:
                rule = load_rule(options.rule)
                curves = [comparison.curve_by_rule(*pair, rule, *least) for pair in both]
            else:
                files = (options.scores, options.key)
                curves = [comparison.curve_by_scores(*pair, *files, *least) for pair in both]
            result = comparison.models(runs, densities, names, curves, options.range)

    lines += result.lines
    table = beside(options.runs[0], f"{result.ending}.csv")
    picture = beside(options.runs[0], f"{result.ending}.png")
    write_table(table, lines, result.columns)
    save(result.figure, picture)
    print("\n".join([*lines, str(table), str(picture)]))


if __name__ == "__main__":
    raise SystemExit(run_script(main))
