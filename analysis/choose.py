"""Choose representative inputs of one run or several: RUN.tasks.jsonl and its key."""

from __future__ import annotations

import argparse
from pathlib import Path

from _common import beside, run_script

from omniinput_hpc.annotation.choose import FEWEST, LAWS, bin_edges, choose, describe_law
from omniinput_hpc.annotation.display import shown_of
from omniinput_hpc.annotation.task_set import DrawnRun, common_kind, read_gold, write_task_set
from omniinput_hpc.annotation.tasks import key_path
from omniinput_hpc.errors import UserError
from omniinput_hpc.estimators.density.density import density_of_run
from omniinput_hpc.runfile.reader import open_run


def main(arguments: list[str]) -> None:
    """Read, draw, write, and print what was found per bin."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("runs", type=Path, metavar="RUN.h5", nargs="+")
    parser.add_argument("--per-bin", type=int, default=50, metavar="N", help="draws per bin")
    parser.add_argument("--width", type=float, required=True, help="of a bin of z")
    parser.add_argument("--range", type=float, nargs=2, required=True, action="append",
                        metavar=("LOW", "HIGH"), help="of z; once, or once per run")  # fmt: skip
    parser.add_argument("--law", choices=list(LAWS), default="by-weight", help="of the draw")
    parser.add_argument("--repeats", type=float, default=0.1, help="share shown twice")
    parser.add_argument("--gold", type=Path, metavar="FILE.jsonl", help="items of known score")
    parser.add_argument("--output", type=Path, metavar="FILE.tasks.jsonl")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args(arguments)
    if options.per_bin < 1 or not 0 <= options.repeats <= 1 or options.seed < 0:
        raise UserError("--per-bin must be 1 or more, --repeats from 0 to 1, --seed 0 or more")
    if options.output is None and len(options.runs) > 1:
        raise UserError("several runs make one task file: name it by --output")
    if len(options.range) not in (1, len(options.runs)):
        raise UserError("give --range once, or once for each run")
    ranges = options.range * (len(options.runs) if len(options.range) == 1 else 1)

    drawn, runs, copies = [], [], 0
    for i, (path, (low, high)) in enumerate(zip(options.runs, ranges, strict=True)):
        edges = bin_edges(low, high, options.width)
        with open_run(path) as run:
            density, shown = density_of_run(run), shown_of(run.config)
            seed = options.seed + 1_000_003 * i
            chosen, reports = choose(run, density, edges, options.per_bin, options.law, seed)
            about = {"path": str(path), "model_fingerprint": run.fingerprint, "range": [low, high]}
        drawn.append(DrawnRun(chosen, shown))
        runs.append(about)
        copies += sum(r.samples - r.distinct for r in reports)
        print(f"{path}: {shown.note}\nbin       samples  distinct  effective  drawn  near pairs")
        for r in reports:
            few = f"  fewer than {FEWEST}" if r.drawn < FEWEST else ""
            print(f"{r.lower:<8.4g} {r.samples:8} {r.distinct:9} {r.effective:10.1f} {r.drawn:6} "
                  f"{r.near:11}{few}")  # fmt: skip
    header = {
        "law": options.law, "law_in_words": describe_law(options.law), "runs": runs,
        "width": options.width, "range": [min(r[0] for r in ranges), max(r[1] for r in ranges)],
        "per_bin": options.per_bin, "duplicates": copies, "seed": options.seed,
    }  # fmt: skip
    gold = read_gold(options.gold, common_kind(drawn)) if options.gold else []
    output = options.output or beside(options.runs[0], ".tasks.jsonl")
    n = write_task_set(output, drawn, header, repeats=options.repeats, gold=gold, seed=options.seed)
    print(f"{copies:,} recorded samples were copies; {n} tasks, repeats and gold included")
    print(f"{output}\n{key_path(output)} (not for annotators)")


if __name__ == "__main__":
    raise SystemExit(run_script(main))
