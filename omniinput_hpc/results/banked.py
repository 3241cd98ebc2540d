"""Banks of labels: inputs are added with their place in the run, and weighed for another model."""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from omniinput_hpc.annotation.bank import (
    Bank,
    BankItem,
    BankRun,
    ScoredItems,
    merged,
    read_bank,
    scored_items,
)
from omniinput_hpc.annotation.join import Joined
from omniinput_hpc.errors import UserError
from omniinput_hpc.estimators import FloatArray, IntArray
from omniinput_hpc.estimators.density.density import Density
from omniinput_hpc.estimators.density.wide_bins import coarsen, edges_of_width
from omniinput_hpc.estimators.precision_recall.banked import (
    BankedMeans,
    BankedScores,
    log_mixture,
)
from omniinput_hpc.estimators.precision_recall.from_scores import ScoredCurve
from omniinput_hpc.histogram import bin_of
from omniinput_hpc.results.run_groups import require_one_space
from omniinput_hpc.runfile.reader import RunReader, open_run
from omniinput_hpc.runfile.rescored import find, open_rescored
from omniinput_hpc.text import counted


def added(
    path: Path, run: RunReader, density: Density, score_paths: Sequence[Path], key: Path | None
) -> tuple[Bank, list[str]]:
    """Return the bank with a run's scored inputs, not yet written, and lines on what was added.

    Scores of the same annotators and task set in the bank are replaced. Inputs of bins that the
    density does not believe are left out.

    Raises
    ------
    UserError
        As in `bank.scored_items`; or an input is not among the run's samples.
    """
    created = run.texts.get("created", "")
    sets, annotators, lines = scored_items(run.fingerprint, created, score_paths, key)
    where = os.path.relpath(run.path.resolve(), path.resolve().parent)
    runs: list[BankRun] = []
    items: list[BankItem] = []
    for one in sets:
        coarse = coarsen(density, one.edges)
        about = (where, run.fingerprint, created, one.key.tasks_id, coarse.edges.tolist())
        new = _items(run, coarse, one, len(runs))
        runs.append(BankRun(*about, density.absolute, density.verdict.converged))
        items += new
        left = len(one.items) - len(new)
        if left:
            lines.append(
                f"{counted(left, 'scored input')} left out: the run has not equilibrated there, so "
                "their probabilities are not known; add them again once it has"
            )
    found = Bank(path, runs, annotators, items)
    lines.append(f"{path}: {counted(len(items), 'scored input')} of {run.path} added")
    return merged(read_bank(path) if path.exists() else None, found), lines


def _items(run: RunReader, coarse: Density, one: ScoredItems, number: int) -> list[BankItem]:
    """Return the items of believed bins; `number` is that of their run in the bank."""
    z_i = np.array([item.z for item in one.items], dtype=np.float64)
    bin_i = np.clip(bin_of(z_i, coarse.edges), 0, len(coarse.edges) - 2)
    keep_b = coarse.believed_b & np.isfinite(coarse.log_g_b)
    kept = np.flatnonzero(keep_b[bin_i]).tolist()
    place_i = _places(run, [one.items[i].x for i in kept])
    found = []
    for i, place in zip(kept, place_i, strict=True):
        item, b = one.items[i], int(bin_i[i])
        assert item.lane is not None  # drawn
        z, log_g = float(z_i[i]), float(coarse.log_g_b[b])
        found.append(
            BankItem(
                item.x, number, place.tolist(), item.lane, z, b, log_g, item.draws, one.scores[i]
            )
        )
    return found


