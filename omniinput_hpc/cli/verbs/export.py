"""Export a run to formats of other programs.

every-eval-ever: the results, as RUN.every-eval-ever.json (verdict, log10 numbers; with --rule or
--scores the AUPR). inspect: the scored inputs, as RUN.inspect.eval, a log of Inspect. datasets: all
recorded inputs with weights and scores, as the folder RUN.dataset for Hugging Face's datasets.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
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
from omniinput_hpc.export.dataset_folder import write_dataset
from omniinput_hpc.export.every_eval_ever import Source, record_of
from omniinput_hpc.export.inspect_log import write_log
from omniinput_hpc.export.scored_inputs import ScoredInput, scored_inputs
from omniinput_hpc.results.curve import aupr_line
from omniinput_hpc.results.curves import CurveOptions, curve_of, density_for
from omniinput_hpc.results.density import verdict_lines
from omniinput_hpc.results.record import Record, finite
from omniinput_hpc.results.tables import beside, describe_run
from omniinput_hpc.runfile.reader import RunReader, open_run
from omniinput_hpc.text import counted, write_atomically

ENDINGS = {
    "every-eval-ever": ".every-eval-ever.json",
    "inspect": ".inspect.eval",
    "datasets": ".dataset",
}


def main(arguments: list[str], program: str = "export.py") -> None:
    """Read, estimate, write, and print what was written."""
    options = read_arguments(arguments, program)
    by = curve_options(options)
    record = new_record(program, arguments, options, options.run)
    output = options.output or beside(record.run_path, ENDINGS[options.to])
    with open_run(options.run, options.on_damage) as run, with_extra("export"):
        record.add_run(run)
        record.notes.append(describe_run(run))
        if options.to == "every-eval-ever":
            source = Source(options.model_id or run.config.model_name, options.organization)
            files = _export_results(output, run, by, source, record)
        else:
            inputs = scored_inputs(run.fingerprint, by.scores, by.key) if by.scores else []
            record.notes += _counts(inputs)
            files = _export_inputs(output, run, by, inputs, record)
    record.files += map(str, files)
    record.save()
    print("\n".join([*record.notes, *map(str, files)]))


def read_arguments(arguments: list[str], program: str) -> argparse.Namespace:
    """Parse and check the options."""
    parser = new_parser(program, __doc__, "runs/toy.h5 --to datasets")
    add, where = parser.add_argument, "file or folder to write (default: next to the run)"
    add("--to", choices=list(ENDINGS), required=True, help="what to write")
    add("--output", type=Path, metavar="PATH", help=where)
    id_ = "public name of the model, ORGANIZATION/NAME, for every-eval-ever (default: its path)"
    add("--model-id", metavar="ID", help=id_)
    who = "who evaluated it, for every-eval-ever (default: %(default)s)"
    add("--organization", default="unknown", metavar="NAME", help=who)
    add_score_options(parser, rule=True, required=False)
    options = parser.parse_args(arguments)
    if options.rule and options.to != "every-eval-ever":
        raise UserError(f"--to {options.to} takes score files (--scores), not a --rule")
    if options.to == "inspect" and not options.scores:
        raise UserError("--to inspect exports scored inputs: name their score files by --scores")
    if options.to != "datasets":
        ending = Path(ENDINGS[options.to]).suffix
        read = [options.run, options.key, *(options.scores or [])]
        check_output(options.output, read, ending)
    return options


def _export_results(
    output: Path, run: RunReader, by: CurveOptions, source: Source, record: Record
) -> list[Path]:
    """Write the results for Every Eval Ever."""
    density = density_for([run], by)
    curve = curve_of([run], density, by) if by.rule or by.scores else None
    record.notes += verdict_lines(density) + ([aupr_line(curve.curve)] if curve else [])
    record.add_density(density, record.run_path.stem)
    text = json.dumps(finite(record_of(run, density, curve, source)), indent=1, allow_nan=False)
    write_atomically(output, text + "\n")
    return [output]


def _export_inputs(
    output: Path, run: RunReader, by: CurveOptions, inputs: Sequence[ScoredInput], record: Record
) -> list[Path]:
    """Write scored inputs for Inspect, or recorded inputs for datasets."""
    if record.parameters["to"] == "inspect":
        write_log(output, run, inputs)
        return [output]
    density = density_for([run], by)
    record.notes += verdict_lines(density)
    record.add_density(density, record.run_path.stem)
    return write_dataset(output, run, density, inputs)


def _counts(inputs: Sequence[ScoredInput]) -> list[str]:
    """Return a line per annotator with the number of scores."""
    names = [name for one in inputs for name in one.scores]
    return [f"{name}: {counted(names.count(name), 'score')}" for name in sorted(set(names))]
