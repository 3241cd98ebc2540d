"""Saving the state of a census to its file and resuming from it."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from omniinput_hpc.errors import UserError
from omniinput_hpc.runfile import census_file
from omniinput_hpc.runfile.census_file import StoredCensus
from omniinput_hpc.text import __version__
from omniinput_zoo.census.found import Found
from omniinput_zoo.census.frontier import Frontier, Nodes
from omniinput_zoo.census.search import CensusState, Space

log = logging.getLogger("omniinput_hpc")


def begin(space: Space, edges: NDArray[np.float64], frontier: int, listed: int) -> CensusState:
    """Return the initial state of a census, in which only the empty prefix is open."""
    none = Nodes.empty(space.n_sites, space.n_values)
    root = none.of_parts([(np.zeros((1, 0), dtype=np.int64), np.zeros(1))])
    opened = Frontier(root, frontier, space.n_values, space.predicted_from)
    return CensusState(opened, Found(edges, none.x, listed))


def resume_if_there(path: Path, state: CensusState, space: Space, texts: Mapping[str, str]) -> None:
    """Replace an initial state by the one in a file, if the file exists.

    Raises
    ------
    UserError
        The file belongs to another census or is damaged.
    """
    if not os.path.exists(path):
        return
    stored = census_file.read(path)
    numbers, arrays = stored.numbers, stored.arrays
    asked = np.nan if space.below is None else space.below
    another = ""
    if stored.texts["model_fingerprint"] != texts["model_fingerprint"]:
        another = "of another model"
    elif (numbers["n_sites"], numbers["n_values"]) != (space.n_sites, space.n_values):
        another = "of another space of inputs"
    elif not np.array_equal(numbers["below"], asked, equal_nan=True):
        old = f"--below {numbers['below']:g}"
        another = f"made {'without --below' if np.isnan(numbers['below']) else f'with {old}'}"
    elif numbers["margin"] != space.margin:
        another = f"made with --margin {numbers['margin']:.6g}"
    elif not np.array_equal(arrays["bins/edges"], state.found.edges):
        another = "made with other bins"
    if another:
        raise UserError(f"{path} is a census {another}: move it away, or give another --output")
    frontier, found = state.frontier, state.found
    frontier.lose(numbers["lost_mass"], numbers["least_lost"])
    frontier.nodes = frontier.nodes.take(np.zeros(len(frontier.nodes), dtype=bool))
    frontier.add(Nodes(*(arrays[f"open/{name}"] for name in ("x", "depth", "loss"))))
    found.x, found.z, found.count_b = (
        arrays[name] for name in ("found/x", "found/z", "counts/inputs")
    )
    found.least_unlisted = numbers["least_unlisted"]
    state.n_evaluated, state.apart = int(numbers["n_evaluated"]), numbers["apart"]
    state.seconds = numbers["seconds"]
    complete = space.complete_below(frontier.least)
    log.info("%s: resuming; complete for z <= %.6g so far", path, complete)


def stored(state: CensusState, space: Space, texts: Mapping[str, str]) -> StoredCensus:
    """Return the content for the file; `texts` are the input file and the model's fingerprint."""
    frontier, found = state.frontier, state.found
    found.cut()
    numbers: dict[str, float] = {
        "n_sites": space.n_sites, "n_values": space.n_values, "margin": space.margin,
        "below": np.nan if space.below is None else space.below,
        "complete_below": space.complete_below(frontier.least),
        "least_unlisted": found.least_unlisted, "lost_mass": frontier.lost_mass,
        "least_lost": frontier.least_lost, "n_evaluated": state.n_evaluated,
        "apart": state.apart, "seconds": state.seconds,
    }  # fmt: skip
    arrays: dict[str, NDArray[Any]] = {
        "found/x": found.x, "found/z": found.z, "counts/inputs": found.count_b,
        "bins/edges": found.edges, "open/x": frontier.nodes.x,
        "open/depth": frontier.nodes.depth, "open/loss": frontier.nodes.loss,
    }  # fmt: skip
    made = {"created": time.strftime("%Y-%m-%dT%H:%M:%S%z"), "package_version": __version__}
    return StoredCensus({**texts, **made}, numbers, arrays)
