"""One HTML page about runs, which needs nothing else to be read: RUN.report.html."""

from __future__ import annotations

import argparse
import os
from pathlib import Path

from _common import beside, run_script, scored_of, scores_arguments

from omniinput_hpc.estimators.density import density_of_run
from omniinput_hpc.estimators.precision_recall import precision_recall, sum_scores
from omniinput_hpc.estimators.rules import load_rule
from omniinput_hpc.report.page import page
from omniinput_hpc.report.sections import Content, section
from omniinput_hpc.run_reader import RunReader, open_run


def content_of(run: RunReader, options: argparse.Namespace) -> Content:
    """Estimate what the page shows of a run."""
    fine = density = density_of_run(run)
    curve, by, joined, result = None, "", None, None
    if options.rule:
        sums = sum_scores(run, density, load_rule(options.rule))
        curve, by = precision_recall(density, sums, options.side), options.rule
    elif options.scores:
        joined, result = scored_of(run, density, options)
        density, curve, by = result.density, result.curve, ", ".join(joined.scored.annotators)
    tasks = options.tasks or beside(run.path, ".tasks.jsonl")
    tasks = tasks if options.tasks or tasks.exists() else None
    return Content(fine, density, curve, by, options.side, joined, result, tasks)


def main(arguments: list[str]) -> None:
    """Read, estimate, write the page, and print where it is."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("run", type=Path, nargs="+", metavar="RUN.h5", help="run files")
    scores_arguments(parser, rule=True, required=False)
    parser.add_argument(
        "--tasks", type=Path, help="whose inputs to show (default: RUN.tasks.jsonl)"
    )
    parser.add_argument("--mask", action="store_true", help="mask addresses and phone numbers")
    options = parser.parse_args(arguments)

    parts = []
    for path in options.run:
        with open_run(path) as run:
            parts.append(section(run, content_of(run, options), options.mask))
    html = page(", ".join(path.stem for path in options.run), "\n".join(parts))
    target = beside(options.run[0], ".report.html")
    partial = target.with_name(target.name + ".partial")
    partial.write_text(html, encoding="utf-8", errors="backslashreplace")
    os.replace(partial, target)
    print(target)


if __name__ == "__main__":
    raise SystemExit(run_script(main))
