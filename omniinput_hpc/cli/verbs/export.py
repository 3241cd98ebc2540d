"""Export a run to formats of other programs.

every-eval-ever: the results, as RUN.every-eval-ever.json (verdict, log10 numbers; with --rule or
--scores the AUPR). inspect: the scored inputs, as RUN.inspect.eval, a log of Inspect. datasets: all
recorded inputs with weights and scores, as the folder RUN.dataset for Hugging Face's datasets.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from pathlib import Path

from omniinput_hpc.cli.scripts import (
    add_score_options,
    check_output,
    curve_options,
    new_parser,
    new_record,
    with_extra,
)
from omniinput_hpc.errors import UserError
from omniinput_hpc.estimators.density.density import Density
from omniinput_hpc.export.dataset_folder import write_dataset
from omniinput_hpc.export.every_eval_ever import Source, record_of
from omniinput_hpc.export.inspect_log import write_log
from omniinput_hpc.export.scored_inputs import ScoredInput, scored_inputs
from omniinput_hpc.results.curve import aupr_line
from omniinput_hpc.results.curves import curve_of, density_for
from omniinput_hpc.results.density import verdict_lines
from omniinput_hpc.results.record import Record, finite
from omniinput_hpc.results.tables import beside, describe_run
from omniinput_hpc.runfile.reader import RunReader, open_run
from omniinput_hpc.text import counted, write_atomically


def main(arguments: list[str], program: str = "export.py") -> None:
    """Read, estimate, write, and print what was written."""
    options = read_arguments(arguments, program)
    record = new_record(program, arguments, options, options.run)
    ending, export = EXPORTS[options.to]
    output = options.output or beside(record.run_path, ending)
    with open_run(options.run, options.on_damage) as run, with_extra("export"):
        record.add_run(run)
        record.notes.append(describe_run(run))
        files = export(output, run, options, record)
    record.files += map(str, files)
    record.save()
    print("\n".join([*record.notes, *map(str, files)]))


def read_arguments(arguments: list[str], program: str) -> argparse.Namespace:
    """Parse and check the options."""
    parser = new_parser(program, __doc__, "runs/toy.h5 --to datasets")
    add, where = parser.add_argument, "file or folder to write (default: next to the run)"
    add("--to", choices=list(EXPORTS), required=True, help="what to write")
    add("--output", type=Path, metavar="PATH", help=where)
    id_ = "public name of the model, ORGANIZATION/NAME, for every-eval-ever (default: its path)"
    add("--model-id", metavar="ID", help=id_)
    who = "who evaluated it, for every-eval-ever (default: %(default)s)"
    add("--organization", default="unknown", metavar="NAME", help=who)
    add_score_options(parser, rule=True, required=False)
    options = parser.parse_args(arguments)
    for name in ("rule", "bank", "judge_scores", "side", "recall_range"):
        if vars(options)[name] and options.to != "every-eval-ever":
            option = name.replace("_", "-")
            raise UserError(f"--to {options.to} takes score files (--scores), not --{option}")
    if options.to == "inspect" and not options.scores:
        raise UserError("--to inspect exports scored inputs: name their score files by --scores")
    if options.to != "datasets":
        read = [options.run, options.key, *(options.scores or [])]
        check_output(options.output, read, Path(EXPORTS[options.to][0]).suffix)
    return options


def export_results(
    output: Path, run: RunReader, options: argparse.Namespace, record: Record
) -> list[Path]:
    """Write the results for Every Eval Ever."""
    by, density = curve_options(options), _density(run, options, record)
    curve = curve_of([run], density, by) if by.rule or by.labelled else None
    record.notes += [aupr_line(curve.curve, curve.density), *curve.who_scored()] if curve else []
    name = run.config.model_name or run.config.model.kind
    source = Source(options.model_id or name, options.organization)
    text = json.dumps(finite(record_of(run, density, curve, source)), indent=1, allow_nan=False)
    write_atomically(output, text + "\n")
    return [output]


def export_log(
    output: Path, run: RunReader, options: argparse.Namespace, record: Record
) -> list[Path]:
    """Write the scored inputs for Inspect."""
    write_log(output, run, _scored(run, options, record))
    return [output]


def export_dataset(
    output: Path, run: RunReader, options: argparse.Namespace, record: Record
) -> list[Path]:
    """Write the recorded inputs for Hugging Face's datasets."""
    inputs = _scored(run, options, record) if options.scores else []
    return write_dataset(output, run, _density(run, options, record), inputs)


EXPORTS: dict[str, tuple[str, Callable[..., list[Path]]]] = {
    "every-eval-ever": (".every-eval-ever.json", export_results),
    "inspect": (".inspect.eval", export_log),
    "datasets": (".dataset", export_dataset),
}
"""Ending of what each writes next to the run, and the function that writes it."""


def _density(run: RunReader, options: argparse.Namespace, record: Record) -> Density:
    density = density_for([run], curve_options(options))
    record.notes += verdict_lines(density)
    record.add_density(density, record.run_path.stem)
    return density


def _scored(run: RunReader, options: argparse.Namespace, record: Record) -> list[ScoredInput]:
    inputs = scored_inputs(run.fingerprint, options.scores, options.key, run.n_sites)
    names = [name for one in inputs for name in one.scores]
    record.notes += [f"{n}: {counted(names.count(n), 'score')}" for n in sorted(set(names))]
    return inputs
