"""FID: the Fréchet distance of a bin's pictures from a reference set, by a custom feature network.

As in OmniInput (Liu et al., TMLR 2025), Tables 4 and 5, but with a network that knows such
pictures. FID (Heusel et al., NeurIPS 2017; torchmetrics) compares means and covariances of
features: it is one number per bin, not a score per picture. It is biased upwards if there
are few pictures, above all if they do not outnumber the features (the covariance is rank-
deficient). The table therefore also holds the FID of equally many pictures drawn from the reference
set itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from omniinput_hpc.annotation.judges.networks import PictureNetwork, Pictures, stacked
from omniinput_hpc.annotation.png import pixels
from omniinput_hpc.annotation.tasks import Key, TaskSet, key_path, read_key
from omniinput_hpc.errors import UserError
from omniinput_hpc.models.images.references import read_references

BATCH = 256  # pictures
MAX_BIN_DRAWS = 2**20
REFERENCE_DRAWS = 5
"""Draws from the reference set, each of as many pictures as the bin has draws."""

DRAWN = ("run", "z_lower", "z_upper", "pictures", "draws")
COLUMNS = (*DRAWN, "fid", "fid_of_reference", "deviation")


def fid_per_bin(
    tasks: TaskSet, key: Key, network: PictureNetwork, reference: Pictures
) -> tuple[dict[str, NDArray[Any]], list[str]]:
    """Return the table of FIDs, a row per run and bin, and notes for the user.

    An input counts as often as it was drawn; repeats and gold items do not count. Raises a
    UserError if the tasks are not pictures, or if the network does not accept them.

    Returns
    -------
    columns : `COLUMNS`; ``pictures`` counts distinct ones, ``fid`` is NaN below two draws,
        ``fid_of_reference`` is that of as many reference pictures as the draws are worth (Kish's
        number), and ``deviation`` is its standard deviation over `REFERENCE_DRAWS` sets of these
    notes : list of str
    """
    if tasks.kind != "image":
        raise UserError("--judge fid requires tasks that are pictures")
    png = {task.id: task.png or "" for task in tasks.tasks}
    bins: dict[tuple[int, float], list[tuple[Pictures, int]]] = {}
    for item in key.items:
        if item.run is not None and item.bin_lower is not None and item.draws:
            place = bins.setdefault((item.run, item.bin_lower), [])
            place.append((pixels(png[item.id]), item.draws))
    for (_, lower), drawn in bins.items():
        if sum(n for _, n in drawn) > MAX_BIN_DRAWS:
            raise UserError(f"{key.path}: the bin at {lower:g} has over {MAX_BIN_DRAWS:,} draws")
    known = _features(network, reference)
    rng = np.random.default_rng(0)
    rows, worth_b = [], []
    for (run, lower), drawn in sorted(bins.items()):
        counts = [n for _, n in drawn]
        own = _features(network, stacked([image for image, _ in drawn]))
        own, n = own[np.repeat(np.arange(len(own)), counts)], sum(counts)
        worth_b.append(round(n**2 / sum(count**2 for count in counts)))
        floor = [
            frechet(known, known[torch.from_numpy(rng.integers(len(known), size=worth_b[-1]))])
            for _ in range(REFERENCE_DRAWS)
        ]
        row = (run, lower, lower + key.width, len(drawn), n, frechet(known, own))
        rows.append((*row, float(np.mean(floor)), float(np.std(floor, ddof=1))))
    columns = dict(zip(COLUMNS, map(np.array, zip(*rows, strict=True)), strict=True))
    few = int((np.array(worth_b) <= known.shape[1]).sum())
    return columns, _notes(columns, few, known.shape[1], len(known), key)


def fid_of_tasks(
    tasks: TaskSet, network: PictureNetwork, reference: str
) -> tuple[dict[str, NDArray[Any]], list[str], list[str]]:
    """Return `fid_per_bin` of a task file and a named reference (see `read_references`).

    Returns
    -------
    columns : of the table
    header : lines above the table
    printed : the table and the notes, as text
    """
    key = read_key(key_path(tasks.path), tasks.tasks_id)
    columns, notes = fid_per_bin(
        tasks, key, network, read_references(reference, f"--reference {reference}", 2)
    )
    runs = [run.path for run in key.runs]
    header = [f"FID by features of {network.about} to {reference}", *notes]
    header += [f"run {n}: {path}" for n, path in enumerate(runs)]
    return columns, header, [*lines_of(columns, runs), *notes]


def frechet(known: torch.Tensor, own: torch.Tensor) -> float:
    """Return the FID between features, float [m, f] (own) and [n, f] (known); NaN if m < 2."""
    from torchmetrics.image.fid import FrechetInceptionDistance

    if len(own) < 2:
        return float("nan")
    metric = FrechetInceptionDistance(feature=_Given(known.shape[1])).set_dtype(torch.float64)
    metric.update(known.double(), real=True)
    metric.update(own.double(), real=False)
    return max(0.0, float(metric.compute()))


class _Given(torch.nn.Module):
    """Feature network that returns its input, since the features are computed before."""

    def __init__(self, n: int) -> None:
        super().__init__()
        self.num_features = n

    def forward(self, features: torch.Tensor) -> torch.Tensor:
        return features


@torch.no_grad()
def _features(network: PictureNetwork, images: Pictures) -> torch.Tensor:
    """Return features, float32 [n, f], on the CPU."""
    batches = (images[i : i + BATCH] for i in range(0, len(images), BATCH))
    return torch.cat([network.features(batch).cpu() for batch in batches])


def _notes(
    columns: dict[str, NDArray[Any]], few: int, n_features: int, n: int, key: Key
) -> list[str]:
    """Return notes; `few`: bins whose draws are worth no more pictures than there are features."""
    notes = [f"{n} reference pictures, {n_features} features"]
    if few:
        notes.append(
            f"{few} of {len(columns['draws'])} bins have no more pictures than there are features: "
            "their FID is too high; compare it with fid_of_reference, that of as many reference "
            "pictures"
        )
    if n <= n_features:
        notes.append("the reference set itself has no more pictures than there are features")
    if np.isnan(columns["fid"]).any():
        notes.append("a bin with one picture has no covariance: its FID is nan")
    if key.draw_method == "uniform":
        notes.append(
            "inputs were drawn with equal probability: this is the FID of recorded inputs, not of "
            "the output distribution rho"
        )
    return notes


def lines_of(columns: dict[str, NDArray[Any]], runs: Sequence[str]) -> list[str]:
    """Return the table as text."""
    lines = ["bin            pictures       FID  FID of as many reference pictures"]
    for run, low, high, n, _, fid, floor, spread in zip(*columns.values(), strict=True):
        name = f"  {runs[int(run)]}" if len(runs) > 1 else ""
        lines.append(
            f"{low:<6.4g} {high:<7.4g} {n:8d} {fid:9.4g}  {floor:.4g} +- {spread:.2g}{name}"
        )
    return lines
