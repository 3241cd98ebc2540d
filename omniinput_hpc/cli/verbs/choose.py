"""Draw the inputs for people to score, from one or more runs.

Writes RUN.tasks.jsonl and its key RUN.tasks.key.jsonl, which annotators must not see; for models of
proteins, DNA or RNA also RUN.tasks.key.fasta.
"""

from __future__ import annotations

import argparse
from contextlib import ExitStack
from pathlib import Path

from omniinput_hpc.annotation import task_set
from omniinput_hpc.annotation.drawing import DRAW_METHODS, bin_table, not_believed
from omniinput_hpc.annotation.task_bins import (
    TaskBins,
    bins_of_run,
    of_one_model,
    too_few_to_analyse,
)
from omniinput_hpc.annotation.tasks import MAX_DRAWS, key_path
from omniinput_hpc.cli.scripts import add_range, check_output, new_parser, new_record
from omniinput_hpc.errors import UserError
from omniinput_hpc.estimators.comparison.joined import joined_density
from omniinput_hpc.results.tables import beside
from omniinput_hpc.runfile.reader import open_run


def main(arguments: list[str], program: str = "choose.py") -> None:
    """Read, draw, write, and print a table of the bins."""
    options = read_arguments(arguments, program)
    record = new_record(program, arguments, options, options.run[0])
    ranges = options.range * (len(options.run) if len(options.range) == 1 else 1)
    how = task_set.HowDrawn(options.per_bin, options.width, options.draw_method, options.seed)
    bins: list[TaskBins] = []
    drawn_of: dict[int, task_set.DrawnRun] = {}
    for path, z_range in zip(options.run, ranges, strict=True):
        with open_run(path, options.on_damage) as run:
            bins.append(bins_of_run(run, z_range[0], z_range[1], options.width))
    for numbers in of_one_model(bins):
        of_model, z_range = [bins[i] for i in numbers], ranges[numbers[0]]
        with ExitStack() as stack:
            paths = [options.run[i] for i in numbers]
            runs = [stack.enter_context(open_run(path, options.on_damage)) for path in paths]
            density = joined_density([run.data for run in runs])
            found = task_set.draw_from(runs, density, of_model, z_range, how, numbers[0])
            for i, run, one in zip(numbers, runs, found, strict=True):
                drawn_of[i] = one
                record.add_run(run)
        name, reports, floor = " and ".join(map(str, paths)), found[0].reports, density.floor
        lines = [f"{name}: {found[0].shown.note}", *bin_table(reports, floor)]
        lines += not_believed(name, reports, floor)
        record.notes += lines
        print("\n".join(lines))
    drawn = [drawn_of[i] for i in range(len(bins))]
    for note in too_few_to_analyse(bins, [one.chosen for one in drawn]):
        record.notes.append(note)
        print(note)
    header, kind = task_set.key_header(drawn, how), task_set.common_kind(drawn)
    gold = task_set.read_gold(options.gold, kind) if options.gold else []
    output = options.output or beside(record.run_path, ".tasks.jsonl")
    before = output.read_bytes() if output.is_file() else None
    n = task_set.write_task_set(output, drawn, header, options.repeats, gold, options.seed)
    if before not in (None, output.read_bytes()):
        note = f"note: {output} held other tasks; scores of those are refused from now on"
        record.notes.append(note)
        print(note)
    copies = header["duplicates"]
    print(f"{copies:,} recorded samples were copies; {n} tasks, repeats and gold included")
    record.add_value("tasks", n)
    hidden = [key_path(output), *filter(None, [task_set.write_fasta(output, drawn)])]
    record.files += map(str, [output, *hidden])
    record.save()
    print("\n".join([str(output), *(f"{path} (not for annotators)" for path in hidden)]))


def read_arguments(arguments: list[str], program: str) -> argparse.Namespace:
    """Parse and check the options."""
    example = "runs/toy.h5 --width 0.2 --range 1.6 3.6"
    parser = new_parser(program, __doc__, example, "run files", nargs="+")
    add, inputs = parser.add_argument, "inputs drawn in each bin (default: 50)"
    add("--per-bin", type=int, default=50, metavar="N", help=inputs)
    add("--width", type=float, required=True, help="width of a bin of the output")
    words = "range of outputs; once, or once for each run"
    add_range(parser, words, required=True, action="append")
    draws, methods = "how inputs are drawn in a bin (default: by-weight)", list(DRAW_METHODS)
    add("--draw-method", "--law", choices=methods, default="by-weight", help=draws)
    twice = "share of the tasks that are shown twice (default: 0.1)"
    add("--repeats", type=float, default=0.1, metavar="SHARE", help=twice)
    add("--gold", type=Path, metavar="FILE.jsonl", help="items whose score is known, mixed in")
    add("--output", type=Path, metavar="FILE.tasks.jsonl", help="the task file")
    add("--seed", type=int, default=1, help="seed of the draws (default: 1)")
    options = parser.parse_args(arguments)
    if not 1 <= options.per_bin <= MAX_DRAWS:
        raise UserError(f"--per-bin must be from 1 to {MAX_DRAWS}, found {options.per_bin}")
    if not 0 <= options.repeats <= 1 or options.seed < 0:
        raise UserError("--repeats must be from 0 to 1, --seed 0 or more")
    if options.output is None and len(options.run) > 1:
        raise UserError("several runs make one task file: name it by --output")
    if len(options.range) not in (1, len(options.run)):
        raise UserError("give --range once, or once for each run")
    check_output(options.output, [options.gold], ".tasks.jsonl")
    return options
