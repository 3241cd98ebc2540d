"""Write one HTML page about one or more runs: RUN.report.html.

The page contains all its pictures, tables and inputs, and loads nothing. Its one script shows what
is pointed at; without JavaScript the page lacks nothing else.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

from omniinput_hpc.cli.scripts import (
    add_score_options,
    add_shown_options,
    add_threshold_options,
    check_output,
    curve_options,
    new_parser,
    new_record,
)
from omniinput_hpc.cli.token_losses import losses_of
from omniinput_hpc.errors import UserError
from omniinput_hpc.report.comparison import compared
from omniinput_hpc.report.content import ReportOptions, content_of
from omniinput_hpc.report.page import page
from omniinput_hpc.report.sections import section
from omniinput_hpc.report.summary import answer, title_of
from omniinput_hpc.results.curves import chosen_thresholds, other_side
from omniinput_hpc.results.density import verdict_lines
from omniinput_hpc.results.names import claim_name, names_of, words_of
from omniinput_hpc.results.tables import beside, read_test_sets
from omniinput_hpc.runfile.reader import open_run
from omniinput_hpc.text import write_atomically


def main(arguments: list[str], program: str = "report.py") -> None:
    """Read, estimate, write the page, and print its name, its answer and the verdict."""
    example = "runs/toy.h5 --rule omniinput_hpc.zoo.toy:is_valid"
    parser = new_parser(program, __doc__, example, "run files", nargs="+")
    add_report_options(parser)
    parser.add_argument("--output", type=Path, metavar="FILE.html", help="the page")
    options = parser.parse_args(arguments)
    report = report_options(options, options.run)
    scores, judges = options.scores or [], options.judge_scores or []
    read = [*options.run, *scores, *judges, options.key, options.tasks, options.bank]
    check_output(options.output, read)

    names = names_of(options.run)
    record = new_record(program, arguments, options, options.run[0])
    with ExitStack() as stack:
        runs = [stack.enter_context(open_run(path, options.on_damage)) for path in options.run]
        contents = [content_of(run, report) for run in runs]
        for run, content, name in zip(runs, contents, names, strict=True):
            record.add_run(run)
            record.add_density(content.density.estimate, name)
        first = [compared(names, runs, contents)] if len(runs) > 1 else []
        parts = [
            section(run, content, number, name)
            for number, (run, content, name) in enumerate(zip(runs, contents, names, strict=True))
        ]
        heads = [
            [*answer(run, content), *verdict_lines(content.density.estimate)]
            for run, content in zip(runs, contents, strict=True)
        ]
    words = (
        words_of(options.rule, scores, other_side(runs, options.side), judges, options.bank)
        if options.rule or scores or options.bank
        else ["no-scores"]
    )
    name = claim_name(record, ".report.html", ["+".join(names[1:]), *words])
    target = options.output or beside(record.run_path, f".report{name}.html")
    title = f"Runs: {', '.join(names)}" if first else title_of(runs[0])
    html = page(title, first + parts, ["page.js"])
    write_atomically(target, html)
    record.files.append(str(target))
    record.save()
    print(target)
    for name, lines in zip(names, heads, strict=True):
        print("\n".join([f"{name}:", *lines] if first else lines))


def add_report_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of a report's contents."""
    add_score_options(parser, rule=True, required=False)
    shown = "show these inputs (default: drawn from the run)"
    parser.add_argument("--tasks", type=Path, metavar="TASKS.jsonl", help=shown)
    add_threshold_options(parser)
    add_shown_options(parser)
    coloured = "colour the tokens of texts by their loss; loads the model"
    parser.add_argument("--token-losses", action="store_true", help=coloured)


def report_options(options: argparse.Namespace, runs: Sequence[Path]) -> ReportOptions:
    """Return the values of the options that `add_report_options` adds, for a report on runs."""
    if options.per_bin < 1:
        raise UserError("--per-bin must be 1 or more")
    if options.token_losses and options.mask:
        raise UserError("--token-losses shows whole tokens, so it cannot be given with --mask")
    if len(runs) > 1 and (options.threshold or options.test_sets):
        raise UserError("--threshold and --test-sets are for a report about one run")
    sets = read_test_sets(options.test_sets) if options.test_sets else {}
    return ReportOptions(
        curve_options(options), options.tasks, options.range, options.width, options.per_bin,
        options.mask, options.render, one_run=len(runs) == 1,
        thresholds=chosen_thresholds(options.threshold, sets), test_sets=sets,
        losses=losses_of if options.token_losses else None,
    )  # fmt: skip
