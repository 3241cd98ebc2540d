"""Several runs: joined ones of one model (A.h5+B.h5), and whether runs share one input space."""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path

from omniinput_hpc.errors import UserError
from omniinput_hpc.models import input_space
from omniinput_hpc.runfile.reader import OnDamage, RunReader, open_run, refuse

LAW_MARKS = {"law_log_q", "law_prompts"}
"""Attributes that show whether the laws of two runs are the same; older files lack them."""


@dataclass(frozen=True)
class RunGroup:
    """Runs analysed as one: a run file, or several of one model."""

    files: tuple[Path, ...]

    @property
    def path(self) -> Path:
        """The path that results are named after: the file, or ``A+B.h5`` next to the first file."""
        first = self.files[0]
        return first.with_stem("+".join(file.stem for file in self.files))

    @property
    def name(self) -> str:
        """Name in messages: the file's name, or all names joined by plus signs."""
        return "+".join(str(file) for file in self.files)

    def open(self, stack: ExitStack, on_damage: OnDamage = refuse) -> list[RunReader]:
        """Open all files, which the stack closes; raises what `reader.open_run` does."""
        return [stack.enter_context(open_run(file, on_damage)) for file in self.files]


def group_of(word: str | os.PathLike[str]) -> RunGroup:
    """Return the run files that an argument names, with paths as given: A.h5, or A.h5+runs/B.h5.

    A file whose own name contains a plus sign is recognized, also within a longer argument: if the
    argument can be split in several ways, the longest existing names win, from the left.

    Raises
    ------
    UserError
        A part does not exist. An argument without a plus sign is not checked here.
    """
    text = os.fspath(word)
    if "+" not in text or os.path.lexists(text):
        return RunGroup((Path(text),))
    parts, files = text.split("+"), _cut(text.split("+"))
    if files is None:
        missing = next((part for part in parts if not _is_there(part)), text)
        problem = f"there is no run file {missing}" if missing else "a run file has an empty name"
        raise UserError(
            f"{text}: {problem} (a plus sign joins "
            "several runs of one model, as in A.h5+B.h5; give each with its folder)"
        )
    return RunGroup(tuple(map(Path, files)))


def _is_there(name: str) -> bool:
    return bool(Path(name).name) and os.path.lexists(name)


def _cut(words: Sequence[str]) -> list[str] | None:
    """Return existing names that, joined by plus signs, give all words; None if there are none."""
    rests: list[list[str] | None] = [None] * len(words) + [[]]  # [i]: names that give words[i:]
    for first in reversed(range(len(words))):
        for stop in range(len(words), first, -1):
            name, rest = "+".join(words[first:stop]), rests[stop]
            if rest is not None and _is_there(name):
                rests[first] = [name, *rest]
                break
    return rests[0]


def require_apart(groups: Sequence[Sequence[RunReader]]) -> None:
    """Check that no two groups share a run or a seed, since a comparison needs independent runs.

    Two single files may have the same seed: different settings draw different inputs (`seed_lines`
    reports it).

    Raises
    ------
    UserError
        Two runs are not independent; it names them.
    """
    if all(len(group) == 1 for group in groups):
        for (one,), (other,) in combinations(groups, 2):
            if os.path.samefile(one.path, other.path):
                raise UserError(f"{other.path} is given twice: a run always agrees with itself")
        return
    owner: dict[object, tuple[int, RunReader]] = {}
    for number, group in enumerate(groups):
        for run in group:
            seed = run.config.seed
            before, other = owner.setdefault(seed, (number, run))
            if before != number:
                raise UserError(
                    f"{other.path} and {run.path} have the same [run] seed ({seed}), so the "
                    "two sides are not independent: compare runs with different seeds"
                )


def seed_lines(groups: Sequence[Sequence[RunReader]]) -> list[str]:
    """Return a line if two single runs have the same seed, else none."""
    seeds = [group[0].config.seed for group in groups if len(group) == 1]
    if len(seeds) == len(groups) and len(set(seeds)) < len(seeds):
        return [
            "two of these runs have the same [run] seed: if their settings are alike, too, they "
            "are not independent, and must agree; compare runs with different seeds"
        ]
    return []


def require_one_space(runs: Sequence[RunReader]) -> None:
    """Check that all runs have the same space of inputs and the same law; else raise UserError."""
    spaces = [
        input_space.space_of(str(run.path), run.config, run.n_sites, run.n_values) for run in runs
    ]
    for space in spaces[1:]:
        input_space.require_same(spaces[0], space)
    first, *others = [(run.path, run.attributes()) for run in runs]
    for path, marks in others:
        for mark in LAW_MARKS & first[1].keys() & marks.keys():
            if not input_space.same_mark(first[1][mark], marks[mark]):
                raise UserError(
                    f"different laws of inputs: the content of [law] has changed between "
                    f"{first[0]} and {path} (its files or its code); runs can be compared only "
                    "under one [law]"
                )
