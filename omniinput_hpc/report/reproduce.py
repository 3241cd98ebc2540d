"""The papers' figures and tables made again: unfinished steps are run, and a page is written.

``bash jobscripts/reproduce.sh NAME`` calls it. What there is to make stands in
inputs/reproduce/plan.toml, the numbers that the papers print in inputs/reproduce/published.toml.
"""

from __future__ import annotations

import argparse
import base64
import hashlib
import os
import re
import shlex
import subprocess
import sys
import time
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from omniinput_hpc.errors import EXIT_BAD_INPUT, EXIT_COMPLETE, EXIT_STOPPED, UserError
from omniinput_hpc.text import duration, print_any_text

if TYPE_CHECKING:
    from markupsafe import Markup

FOLDER = Path("inputs/reproduce")
RUNS = Path("runs/reproduce")
PAGE = "page.html"
DATA = (
    "folder of MNIST's IDX files, for tables on test sets; of other sets in its folders fashion, "
    "kuzushiji, emnist and qmnist"
)
READ = (".toml", ".h5", ".csv", ".json", ".jsonl", ".npy")
"""Endings of the files that commands read; pictures that they name are their output."""
PATH_KEY = re.compile(r'^path = "(.+)"', re.MULTILINE)
LARGE = 64 * 2**20
"""Files of more bytes are known by their size and time, not by their content."""
LONG_NUMBER = re.compile(r"\d+\.\d{5,}")


@dataclass(frozen=True)
class Step:
    """One command of a target; its output goes to a log, from which rows are read.

    Attributes
    ----------
    name : of the log
    command : words, with {python}, {mpirun} and {data} filled in
    needs_data : whether it is skipped without --data; a name: without this folder in that of --data
    makes : a folder; the step is finished if it exists, whoever made it
    """

    name: str
    command: str
    needs_data: bool | str = False
    makes: str = ""


@dataclass(frozen=True)
class Target:
    """Everything made under one name; see inputs/reproduce/plan.toml for the keys."""

    name: str
    title: str
    papers: str
    minutes: float
    steps: tuple[Step, ...]
    rows: tuple[Mapping[str, str], ...] = ()
    pictures: tuple[Mapping[str, str], ...] = ()
    notes: tuple[str, ...] = ()


def read_plan(folder: Path) -> tuple[dict[str, Target], list[dict[str, Any]]]:
    """Return the targets by name, and the rows about results that need a GPU, from plan.toml."""
    with (folder / "plan.toml").open("rb") as file:
        plan = tomllib.load(file)
    gpu = plan.pop("gpu", [])
    return {name: _target(name, table) for name, table in plan.items()}, gpu


def _target(name: str, table: dict[str, Any]) -> Target:
    groups = table.pop("each", [])
    lists: dict[str, Any] = {}
    for key in ("steps", "rows", "pictures", "notes"):
        for_each = [entry for group in groups for entry in _for_each(group, key)]
        lists[key] = (*table.pop(key, ()), *for_each, *table.pop(f"last_{key}", ()))
    lists["steps"] = tuple(Step(**step) for step in lists["steps"])
    return Target(name=name, **lists, **table)


def _for_each(group: Mapping[str, Any], key: str) -> list[dict[str, Any]]:
    """Return a group's steps, rows or pictures, with <words> replaced.

    They are made once per entry of `of`, or per pair of entries of `of` and `by`.
    """
    return [
        {name: _filled(value, {**one, **other}) for name, value in entry.items()}
        for one in group["of"]
        for other in group.get("by", [{}])
        for entry in group.get(key, ())
    ]


def _filled(value: Any, words: Mapping[str, str]) -> Any:
    if isinstance(value, str):
        for word, text in words.items():
            value = value.replace(f"<{word}>", text)
    return value