def _places(run: RunReader, x_id: Sequence[Sequence[int]]) -> IntArray:
    """Return round, rung and index of a sample that recorded each input, int64 [n, 3]."""
    place_i3 = np.full((len(x_id), 3), -1)
    if not x_id:
        return place_i3
    wanted: NDArray[np.void] | None = None
    for round_, (x_ksd, _) in enumerate(run.data.source.samples()):
        row_i = _as_bytes(x_ksd.reshape(-1, x_ksd.shape[2]))
        if wanted is None:
            wanted = _as_bytes(np.array(x_id).astype(x_ksd.dtype).reshape(len(x_id), -1))
        lost = np.flatnonzero(place_i3[:, 0] < 0)
        if not lost.size:
            break
        first = {row_i[j].tobytes(): j for j in np.flatnonzero(np.isin(row_i, wanted[lost]))[::-1]}
        for i in lost:
            j = first.get(wanted[i].tobytes())
            if j is not None:
                place_i3[i] = round_, j // x_ksd.shape[1], j % x_ksd.shape[1]
    if (place_i3 < 0).any():
        raise UserError(f"an input that was drawn from {run.path} is not among its samples")
    return place_i3


def _as_bytes(x_nd: NDArray[np.unsignedinteger]) -> NDArray[np.void]:
    """Return each row as one value that can be compared [n]."""
    x_nd = np.ascontiguousarray(x_nd)
    return x_nd.view(np.dtype((np.void, x_nd.dtype.itemsize * x_nd.shape[1]))).ravel()


def labels_for(
    path: Path, runs: Sequence[RunReader], density: Density, width: float | None = None,
    people_first: bool = True,
) -> Joined:  # fmt: skip
    """Return the labels of a bank, weighed for the model of some runs.

    Parameters
    ----------
    density : of the runs, in their own bins
    width : of the bins; None: the nearest to that of the bank's first tasks
    people_first : leave out judges' scores if there are people's

    Raises
    ------
    UserError
        A run of the bank is missing, or its samples were not rescored by a model that is needed;
        other inputs or another law; several runs whose densities are not absolute; no labels in the
        bins.
    """
    bank = read_bank(path)
    judges, notes = dict(bank.annotators), []
    if people_first and None in judges.values() and any(judges.values()):
        left = sorted(name for name, judge in judges.items() if judge)
        notes.append(f"{path}: scores of judges are left out ({', '.join(left)})")
        judges = {name: None for name, judge in judges.items() if judge is None}
    names = sorted(judges.keys() & {name for item in bank.items for name in item.scores})
    bank = replace(bank, items=[item for item in bank.items if item.scores.keys() & set(names)])
    if not bank.items:
        raise UserError(f"{path} holds no labels")
    apart = sorted(
        {bank.runs[i].path for i in {item.run for item in bank.items} if not bank.runs[i].converged}
    )
    notes += [
        f"not converged: {name}, when its scores were added to {path}: their weights are uncertain "
        "by more than the errors say; once it has converged, add them again"
        for name in apart
    ]
    if width is None:
        first, unit = bank.runs[0].edges, float(np.diff(density.edges).min())
        width = unit * max(1, round((first[1] - first[0]) / unit))
    coarse = coarsen(density, edges_of_width(density.edges, width))
    scored = _weighed(bank, names, runs, coarse)
    none = np.zeros((len(names), 0))
    return Joined(scored, [judges[n] for n in names], none, none, none, np.zeros(0), notes, apart)


