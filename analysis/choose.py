"""Draw the inputs that people are to score, from one run or several.

Writes RUN.tasks.jsonl, and RUN.tasks.key.jsonl beside it, which annotators must not see.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from _common import add_range, new_parser, run_script

from omniinput_hpc.annotation import choose, task_bins
from omniinput_hpc.annotation.display import shown_of
from omniinput_hpc.annotation.task_set import DrawnRun, common_kind, read_gold, write_task_set
from omniinput_hpc.annotation.tasks import key_path
from omniinput_hpc.errors import UserError
from omniinput_hpc.estimators.density.density import density_of_run
from omniinput_hpc.results.tables import beside
from omniinput_hpc.runfile.reader import open_run


def main(arguments: list[str]) -> None:
    """Read, draw, write, and print what was found per bin."""
    options = read_arguments(arguments)
    ranges = options.range * (len(options.run) if len(options.range) == 1 else 1)

    drawn, runs, copies, wanted = [], [], 0, []
    for path, (low, high) in zip(options.run, ranges, strict=True):
        with open_run(path, options.on_damage) as run:
            wanted.append(task_bins.bins_of_run(run, low, high, options.width))
    task_bins.check_together(wanted)
    for i, (path, (low, high)) in enumerate(zip(options.run, ranges, strict=True)):
        edges = wanted[i].edges
        with open_run(path, options.on_damage) as run:
            density, shown = density_of_run(run), shown_of(run.config)
            seed = options.seed + 1_000_003 * i
            chosen, reports = choose.choose(run, density, edges, options.per_bin, options.law, seed)
            about = {"path": str(path), "model_fingerprint": run.fingerprint, "range": [low, high]}
        drawn.append(DrawnRun(chosen, shown))
        runs.append(about)
        copies += sum(r.samples - r.distinct for r in reports)
        few = task_bins.too_few_to_analyse(wanted[i], chosen)
        notes = [few] if few else []
        print("\n".join([f"{path}: {shown.note}", *choose.bin_table(reports), *notes]))
    header = {
        "law": options.law, "law_in_words": choose.describe_draw(options.law), "runs": runs,
        "width": options.width, "range": [min(r[0] for r in ranges), max(r[1] for r in ranges)],
        "per_bin": options.per_bin, "duplicates": copies, "seed": options.seed,
    }  # fmt: skip
    gold = read_gold(options.gold, common_kind(drawn)) if options.gold else []
    output = options.output or beside(options.run[0], ".tasks.jsonl")
    n = write_task_set(output, drawn, header, repeats=options.repeats, gold=gold, seed=options.seed)
    print(f"{copies:,} recorded samples were copies; {n} tasks, repeats and gold included")
    print(f"{output}\n{key_path(output)} (not for annotators)")


def read_arguments(arguments: list[str]) -> argparse.Namespace:
    """Return the options, checked."""
    example = "runs/toy.h5 --width 1 --range 10 20 --per-bin 50"
    parser = new_parser(__doc__, example, "run files", nargs="+")
    add, inputs = parser.add_argument, "inputs drawn in each bin (default: 50)"
    add("--per-bin", type=int, default=50, metavar="N", help=inputs)
    add("--width", type=float, required=True, help="width of a bin of the output")
    words = "range of outputs; once, or once for each run"
    add_range(parser, words, required=True, action="append")
    draws = "how inputs are drawn in a bin (default: by-weight)"
    add("--law", choices=list(choose.DRAW_METHODS), default="by-weight", help=draws)
    twice = "share of the tasks that are shown twice (default: 0.1)"
    add("--repeats", type=float, default=0.1, metavar="SHARE", help=twice)
    add("--gold", type=Path, metavar="FILE.jsonl", help="items whose score is known, mixed in")
    add("--output", type=Path, metavar="FILE.tasks.jsonl", help="the task file")
    add("--seed", type=int, default=1, help="seed of the draws (default: 1)")
    options = parser.parse_args(arguments)
    if options.per_bin < 1 or not 0 <= options.repeats <= 1 or options.seed < 0:
        raise UserError("--per-bin must be 1 or more, --repeats from 0 to 1, --seed 0 or more")
    if options.output is None and len(options.run) > 1:
        raise UserError("several runs make one task file: name it by --output")
    if len(options.range) not in (1, len(options.run)):
        raise UserError("give --range once, or once for each run")
    return options


if __name__ == "__main__":
    raise SystemExit(run_script(main))
