"""Datasets of a run file: their shapes, when each is written, and which rank writes which slab."""

from __future__ import annotations

from dataclasses import dataclass

from numpy.typing import DTypeLike


@dataclass(frozen=True)
class Field:
    """One dataset of a run file.

    per : when it is written:
        "round": one slab per counted round
        "block": one slab per block of `rounds_per_block` counted rounds, written by the last round
        of the block or of the run
        "parity": two slabs, written in turn by all rounds
        "counted parity": two slabs, written in turn by counted rounds only
        "once": at creation
        "burn-in": at creation and by every burn-in round; frozen afterwards
    over : the axis after rounds, blocks or parities, if any:
        "rung": rungs
        "pair": pairs of neighbouring rungs, named by the lower rung
        "bottom": not rungs; the holder of rung 0 writes all of it
    rounds_per_block, rounds : for "block"; `rounds` is the number of rounds of the run
    """

    shape: tuple[int, ...]
    dtype: DTypeLike
    per: str
    over: str = "rung"
    rounds_per_block: int = 1
    rounds: int = 0


def slab(field: Field, round_: int, rungs: range, n_rungs: int) -> tuple[slice | int, ...] | None:
    """Return the index at which the holder of `rungs` writes a round; None if it writes nothing.

    Burn-in rounds are numbered -burn_in to -1. The parity of any round is therefore
    ``round_ % 2``, and successive rounds never share a slab.
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
    """Return whether a counted round is the last of its block or of the run."""
    return (round_ + 1) % field.rounds_per_block == 0 or round_ + 1 == field.rounds


def entry_of(field: Field, round_: int) -> int:
    """Return a round's index on the first axis of a dataset: its round, block or parity."""
    if field.per == "block":
        return round_ // field.rounds_per_block
    return round_ if field.per == "round" else round_ % 2


def shape_of(field: Field, where: tuple[slice | int, ...]) -> tuple[int, ...]:
    """Return the shape of a slab at an index of `slab`; an integer index drops its axis."""
    cut = zip(where, field.shape, strict=False)
    lengths = [len(range(*w.indices(n))) for w, n in cut if isinstance(w, slice)]
    return (*lengths, *field.shape[len(where) :])