def listing(targets: Mapping[str, Target], gpu: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return a line per target with its time, and a line per result that needs a GPU."""
    width = max(len(name) for name in targets)
    lines = ["runs on a CPU (minutes on two cores, without set-up):"]
    lines += [
        f"  {t.name:<{width}}  {t.minutes:4g} min  {t.title} ({t.papers})" for t in targets.values()
    ]
    lines.append("needs a GPU (GPU-hours are simulated or guessed; docs/results/scaling.md):")
    lines += [f"  {row['input']:<32} {row['hours']:>9}  {row['papers']}" for row in gpu]
    return lines


def missing(steps: Sequence[Step], data: str | None) -> list[Step]:
    """Return the steps to skip because they need data that was not given."""

    def is_there(folder: bool | str) -> bool:
        return data is not None and (folder is True or Path(data, str(folder)).is_dir())

    return [step for step in steps if step.needs_data and not is_there(step.needs_data)]


def make(target: Target, folder: Path, words: Mapping[str, str], data: str | None) -> int:
    """Run the unfinished steps in order; return 0, or the code of the step that failed.

    A step is finished once FOLDER/STEP.done holds its command and a hash of the files that it
    reads, as they are now; its output is in FOLDER/STEP.log.
    """
    folder.mkdir(parents=True, exist_ok=True)
    left_out = missing(target.steps, data)
    for step in target.steps:
        if step in left_out:
            continue
        command = step.command.format(**words, data=shlex.quote(data or ""))
        done, log = folder / f"{step.name}.done", folder / f"{step.name}.log"
        if step.makes:
            finished = Path(step.makes).is_dir()
        else:
            before = done.read_text(encoding="utf-8").splitlines() if done.is_file() else []
            finished = before[:1] + before[2:] == [command, _hash_of_files(command)]
        if finished:
            print(f"finished before: {step.name}", flush=True)
            continue
        print(f"+ {command}", flush=True)
        begin, read = time.monotonic(), _hash_of_files(command)
        code = _run(shlex.split(command), log)
        if code:
            if code == EXIT_STOPPED:
                print("stopped early with everything saved; the same command resumes", flush=True)
            else:
                print(f"{step.name} failed with code {code}; its output is in {log}", flush=True)
            return code
        seconds = time.monotonic() - begin
        done.write_text(f"{command}\n{seconds:.1f}\n{read}\n", encoding="utf-8")
        print(f"  {step.name}: {duration(seconds)}", flush=True)
    if left_out:
        names = ", ".join(step.name for step in left_out)
        print(f"left out, because no --data FOLDER holds their pictures: {names}")
    return EXIT_COMPLETE


def _hash_of_files(command: str) -> str:
    """Return a hash of the files that a command reads, and of those in an input file's folders."""
    words = (word for joined in shlex.split(command) for word in joined.split("+"))
    files = [Path(word) for word in words if word.endswith(READ)]
    for file in [file for file in files if file.suffix == ".toml" and file.is_file()]:
        for folder in PATH_KEY.findall(file.read_text(encoding="utf-8", errors="replace")):
            files += sorted(Path(folder).glob("*"))
    found = hashlib.sha256()
    for file in filter(Path.is_file, files):
        about = file.stat()
        large = about.st_size > LARGE
        changed = f"{about.st_size} {about.st_mtime_ns}".encode()
        found.update(changed if large else file.read_bytes())
    return found.hexdigest()


def _run(command: Sequence[str], log: Path) -> int:
    """Run a command with its output in a new log; return its exit code (128 + n for signal n)."""
    with log.open("wb") as file:
        try:
            done = subprocess.run(
                command, stdin=subprocess.DEVNULL, stdout=file, stderr=subprocess.STDOUT
            )
        except OSError as error:
            file.write(f"{command[0]}: {error.strerror}\n".encode())
            return 127
    return done.returncode if done.returncode >= 0 else 128 - done.returncode


def ours(row: Mapping[str, str], folder: Path) -> str:
    """Return the groups that a row's pattern finds in its step's log, or "-".

    Numbers with five or more decimals are rounded to three significant digits.
    """
    log = folder / f"{row['step']}.log"
    if not log.is_file():
        return "-"
    text = log.read_text(encoding="utf-8", errors="replace")
    found = re.search(row["find"], text, re.MULTILINE)
    parts = [part for part in found.groups() if part] if found else ["-"]
    rounded = (LONG_NUMBER.sub(lambda number: f"{float(number[0]):.3g}", part) for part in parts)
    return ", ".join(rounded)


def published(row: Mapping[str, str], numbers: Mapping[str, Any]) -> str:
    """Return the number under a row's dotted key, or "-" if the papers print none."""
    if "published" not in row:
        return "-"
    value: Any = numbers
    for key in row["published"].split("."):
        value = value[key]
    return str(value)


def write_page(target: Target, folder: Path, numbers: Mapping[str, Any], data: str | None) -> Path:
    """Write FOLDER/page.html: our numbers beside the published ones, pictures, commands, times."""
    from omniinput_hpc.report.page import page, render

    rows = [
        (row["what"], ours(row, folder), published(row, numbers), row.get("why", ""))
        for row in target.rows
    ]
    notes = list(target.notes)
    if left_out := missing(target.steps, data):
        notes.append(
            "No --data FOLDER holds their pictures, so these steps were left out: "
            + ", ".join(step.name for step in left_out)
        )
    part = render(
        "reproduce.html",
        papers=target.papers,
        rows=rows,
        notes=notes,
        steps=[_about(step, folder) for step in target.steps],
        pictures=[p for p in map(_picture, target.pictures) if p],
    )
    path = folder / PAGE
    temporary = path.with_suffix(".tmp")
    temporary.write_text(page(target.title, [part]), encoding="utf-8")
    temporary.replace(path)
    return path


def _about(step: Step, folder: Path) -> tuple[str, str, str]:
    done = folder / f"{step.name}.done"
    if not done.is_file():
        return step.name, step.command, "not made"
    command, seconds = done.read_text(encoding="utf-8").splitlines()[:2]
    return step.name, command, duration(float(seconds))


def _picture(picture: Mapping[str, str]) -> tuple[Markup, str] | None:
    """Return a picture as a data URI, and its caption; None if there is no such file."""
    from markupsafe import Markup

    path = Path(picture["file"])
    if not path.is_file():
        return None
    content = base64.b64encode(path.read_bytes()).decode()
    return Markup(f"data:image/png;base64,{content}"), picture["caption"]


def _main(arguments: Sequence[str] | None) -> int:
    parser = argparse.ArgumentParser(prog="reproduce.sh", description=__doc__, allow_abbrev=False)
    parser.add_argument("name", nargs="?", help="what to make; without it the list is printed")
    parser.add_argument("--list", action="store_true", help="print what can be made")
    parser.add_argument("--data", help=DATA)
    parser.add_argument("--plan", type=Path, default=FOLDER, help=argparse.SUPPRESS)
    parser.add_argument("--runs", type=Path, default=RUNS, help=argparse.SUPPRESS)
    args = parser.parse_args(arguments)
    targets, gpu = read_plan(args.plan)
    if args.list or args.name is None:
        print("\n".join(listing(targets, gpu)))
        return EXIT_COMPLETE
    if args.name not in targets:
        raise UserError(f"{args.name}: not one of {', '.join(targets)}; --list describes each")
    if args.data is not None and not Path(args.data).is_dir():
        raise UserError(f"--data {args.data}: no such folder")
    target, folder = targets[args.name], args.runs / args.name
    words = {
        "python": shlex.quote(sys.executable),
        "mpirun": os.environ.get("OMNIINPUT_MPIRUN", "mpirun -n 2"),
    }
    code = make(target, folder, words, args.data)
    with (args.plan / "published.toml").open("rb") as file:
        path = write_page(target, folder, tomllib.load(file), args.data)
    print(path)
    return code


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; return 0, 2 for bad input, or the code of the failed step."""
    print_any_text()
    try:
        return _main(arguments)
    except UserError as error:
        print(f"reproduce.sh: {error}", file=sys.stderr)
        return EXIT_BAD_INPUT


if __name__ == "__main__":
    raise SystemExit(main())
