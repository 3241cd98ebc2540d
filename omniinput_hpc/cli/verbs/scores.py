"""Export scores to files of other programs, or import them: CSV, Label Studio, Inspect.

Label Studio: s of S stars are the score (s - 1) / (S - 1), so one star is 0 and S stars are 1.
"""

from __future__ import annotations

from pathlib import Path

from omniinput_hpc.annotation.formats import EXPORTS, IMPORTS, INSPECT_LOG
from omniinput_hpc.annotation.imports import DEFAULT_STARS, ImportOptions
from omniinput_hpc.annotation.jsonl import write_whole
from omniinput_hpc.annotation.scores import add_score_files, find_scores, read_scores
from omniinput_hpc.annotation.tasks import key_path, read_tasks, stem_of
from omniinput_hpc.cli.scripts import (
    check_output,
    new_parser,
    new_record,
    results_folder,
    with_extra,
)
from omniinput_hpc.errors import UserError
from omniinput_hpc.text import counted
from omniinput_hpc.untrusted.tables import WORKBOOKS


def main(arguments: list[str], program: str = "scores.py") -> None:
    """Read everything, check it, write, and print what was written."""
    parser = new_parser(program, __doc__, "runs/toy.tasks.jsonl --export csv", of_tasks=True)
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--export", choices=list(EXPORTS), help="write the scores that count")
    what.add_argument("--import", dest="source", type=Path, metavar="FILE", help="scores to add")
    parser.add_argument("--format", choices=list(IMPORTS), help="of FILE (default: by its name)")
    parser.add_argument("--scores", type=Path, nargs="+", metavar="FILE", help="(default: all)")
    parser.add_argument("--output", type=Path, metavar="FILE", help="of the export")
    parser.add_argument("--annotator", metavar="NAME", help="who scored, of an import")
    stars = "most stars of a rating (default: %(default)s)"
    parser.add_argument("--stars", type=int, default=DEFAULT_STARS, metavar="S", help=stars)
    options = parser.parse_args(arguments)
    tasks = read_tasks(options.tasks, results_folder(options))
    run_path = tasks.path.with_name(stem_of(tasks.path) + ".h5")
    record = new_record(program, arguments, options, run_path)

    if options.export:
        ending, write = EXPORTS[options.export]
        paths = options.scores or find_scores(tasks.scored)
        files = [read_scores(path, tasks) for path in paths]
        output = options.output or tasks.scored.with_name(stem_of(options.tasks) + ending)
        check_output(output, [options.tasks, key_path(options.tasks), *paths])
        write_whole(output, write(tasks, files))
        print("\n".join(f"{f.annotator}: {len(f.by_id())} scores" for f in files))
        print(output)
        record.notes = [f"{f.annotator}: {len(f.by_id())} scores" for f in files]
        record.files.append(str(output))
        record.save()
        return
    if options.stars < 2:
        raise UserError("--stars must be 2 or more")
    endings = {".csv": "csv", ".tsv": "csv", ".json": "label-studio", ".jsonl": "inspect"}
    endings |= {INSPECT_LOG: "inspect"}
    ending = options.source.suffix.lower()
    format_ = options.format or endings.get(ending)
    if format_ is None:
        remedy = "save it as CSV (UTF-8)" if ending in WORKBOOKS else "say by --format what it is"
        raise UserError(f"{options.source}: {remedy} ({', '.join(IMPORTS)})")
    source = ImportOptions(options.source, options.annotator, options.stars)
    with with_extra("export"):  # Inspect's logs are read by inspect_ai
        imported = IMPORTS[format_](tasks, source)
    record.notes = list(imported.notes)
    print("".join(f"note: {note}\n" for note in imported.notes), end="")
    for name, (path, n) in zip(imported.lines, add_score_files(tasks, imported.lines), strict=True):
        print(f"{counted(n, 'score')} of {name}\n{path}")
        record.add_value(f"lines added to {path.name}", n)
        record.files.append(str(path))
    record.save()
