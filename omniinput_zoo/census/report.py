"""The results of a census: the list of inputs, exact counts per bin, and bounds beyond."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from omniinput_hpc.errors import UserError
from omniinput_hpc.results.record import Record
from omniinput_hpc.text import write_atomically
from omniinput_zoo.census.search import CensusState, Space

Texts = Callable[[NDArray[Any]], Iterable[str | None]]
"""Returns the text of each input, given inputs [n, D]; None for inputs without a text."""

ROUNDING = 1e-4
"""Relative increase of the mass in a bound, because the probabilities are float32."""


def complete_bins(edges: NDArray[np.float64], complete_below: float) -> int:
    """Return the number of bins, from the lowest, whose inputs are all found."""
    # Bins are half-open, the last one closed.
    n = int(np.searchsorted(edges[1:-1], complete_below, side="right"))
    return n + int(complete_below >= edges[-1])


def log_most(space: Space, open_mass: float, found: int, z: float) -> float:
    """Return an upper bound for ln of the number of inputs with outputs below z.

    An unknown input with output z' < z has the probability exp(-m z') (times V per free site), and
    these add up to at most `open_mass`. `found` is the number of known inputs below z.
    """
    if open_mass <= 0.0:
        return float(np.log(found)) if found else -np.inf
    log_open = np.log(open_mass * (1.0 + ROUNDING)) + space.m * (z + space.margin)
    space_holds = space.n_sites * np.log(space.n_values)
    with np.errstate(divide="ignore"):
        return float(min(np.logaddexp(log_open, np.log(float(found))), space_holds))


def lines(state: CensusState, space: Space) -> list[str]:
    """Return one line each on the complete, the found and the unknown inputs, and on the work."""
    complete = space.complete_below(state.frontier.least)
    found, n_bins = state.found, complete_bins(state.found.edges, complete)
    total = int(found.count_b.sum())
    upto = f"z <= {complete:.6g}" if np.isfinite(complete) else "all z"
    if complete < found.least_unlisted:
        n = f"{found.n_up_to(complete):,} inputs"
    elif space.below is not None and complete == space.below:
        n = f"{total:,} inputs"
    elif complete < found.edges[0]:  # the list ends before the lowest bin begins
        n = f"more than {found.n_up_to(complete):,} inputs"
    else:
        n = f"{found.count_b[:n_bins].sum() + found.count_b[-2]:,} inputs in whole bins"
    share = state.frontier.open_mass / float(space.n_values) ** space.predicted_from
    said = [
        f"complete for {upto}: {n}",
        f"found: {total:,} inputs, including {found.count_b[-2]:,} below the bins and "
        f"{found.count_b[-1]:,} above",
        f"not known: at most a share of {share:.4g} of the model's probability, in "
        f"{len(state.frontier.nodes):,} open prefixes and the pruned ones",
        f"{state.n_evaluated:,} prefixes evaluated; sums of losses and the model's outputs "
        f"differed by at most {state.apart:.2g} (the margin is {space.margin:.2g})",
    ]
    if np.isfinite(found.least_unlisted):
        said.append(f"listed: the inputs with z < {found.least_unlisted:.6g} (--list)")
    return said


def _listed(state: CensusState, space: Space, complete: float, texts: Texts) -> Iterator[str]:
    found = state.found
    ids = found.x if space.values is None else space.values.to_ids(found.x.astype(np.int64))
    n = found.n_up_to(complete)
    for x, z, text in zip(ids[:n], found.z[:n], texts(found.x[:n]), strict=True):
        line: dict[str, Any] = {"z": float(z), "x": x.tolist()}
        if text is not None:
            line["text"] = text
        yield json.dumps(line, ensure_ascii=False)


def write(record: Record, state: CensusState, space: Space, texts: Texts) -> list[Path]:
    """Write the results next to the file of the census, and the record; return their paths.

    The list holds all inputs up to the complete output, lowest first. The density holds the
    complete bins. The bounds are for ln of the number of inputs below the edges of other bins.
    """
    found, frontier, path = state.found, state.frontier, record.run_path
    found.sort()
    complete, open_mass = space.complete_below(frontier.least), frontier.open_mass
    n_bins, edges = complete_bins(found.edges, complete), found.edges
    bins = np.flatnonzero(found.count_b[:n_bins])
    about = [f"absolute: yes (exact, by a census), {line}" for line in lines(state, space)[:1]]
    density: dict[str, NDArray[Any]] = {
        "z_lower": edges[bins], "z_upper": edges[bins + 1],
        "log_g": np.log(found.count_b[bins]), "log_g_error": np.zeros(len(bins)),
        "count": found.count_b[bins],
    }  # fmt: skip
    at_least = np.cumsum(found.count_b[:-2]) + found.count_b[-2]
    with np.errstate(divide="ignore"):
        log_least = np.log(at_least)
    log_most_b = [
        log_most(space, open_mass, int(n), z) for n, z in zip(at_least, edges[1:], strict=True)
    ]
    beyond = slice(n_bins, None)
    bounds: dict[str, NDArray[Any]] = {
        "z": edges[1:][beyond], "log_inputs_low": log_least[beyond],
        "log_inputs_high": np.array(log_most_b)[beyond],
    }  # fmt: skip
    paths = [path.with_suffix(ending) for ending in (".jsonl", ".csv", ".bounds.csv")]
    listed, table, of_bounds = paths
    try:
        text = "\n".join(_listed(state, space, complete, texts))
        write_atomically(listed, text + "\n" if text else "")
        record.files.append(str(listed))
        record.add_table(table, about, density)
        words = "ln of the number of inputs with outputs below z: exact lower and upper bounds"
        record.add_table(of_bounds, [words], bounds)
    except OSError as error:
        raise UserError(f"{error.filename or path} cannot be written: {error.strerror}") from None
    record.notes += lines(state, space)
    record.add_value("complete below", complete)
    record.add_value("inputs found", int(found.count_b.sum()))
    record.add_value("open mass", open_mass)
    record.add_value("prefixes evaluated", state.n_evaluated)
    record.save()
    return paths
