"""A run file on the command line, or several runs of one model, joined: A.h5+B.h5."""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path

from omniinput_hpc.errors import UserError
from omniinput_hpc.runfile.reader import OnDamage, RunReader, open_run, refuse


@dataclass(frozen=True)
class RunGroup:
    """What is analysed as one run: a run file, or several of one model.

    Attributes
    ----------
    files : one or several
    """

    files: tuple[Path, ...]

    @property
    def path(self) -> Path:
        """What the results lie beside: the file, or ``A+B.h5`` beside the first of several."""
        first = self.files[0]
        return first.with_stem("+".join(file.stem for file in self.files))

    @property
    def name(self) -> str:
        """What the runs are called in messages: the file's name, or all names with plus signs."""
        return "+".join(str(file) for file in self.files)

    def open(self, stack: ExitStack, on_damage: OnDamage = refuse) -> list[RunReader]:
        """Open all files, which the stack closes; errors are those of `reader.open_run`."""
        return [stack.enter_context(open_run(file, on_damage)) for file in self.files]


def group_of(word: str | os.PathLike[str]) -> RunGroup:
    """Return the run files that a word names, each as it stands: A.h5, or A.h5+runs/B.h5.

    A file whose own name holds a plus sign is itself, also as a part of a longer word: where a word
    can be cut in several ways, the longest names that exist are taken, from the first one on.

    Raises
    ------
    UserError
        A part does not exist. Of a word without a plus sign nothing is asked here.
    """
    text = os.fspath(word)
    if "+" not in text or os.path.lexists(text):
        return RunGroup((Path(text),))
    parts, files = text.split("+"), _cut(text.split("+"))
    if files is None:
        missing = next((part for part in parts if not _is_there(part)), text)
        raise UserError(
            f"{text}: there is no run file {missing or 'of an empty name'} (a plus sign joins "
            "several runs of one model, as in A.h5+B.h5, each with its folder)"
        )
    return RunGroup(tuple(map(Path, files)))


def _is_there(name: str) -> bool:
    return bool(Path(name).name) and os.path.lexists(name)


def _cut(words: Sequence[str]) -> list[str] | None:
    """Return names that exist and make up all words, joined by plus signs; None if none do."""
    rests: list[list[str] | None] = [None] * len(words) + [[]]  # of the words from each one on
    for first in reversed(range(len(words))):
        for stop in range(len(words), first, -1):
            name, rest = "+".join(words[first:stop]), rests[stop]
            if rest is not None and _is_there(name):
                rests[first] = [name, *rest]
                break
    return rests[0]


def require_apart(groups: Sequence[Sequence[RunReader]]) -> None:
    """Check that no two groups of runs share a run or a seed, as a comparison of them needs.

    Two single files may have one seed: other settings draw other inputs (`seed_lines` says so).

    Raises
    ------
    UserError
        Naming the two runs.
    """
    if all(len(group) == 1 for group in groups):
        for (one,), (other,) in combinations(groups, 2):
            if os.path.samefile(one.path, other.path):
                raise UserError(f"{other.path} is given twice: a run always agrees with itself")
        return
    owner: dict[object, tuple[int, RunReader]] = {}
    for number, group in enumerate(groups):
        for run in group:
            seed = run.config.get("run", {}).get("seed")
            before, other = owner.setdefault(seed, (number, run))
            if before != number:
                raise UserError(
                    f"{other.path} and {run.path} have the same [run] seed ({seed}), so that the "
                    "runs on either side are not independent: compare runs of other seeds"
                )


def seed_lines(groups: Sequence[Sequence[RunReader]]) -> list[str]:
    """Return a line where two single runs have the same seed; none otherwise."""
    seeds = [group[0].config.get("run", {}).get("seed") for group in groups if len(group) == 1]
    if len(seeds) == len(groups) and len(set(seeds)) < len(seeds):
        return [
            "two of these runs have the same [run] seed: where their settings are alike, too, they "
            "are not independent, and agree by themselves; compare runs of other seeds"
        ]
    return []