def _weighed(
    bank: Bank, names: Sequence[str], runs: Sequence[RunReader], coarse: Density
) -> BankedScores:
    """Return the inputs in the bins of a model, with weights by the draws of all runs."""
    used = sorted({item.run for item in bank.items})
    if len(used) > 1 and not all(bank.runs[s].absolute for s in used):
        raise UserError(
            f"{bank.path}: the density of one of its runs is not absolute, so its draws cannot be "
            "weighed against those of others; give the ladder a rung with beta = 0"
        )
    z_si, end_s = _outputs(bank, used, runs[0])
    score_ai = np.array([[i.scores.get(name, np.nan) for i in bank.items] for name in names])
    # draws that anyone scored, and those that each annotator scored
    draws_ci = np.concatenate([np.ones((1, len(bank.items))), ~np.isnan(score_ai)])
    draws_ci *= [item.draws for item in bank.items]
    draws_sci = np.zeros((len(used), *draws_ci.shape))
    log_g_si = np.zeros((len(used), len(bank.items)))
    for s, (number, z_i) in enumerate(zip(used, z_si[:-1], strict=True)):
        of_run = np.array(bank.runs[number].edges)
        bin_i = bin_of(z_i, of_run)
        inside_i = (bin_i >= 0) & (bin_i < len(of_run) - 1)
        if end_s[s] > of_run[-1]:  # tasks were drawn below their last edge, unless it is the run's
            inside_i &= z_i < of_run[-1]
        mine_i = np.array([item.run == number for item in bank.items])
        bin_i[mine_i] = [item.bin for item in bank.items if item.run == number]
        inside_i |= mine_i
        log_g_b, n_bins = np.zeros(len(of_run) - 1), len(of_run) - 1
        log_g_b[bin_i[mine_i]] = [item.log_g for item in bank.items if item.run == number]
        draws_cb = [np.bincount(bin_i[mine_i], draws_i[mine_i], n_bins) for draws_i in draws_ci]
        draws_sci[s][:, inside_i] = np.array(draws_cb)[:, bin_i[inside_i]]
        log_g_si[s, inside_i] = log_g_b[bin_i[inside_i]]
    log_weight_ci = -log_mixture(draws_sci, log_g_si[:, None])
    return _one_row_each(bank, names, score_ai, z_si[-1], (draws_ci, log_weight_ci), coarse)


def _one_row_each(
    bank: Bank, names: Sequence[str], score_ai: FloatArray, z_i: FloatArray,
    weighed: tuple[FloatArray, FloatArray], coarse: Density,
) -> BankedScores:  # fmt: skip
    """Return a row for each different input, with all of its draws and scores.

    weighed : draws and ln weights, float64 [1 + A, n], by all draws and by those of each annotator
    """
    x_id = np.array([item.x for item in bank.items])
    _, first_n, of_i = np.unique(x_id, axis=0, return_index=True, return_inverse=True)
    of_i = of_i.reshape(-1)
    known_ai = ~np.isnan(score_ai)
    with np.errstate(invalid="ignore"):
        score_an = np.array(
            [
                np.bincount(of_i, np.where(known_i, score_i, 0.0)) / np.bincount(of_i, known_i)
                for score_i, known_i in zip(score_ai, known_ai, strict=True)
            ]
        )
    draws_ci, log_weight_ci = weighed
    draws_cn = np.array([np.bincount(of_i, draws_i) for draws_i in draws_ci])
    of_run = [(run.model_fingerprint, run.created) for run in bank.runs]  # whatever the task set
    lane_i = [(*of_run[item.run], item.lane) for item in bank.items]
    lanes = {key: n for n, key in enumerate(dict.fromkeys(lane_i))}
    lane_n = np.array([lanes[lane_i[i]] for i in first_n])
    bin_n = bin_of(z_i[first_n], coarse.edges)
    number = np.flatnonzero((bin_n >= 0) & (bin_n < len(coarse.count_b)))
    if not number.size:
        raise UserError(f"{bank.path}: none of its inputs lies in the bins of this run")
    log_weight_cn = np.full(draws_cn.shape, np.inf)  # as of an item that an annotator did not score
    for log_weight_n, log_weight_i in zip(log_weight_cn, log_weight_ci, strict=True):
        np.minimum.at(log_weight_n, of_i, log_weight_i)
    log_weight_cn = np.where(draws_cn > 0, log_weight_cn, -np.inf)[:, number]
    scale_c = log_weight_cn.max(axis=1, keepdims=True)
    scale_c[np.isneginf(scale_c)] = 0.0  # whoever scored none of these inputs
    weight_cn, scale = draws_cn[:, number] * np.exp(log_weight_cn - scale_c), float(scale_c[0, 0])
    absolute = coarse.absolute and all(bank.runs[item.run].absolute for item in bank.items)
    return BankedScores(
        edges=coarse.edges,
        bin_i=bin_n[number],
        lane_i=lane_n[number],
        weight_i=weight_cn[0],
        score_ai=score_an[:, number],
        annotators=names,
        draws_n=draws_cn[0],
        number_i=number,
        log_g_b=np.where(absolute & np.isfinite(coarse.log_g_b), coarse.log_g_b - scale, np.nan),
        weight_ai=weight_cn[1:],
    )


