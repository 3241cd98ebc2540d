"""How far a command has come: ``python -m omniinput_hpc.cli.committed WORDS``, for job scripts.

WORDS are Python's arguments, as in ``-m omniinput_hpc rescore RUN.h5 INPUT.toml``. Prints a line of
four words, ``RANKS NUMBER UNIT FILE``. RANKS is "many" if the command shares its work among MPI
ranks, else "one". NUMBER counts what is on the disk and is not done again, such as rounds or
scores, and FILE holds it. A command that begins from nothing each time, such as a training, has "-"
for these three. FILE is left out if the command would refuse its arguments.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from omniinput_hpc.annotation.judges import table
from omniinput_hpc.annotation.scores import find_scores
from omniinput_hpc.cli import arguments, scripts
from omniinput_hpc.cli.omniinput import VERBS
from omniinput_hpc.errors import EXIT_COMPLETE, UserError
from omniinput_hpc.runfile import census_file, given_input, rescored
from omniinput_hpc.runfile.reader import open_run

PACKAGE = "omniinput_hpc"
NOTHING = "- - -"
ON_RANKS = ("run", "check", "doctor", "verify", "salvage", "rescore", "enumerate", "census")

Found = tuple[int, Path]


def split(words: Sequence[str]) -> tuple[str, list[str]]:
    """Return the name of the verb or module that Python's arguments start, and its arguments."""
    words = list(words)
    while words and words[0].startswith("-") and words[0] != "-m":  # Python's own, as in -u -m ...
        del words[: 2 if words[0] in ("-W", "-X") else 1]
    first, *rest = words or [""]
    if first != "-m":
        return Path(first).stem.replace("_", "-"), rest
    module, *rest = rest or [""]
    if module != PACKAGE:
        return module.partition(".")[2].replace("_", "-"), rest
    if rest and rest[0].replace("_", "-") in VERBS:
        return rest[0].replace("_", "-"), rest[1:]
    other = {"--check", "--doctor", "--verify", "--salvage"} & set(rest)
    return (other.pop()[2:] if other else "run"), rest


def _of_run(argv: list[str]) -> Found:
    args = _parsed(argv, ("input",), ("--set", "--restart", "--max-walltime"))
    path = Path(given_input.load(Path(args.input), args.set or ()).run.output)
    if not os.path.exists(path):
        return 0, path
    with open_run(path) as run:
        return run.rounds + run.burn_in_committed, path


def _of_rescored(argv: list[str]) -> Found:
    args = _parsed(argv, ("run", "input"), ("--set", "--max-walltime"))
    path = rescored.path_of(Path(args.run), Path(args.input).stem)
    if not os.path.exists(path):
        return 0, path
    with rescored.open_rescored(path) as side:
        return side.rounds, path


def _of_census(argv: list[str]) -> Found:
    names = ("below", "seconds", "prefixes", "frontier", "list", "margin", "max-walltime")
    args = _parsed(argv, ("input",), ("--set", "--output", *(f"--{name}" for name in names)))
    run = Path(given_input.load(Path(args.input), args.set or ()).run.output)
    path = Path(args.output[0]) if args.output else census_file.path_of(run)
    return int(census_file.read(path).numbers["n_evaluated"]) if path.exists() else 0, path


def _of_scores(argv: list[str]) -> Found:
    parser = scripts.new_parser("judge.py", None, "", of_tasks=True)
    table.add_arguments(parser)
    args = parser.parse_args(argv)
    path = (args.results or args.tasks.parent) / args.tasks.name
    return sum(file.read_bytes().count(b"\n") for file in find_scores(path)), path


COUNTS: dict[str, tuple[str, Callable[[list[str]], Found]]] = {
    "run": ("rounds", _of_run),
    "rescore": ("rounds", _of_rescored),
    "census": ("prefixes", _of_census),
    "judge": ("scores", _of_scores),
}
"""For each command that resumes: the unit, and the function that counts."""


def _parsed(argv: list[str], files: Sequence[str], options: Sequence[str]) -> argparse.Namespace:
    parser = arguments.RankParser()
    for name in files:
        parser.add_argument(name)
    for name in options:
        parser.add_argument(name, action="append")
    return parser.parse_args(argv)


def described(words: Sequence[str]) -> str:
    """Return the line for a command."""
    name, argv = split(words)
    ranks = "many" if name in ON_RANKS else "one"
    whole = name == "judge" and "fid" in argv  # all of it is computed at once
    if name not in COUNTS or whole:
        return f"{ranks} {NOTHING}"
    unit, count = COUNTS[name]
    try:
        number, path = count(argv)
    except (UserError, OSError, SystemExit):  # the command itself says what is wrong
        return f"{ranks} 0 {unit}"
    return f"{ranks} {number} {unit} {path}"


def main(words: Sequence[str]) -> int:
    """Print the line, and return the exit code."""
    print(described(words))
    return EXIT_COMPLETE


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
