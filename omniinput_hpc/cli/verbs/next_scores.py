"""Show in which bins further scores reduce the error of the AUPR most: RUN.next.csv.

With --against, the error is that of the difference from another model's AUPR, over the common range
of recall; both densities must then be absolute. The other model's table is OTHER.next.RUN.csv.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from omniinput_hpc.cli.arguments import positive_count
from omniinput_hpc.cli.scripts import (
    add_score_options,
    curve_options,
    in_results,
    new_parser,
    new_record,
    run_file,
)
from omniinput_hpc.errors import UserError
from omniinput_hpc.estimators.precision_recall.allocation import MAX_BUDGET, allocate, range_of
from omniinput_hpc.results.curves import curve_by_scores, density_for, other_side
from omniinput_hpc.results.names import claim_name, names_of, words_of
from omniinput_hpc.results.scores import NextScores
from omniinput_hpc.results.tables import beside
from omniinput_hpc.runfile.reader import open_run

SHARED = (
    "the labels of the bank count for both models; the errors below do not subtract what these "
    "share, so that of the difference is smaller (omniinput compare --bank prints it)"
)


def main(arguments: list[str], program: str = "next_scores.py") -> None:
    """Read, estimate, write, and print the tables."""
    parser = new_parser(
        program, __doc__, "runs/toy.h5 --scores runs/toy.scores.*.jsonl --budget 100"
    )
    add_score_options(parser)
    add, its_files = parser.add_argument, "its score files (default: those of --scores)"
    add("--against", type=run_file, metavar="OTHER.h5", help="run of the model to compare with")
    add("--against-scores", type=Path, nargs="+", metavar="FILE", help=its_files)
    add("--budget", type=positive_count, default=100, help="further scores to place (default: 100)")
    options = parser.parse_args(arguments)

    if options.budget > MAX_BUDGET:
        raise UserError(f"--budget must be at most {MAX_BUDGET:,}, found {options.budget}")
    if options.against_scores and (options.bank or not options.against):
        instead = "--bank" if options.bank else "a run without --against"
        raise UserError(f"--against-scores is not used with {instead}; leave it out")
    paths, scores, runs, results = [options.run], [options.scores or []], [], []
    record = new_record(program, arguments, options, options.run)
    if options.against:
        paths.append(options.against)
        scores.append(options.against_scores or options.scores or [])
    for path, files in zip(paths, scores, strict=True):
        with open_run(path, options.on_damage) as run:
            record.add_run(run)
            by = replace(curve_options(options), scores=files)
            runs.append(run)
            results.append(curve_by_scores([run], density_for([run], by), by))
    words = [options.against.stem] if options.against else []
    side = other_side(runs, options.side)
    words += words_of(None, scores[0], side, options.judge_scores or [], options.bank)
    tag, names = claim_name(record, ".next.csv", words), names_of(paths)
    tags = [tag, f".{names[0]}{tag}"]  # OTHER.next.csv is for analyses of OTHER
    curves = [curve for _, curve in results]
    found = allocate(curves, options.budget, range_of(curves))
    if options.against and options.bank:
        record.notes.append(SHARED)
        print(SHARED)
    for i, (path, run, allocation) in enumerate(zip(paths, runs, found, strict=True)):
        further = NextScores([run], path.name, *results[i], allocation, options.budget)
        lines = further.lines()
        target = beside(in_results(options, path), f".next{tags[i]}.csv")
        record.add_table(target, lines, further.columns())
        record.add_aupr(curves[i].curve, names[i])
        record.notes += lines
        print("\n".join([*lines, str(target)]))
    record.save()