def _outputs(
    bank: Bank, used: Sequence[int], target: RunReader
) -> tuple[FloatArray, Sequence[float]]:
    """Return z of all inputs by the models of some runs, and last by that of another.

    These are float64 [S + 1, n]; also the last edge of each of the S runs.
    """
    with ExitStack() as stack:
        runs = {}
        for number in sorted({item.run for item in bank.items}):
            about = bank.runs[number]
            run = stack.enter_context(open_run(bank.run_path(about), target.on_damage))
            created = run.texts.get("created", "")
            if (run.fingerprint, created) != (about.model_fingerprint, about.created):
                raise UserError(f"{run.path} is not the run that {bank.path} was made from")
            require_one_space([run, target])
            runs[number] = run
        models = {run.fingerprint: run for run in [*runs.values(), target]}
        z_of = {model: _of_model(bank, runs, other) for model, other in models.items()}
    fingerprints = [*(bank.runs[s].model_fingerprint for s in used), target.fingerprint]
    return np.array([z_of[model] for model in fingerprints]), [runs[s].edges[-1] for s in used]


def _of_model(bank: Bank, runs: dict[int, RunReader], model: RunReader) -> FloatArray:
    """Return z of all inputs by the model of a run, float64 [n]."""
    z_i = np.array([item.z for item in bank.items], dtype=np.float64)
    x_id = np.array([item.x for item in bank.items])
    number_i = np.array([item.run for item in bank.items])
    place_i3 = np.array([item.place for item in bank.items])
    for number, run in runs.items():
        if run.fingerprint == model.fingerprint:
            continue
        with open_rescored(find(run, model), run.on_damage) as side:
            mine = np.flatnonzero(number_i == number)
            if (place_i3[mine] >= (side.rounds, *side.shape)).any():
                raise UserError(f"{side.path} lacks some samples: resume omniinput rescore")
            for round_ in np.unique(place_i3[mine, 0]):
                at = mine[place_i3[mine, 0] == round_]
                place = place_i3[at, 1], place_i3[at, 2]
                if (run.slab("samples/x", int(round_))[place] != x_id[at]).any():
                    raise UserError(f"{run.path} no longer holds the inputs of {bank.path}")
                z_i[at] = side.z(int(round_))[place]
    return z_i


def bank_lines(result: ScoredCurve) -> list[str]:
    """Return lines on the effective numbers of labels, and where they are missing; none without."""
    scores, coarse = result.scores, result.density
    if not isinstance(scores, BankedMeans):
        return []
    used_b = result.used_b & (scores.inputs_b > 0)
    labels, worth = int(scores.inputs_b[used_b].sum()), scores.effective_b[used_b]
    lines = [
        f"the labels of the bank, {labels:,} in these bins, are worth {worth.sum():,.0f} labels of "
        f"this model's own draws ({worth.min():.1f} to {worth.max():.1f} per bin)"
    ]
    missing_b = scores.missing_b & (coarse.count_b > 0) & coarse.believed_b
    if missing_b.any():
        at = ", ".join(
            f"{coarse.edges[b]:g} to {coarse.edges[b + 1]:g}" for b in np.flatnonzero(missing_b)
        )
        lines.append(
            f"labels are missing at z = {at}: most or some inputs of these bins cannot be among "
            "those that were drawn; choose and score tasks of this run there"
        )
    if np.isnan(scores.scored.log_g_b).all():
        lines.append("whether labels are missing is not known: a density is not absolute")
    return lines
