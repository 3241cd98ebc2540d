"""Let a program (a judge) score a task file, or measure the FID of each bin.

Writes RUN.judge-scores.NAME.jsonl, or RUN.fid.csv. After an interruption, run it again: existing
scores are kept.
"""

from __future__ import annotations

import argparse
import sys

from omniinput_hpc.annotation.judges import run_judge
from omniinput_hpc.annotation.judges.table import add_arguments, check, choose_device, make_judge
from omniinput_hpc.annotation.tasks import TaskSet, read_tasks, stem_of
from omniinput_hpc.cli.scripts import new_parser, new_record, results_folder, with_extra
from omniinput_hpc.results.record import Record


def main(arguments: list[str], program: str = "judge.py") -> None:
    """Read, judge, write, and print what was done."""
    example = "runs/toy.tasks.jsonl --judge omniinput_hpc.zoo.toy:is_valid"
    parser = new_parser(program, __doc__, example, of_tasks=True)
    add_arguments(parser)
    options = parser.parse_args(arguments)
    check(options)
    tasks = read_tasks(options.tasks, results_folder(options))
    run_path = tasks.path.with_name(stem_of(tasks.path) + ".h5")
    record = new_record(program, arguments, options, run_path)
    with with_extra("judges"):
        if options.judge == "fid":
            fid(options, tasks, record)
            return
        judge = make_judge(options, tasks)
        name = options.name or options.judge.rpartition(":")[2]  # the kind, or the function
        done = run_judge(tasks, judge, name, options.batch, progress)
    left = f"; {done.left_out} without values (gold) left out" if done.left_out else ""
    said = f"{judge.about}: {done.new} tasks scored, {done.before} were already{left}"
    record.add_value("tasks scored", done.new)
    record.add_value("tasks scored before", done.before)
    record.notes = [said, *judge.notes()]
    record.files.append(str(done.path))
    record.save()
    print("\n".join([*record.notes, str(done.path)]))


def fid(options: argparse.Namespace, tasks: TaskSet, record: Record) -> None:
    """Write and print the table of FIDs."""
    from omniinput_hpc.annotation.judges.fid import fid_of_tasks
    from omniinput_hpc.annotation.judges.networks import PictureNetwork

    network = PictureNetwork(options.model, choose_device(options.device), options.factory)
    columns, header, printed = fid_of_tasks(tasks, network, options.reference)
    table = tasks.scored.with_name(stem_of(tasks.path) + ".fid.csv")
    record.add_table(table, header, columns)
    record.notes = list(printed)
    record.save()
    print("\n".join([*printed, str(table)]))


def progress(done: int, of: int) -> None:
    """Show the progress on a terminal."""
    if sys.stderr.isatty():
        print(f"\r{done} of {of}", end="\n" if done == of else "", file=sys.stderr, flush=True)
