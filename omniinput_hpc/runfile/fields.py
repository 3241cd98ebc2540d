"""What a dataset of a run file is: its shape, when it is written, and who writes which slab."""

from __future__ import annotations

from dataclasses import dataclass

from numpy.typing import DTypeLike


@dataclass(frozen=True)
class Field:
    """One dataset: its shape, and what its first two axes are.

    per : "round" (one slab a counted round), "block" (one slab a block of `rounds_per_block`
        counted rounds, written by its last round, or by the run's), "counted parity" or "parity"
        (two slabs, written in turn: by counted rounds only, or in burn-in as well), "once"
        (written at creation), or "burn-in" (written at creation and by every burn-in round: what
        is frozen afterwards)
    over : "rung", "pair" (one slab a rung, or a pair of neighbours named by its lower rung), or
        "bottom" (the holder of rung 0 writes all of it)
    rounds_per_block, rounds : of "block", and how many rounds the run has
    """

    shape: tuple[int, ...]
    dtype: DTypeLike
    per: str
    over: str = "rung"
    rounds_per_block: int = 1
    rounds: int = 0


def slab(field: Field, round_: int, rungs: range, n_rungs: int) -> tuple[slice | int, ...] | None:
    """Return where in a dataset a holder of `rungs` writes round `round_`; None: nowhere.

    Burn-in rounds have negative numbers, -burn_in to -1, so that a round's parity is
    ``round_ % 2`` whether or not it is counted, and successive rounds never share a slab.
    """
    if not rungs:
        return None
    stop = min(rungs.stop, n_rungs - 1) if field.over == "pair" else rungs.stop
    some = slice(rungs.start, stop)
    if field.per == "burn-in":
        return (some,) if round_ < 0 and stop > rungs.start else None
    if field.per == "once" or (round_ < 0 and field.per != "parity"):
        return None
    if field.per == "block" and not ends_block(field, round_):
        return None
    first = entry_of(field, round_)
    if field.over == "bottom":
        return (first,) if rungs.start == 0 else None
    return (first, some) if stop > rungs.start else None


def ends_block(field: Field, round_: int) -> bool:
    """Return whether a counted round is the last of its block, or of the run."""
    return (round_ + 1) % field.rounds_per_block == 0 or round_ + 1 == field.rounds


def entry_of(field: Field, round_: int) -> int:
    """Return which entry of the first axis a round is in, of what has one a round or a block."""
    if field.per == "block":
        return round_ // field.rounds_per_block
    return round_ if field.per == "round" else round_ % 2


def shape_of(field: Field, where: tuple[slice | int, ...]) -> tuple[int, ...]:
    """Return the shape of what `slab` names, a whole index dropping its axis."""
    cut = zip(where, field.shape, strict=False)
    lengths = [len(range(*w.indices(n))) for w, n in cut if isinstance(w, slice)]
    return (*lengths, *field.shape[len(where) :])
