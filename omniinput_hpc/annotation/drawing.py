"""Choose representative inputs: a draw per bin whose mean score estimates r.

Every recorded sample i of any rung represents w_i = 1 / sum_k n_k p_k(x_i) inputs, where p_k is the
distribution of rung k (`estimators.density.Density.log_mixture`); an input recorded c times
represents c w. With these weights, the recorded samples of a bin are distributed like all inputs of
the bin, whichever rung they come from.

**by-weight**, the default, is a systematic draw (Madow, Ann. Math. Stat. 20, 333 (1949)): the
distinct inputs of a bin are laid end to end in random order, each as long as its weight, and n
equally spaced points with a random start are marked. An input is drawn as often as it is marked,
on average n times its share of the weight. The mean of the scores, each counted ``draws`` times,
therefore has exactly the weighted mean of all recorded samples as its expectation. An input is
drawn more than once only if its share is above 1 / n. A draw *without replacement* in proportion to
the weights would not do: it favours light inputs, and its plain mean is biased.

**uniform** draws distinct inputs with equal probability; their scores must then be weighted by
exp(log_weight).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from omniinput_hpc.annotation.tasks import DrawMethod
from omniinput_hpc.errors import UserError
from omniinput_hpc.estimators import FloatArray, IntArray
from omniinput_hpc.estimators.comparison.samplers import run_scales
from omniinput_hpc.estimators.density.density import Density
from omniinput_hpc.estimators.precision_recall.curves import FEWEST_INPUTS
from omniinput_hpc.estimators.run_data import RunData
from omniinput_hpc.estimators.samples import bin_within, samples_in_bins
from omniinput_hpc.histogram import bin_of

MOST_SAMPLES = 4_000_000
"""About so many recorded samples are looked at, the same number in each bin that has more: a row of
each is kept in memory. At least `LEAST_OF_A_BIN` are, of each bin."""
LEAST_OF_A_BIN = 20_000
MAX_NEAR_SHARE = 0.2
"""Two inputs are near duplicates if at most this share of their sites differs."""


@dataclass(frozen=True)
class Candidates:
    """The recorded samples of runs of one model inside a range of z, i = 0 ... n - 1.

    Attributes
    ----------
    run_i : int64 [n], number of the run
    round_i, rung_i, index_i : int64 [n], position in ``samples/*``
    lane_i : int64 [n]
    z_i : float64 [n]
    name_i : uint64 [n, 2], equal for equal inputs (a random linear hash of 128 bits)
    log_w_i : float64 [n], ln of the weight, up to a constant
    """

    run_i: IntArray
    round_i: IntArray
    rung_i: IntArray
    index_i: IntArray
    lane_i: IntArray
    z_i: FloatArray
    name_i: NDArray[np.uint64]
    log_w_i: FloatArray


@dataclass(frozen=True)
class Chosen:
    """One drawn input; see `tasks.KeyItem` for the fields."""

    x: IntArray
    z: float
    bin_lower: float
    log_weight: float
    draws: int
    lane: int


@dataclass(frozen=True)
class BinReport:
    """Numbers of samples and tasks in a bin.

    Attributes
    ----------
    lower : float
    samples, looked_at : recorded samples, and those of them that were looked at
    distinct : inputs among these
    effective : float, effective number of distinct inputs (Kish), 1 / sum of squared shares
    drawn : tasks
    near : pairs of drawn inputs that differ in at most `MAX_NEAR_SHARE` of their sites
    """

    lower: float
    samples: int
    looked_at: int
    distinct: int
    effective: float
    drawn: int
    near: int


def samples_of_bins(run: RunData, edges: FloatArray) -> IntArray:
    """Return the number of a run's recorded samples in each bin, int64 [B]."""
    n_b = np.zeros(len(edges) - 1, dtype=np.int64)
    for round_ in range(run.rounds):
        bin_i = bin_within(run, run.z_of(round_).ravel(), edges)
        n_b += np.bincount(bin_i[(bin_i >= 0) & (bin_i < len(n_b))], minlength=len(n_b))
    return n_b


def recorded(
    runs: Sequence[RunData],
    density: Density,
    edges: FloatArray,
    share_b: FloatArray | None = None,
    keep: np.random.Generator | None = None,
) -> Candidates:
    """Collect the runs' recorded samples inside the edges, without values; a UserError if none.

    The density is that of all runs together. With `share_b`, float64 [B], only a share of each
    bin's samples, which `keep` draws.
    """
    rng = np.random.default_rng(0)  # fixed seed: names only need to differ
    mix_d2 = rng.integers(2**64, size=(runs[0].n_sites, 2), dtype=np.uint64) | np.uint64(1)
    parts: list[list[NDArray]] = []
    scale_rb = run_scales(runs, density) if len(runs) > 1 else None
    for number, run in enumerate(runs):
        for some in samples_in_bins(run, edges):
            if share_b is not None and keep is not None:
                some = some.where(keep.random(len(some.z_i)) < share_b[some.bin_i])
            name = np.zeros((len(some.z_i), 2), dtype=np.uint64)
            for i in range(0, len(name), 4096):
                part = slice(i, i + 4096)
                name[part] = some.x_id[part].astype(np.uint64) @ mix_d2
            log_w_i = -density.log_mixture(some.z_i, some.log_q_ik, number)
            if scale_rb is not None:
                log_w_i += scale_rb[number, bin_of(some.z_i, density.edges)]
            place = np.broadcast_to([[number], [some.round_], [some.rung]], (3, len(name)))
            lane_i = some.index_i % run.walkers
            parts.append([*place, some.index_i, lane_i, some.z_i, name, log_w_i])
    if not parts:
        raise _no_samples(runs[0], edges)
    return Candidates(*(np.concatenate(part) for part in zip(*parts, strict=True)))


def _no_samples(run: RunData, edges: FloatArray) -> UserError:
    ends = f"{edges[0]:g} to {edges[-1]:g}"
    return UserError(f"{run.path} has no recorded samples with outputs from {ends}")


def systematic_draw(weight_i: FloatArray, n: int, rng: np.random.Generator) -> IntArray:
    """Return how often each item is drawn, int64 [I]; on average n weight_i / sum(weight_i)."""
    order = rng.permutation(len(weight_i))
    end_i = np.cumsum(weight_i[order])
    points = (np.arange(n) + rng.random()) * (end_i[-1] / n)
    marked = np.minimum(np.searchsorted(end_i, points, side="right"), len(order) - 1)
    return np.bincount(order[marked], minlength=len(weight_i))


def uniform_draw(weight_i: FloatArray, n: int, rng: np.random.Generator) -> IntArray:
    """Return 1 for n items drawn with equal probability and 0 for the others, int64 [I]."""
    draws = np.zeros(len(weight_i), dtype=np.int64)
    draws[rng.permutation(len(weight_i))[:n]] = 1
    return draws


DRAW_METHODS = {"by-weight": systematic_draw, "uniform": uniform_draw}


def choose(
    runs: Sequence[RunData],
    density: Density,
    edges: FloatArray,
    per_bin: int,
    method: DrawMethod,
    seed: int,
) -> tuple[list[list[Chosen]], list[BinReport]]:
    """Draw inputs in each bin in which runs of one model have recorded samples.

    The density is that of all runs together. The draws of all runs represent a bin: one run may
    have reached only a part of it.

    An input that is drawn several times is one task, so a bin may have fewer than `per_bin` tasks.
    The module's docstring describes each `method`; `edges` is float64 [B + 1]. Of bins with very
    many samples a random part is looked at, so that memory does not grow with the run. Raises a
    UserError if no samples are inside the edges.

    Returns
    -------
    chosen : of each run, by bin
    reports : for the bins that have samples
    """
    rng = np.random.default_rng(seed)
    n_b = np.sum([samples_of_bins(run, edges) for run in runs], axis=0)
    most = max(LEAST_OF_A_BIN, MOST_SAMPLES // len(n_b))
    share_b = np.minimum(1.0, most / np.maximum(n_b, 1)) if n_b.max() > most else None
    all_ = recorded(runs, density, edges, share_b, rng)
    bin_i = bin_of(all_.z_i, edges)
    drawn: list[tuple[int, int, float, int]] = []  # sample, bin, log_weight, draws
    found: list[tuple[int, int, int, float]] = []  # bin, looked at, distinct, effective
    for b in np.unique(bin_i):
        i = np.flatnonzero(bin_i == b)
        _, of_i, copies = np.unique(all_.name_i[i], axis=0, return_inverse=True, return_counts=True)
        of_i = of_i.reshape(-1)
        log_weight_u = _log_shares(all_.log_w_i[i], of_i)
        weight_u = np.exp(log_weight_u)
        draws_u = DRAW_METHODS[method](weight_u, per_bin, rng)
        copy_u = _one_copy_each(of_i, len(copies), rng)
        drawn += [
            (int(i[copy_u[u]]), int(b), float(log_weight_u[u]), int(draws_u[u]))
            for u in np.flatnonzero(draws_u)
        ]
        found.append((int(b), len(i), len(copies), float(1.0 / (weight_u**2).sum())))
    chosen = _with_values(runs, all_, drawn, edges)
    return chosen, _reports([item for some in chosen for item in some], found, edges, n_b)


def _log_shares(log_w_i: FloatArray, of_i: IntArray) -> FloatArray:
    """Return ln of each distinct input's share of the weight [U]; finite even if exp underflows."""
    order = np.argsort(of_i, kind="stable")
    starts = np.flatnonzero(np.diff(of_i[order], prepend=-1))
    log_w_u = np.logaddexp.reduceat(log_w_i[order], starts)
    return np.asarray(log_w_u - np.logaddexp.reduce(log_w_u))


def _one_copy_each(of_i: IntArray, n_distinct: int, rng: np.random.Generator) -> IntArray:
    """Return a sample of each distinct input, all copies equally likely, int64 [U]."""
    copy_u = np.zeros(n_distinct, dtype=np.int64)
    order = rng.permutation(len(of_i))
    copy_u[of_i[order]] = order  # the last assignment wins, in random order
    return copy_u


def _with_values(
    runs: Sequence[RunData],
    all_: Candidates,
    drawn: Sequence[tuple[int, int, float, int]],
    edges: FloatArray,
) -> list[list[Chosen]]:
    """Fetch the values of the drawn samples, of each run, one round at a time."""
    by_round: dict[tuple[int, int], list[int]] = {}
    for place, (i, *_) in enumerate(drawn):
        by_round.setdefault((int(all_.run_i[i]), int(all_.round_i[i])), []).append(place)
    x_of: dict[int, IntArray] = {}
    for number, run in enumerate(runs):
        for round_, (x_ksd, _) in enumerate(run.source.samples()):
            for place in by_round.get((number, round_), ()):
                i = drawn[place][0]
                x_of[place] = x_ksd[all_.rung_i[i], all_.index_i[i]].astype(np.int64)
    chosen: list[list[Chosen]] = [[] for _ in runs]
    for place, (i, b, log_weight, draws) in enumerate(drawn):
        z, lane = float(all_.z_i[i]), int(all_.lane_i[i])
        item = Chosen(x_of[place], z, float(edges[b]), log_weight, draws, lane)
        chosen[all_.run_i[i]].append(item)
    return chosen


def _reports(
    chosen: Sequence[Chosen],
    found: Sequence[tuple[int, int, int, float]],
    edges: FloatArray,
    n_b: IntArray,
) -> list[BinReport]:
    reports = []
    for b, looked_at, distinct, effective in found:
        x_nd = [item.x for item in chosen if item.bin_lower == edges[b]]
        near = near_pairs(np.stack(x_nd)) if x_nd else 0
        numbers = int(n_b[b]), looked_at, distinct, effective, len(x_nd), near
        reports.append(BinReport(float(edges[b]), *numbers))
    return reports


def bin_table(reports: Sequence[BinReport], floor: float = -np.inf) -> list[str]:
    """Return the lines of the table of bins.

    The run has not equilibrated in bins below `floor` (see `Density`).
    """
    lines = ["bin       samples  distinct  effective  drawn  near pairs"]
    for r in reports:
        few = f"  fewer than {FEWEST_INPUTS}" if r.drawn < FEWEST_INPUTS else ""
        few += "  not equilibrated" if r.lower < floor else ""
        found = f"{r.lower:<8.4g} {r.samples:8} {r.distinct:9} {r.effective:10.1f}"
        lines.append(f"{found} {r.drawn:6} {r.near:11}{few}")
    part = [r.looked_at for r in reports if r.looked_at < r.samples]
    if part:
        lines.append(
            f"in bins with more samples, {max(part):,} at random were looked at: 'distinct' and "
            "'effective' are of these"
        )
    return lines


def not_believed(path: str, reports: Sequence[BinReport], floor: float) -> list[str]:
    """Return a note on the bins below `floor`, whose scores no curve counts yet; [] if none."""
    below = [r for r in reports if r.lower < floor]
    if not below:
        return []
    return [
        f"note: {len(below)} of {len(reports)} bins of {path}, with {sum(r.drawn for r in below)} "
        f"tasks, begin below z = {floor:.4g}, where the run has not equilibrated: a curve counts "
        "their scores only once it has (raise run.rounds and run the same command again), or with "
        "--trust-unequilibrated; to score only tasks that count now, begin --range there"
    ]


def near_pairs(x_nd: IntArray) -> int:
    """Return how many pairs of inputs differ in at most `MAX_NEAR_SHARE` of their sites."""
    most = MAX_NEAR_SHARE * x_nd.shape[1]
    return sum(int(((x_nd[i + 1 :] != x).sum(axis=1) <= most).sum()) for i, x in enumerate(x_nd))


def describe_draw(method: DrawMethod) -> str:
    """Return one sentence on the draw method, for the key's header."""
    if method == "uniform":
        return (
            "distinct recorded inputs drawn with equal probability, without replacement: weight "
            "the scores of a bin by exp(log_weight)"
        )
    return (
        "systematic draw of distinct recorded inputs in proportion to weight times copies: the "
        "mean score of a bin, each item counted `draws` times, estimates r"
    )


@dataclass(frozen=True)
class Drawn:
    """An input, `values` int64 [D], drawn `draws` times from the bin of index `bin`."""

    bin: int
    z: float
    draws: int
    values: IntArray


def draw_independently(
    run: RunData,
    density: Density,
    edges: FloatArray,
    per_bin: int,
    seed: int = 0,
    most: int | None = None,
    number: int | None = None,
) -> list[Drawn]:
    """Draw inputs of each bin independently, with probability proportional to their weight.

    This takes one pass over the file in bounded memory: samples that hold a share s of the weight
    seen so far replace each earlier draw with probability s. `choose` has the smaller variance, but
    keeps a row per recorded sample and reads the file twice.

    Repeated draws of an input are counted in its `draws`. With `most`, about so many samples of the
    run are looked at. `number` is the run's, from 0, if the density is of several.

    Raises a UserError if no samples are inside the edges, float64 [B + 1].
    """
    n_bins = len(edges) - 1
    rng = np.random.default_rng(seed)
    total_b = np.full(n_bins, -np.inf)
    kept: list[list[tuple[float, IntArray] | None]] = [[None] * per_bin for _ in range(n_bins)]
    for part in samples_in_bins(run, edges, most):
        log_w_i = -density.log_mixture(part.z_i, part.log_q_ik, number)
        for b in np.unique(part.bin_i):
            mine = np.flatnonzero(part.bin_i == b)
            sum_i = np.logaddexp.accumulate(log_w_i[mine])
            total_b[b] = np.logaddexp(total_b[b], sum_i[-1])
            moves = np.flatnonzero(rng.random(per_bin) < np.exp(sum_i[-1] - total_b[b]))
            points = sum_i[-1] + np.log(rng.random(len(moves)))
            places = np.minimum(np.searchsorted(sum_i, points), len(mine) - 1)
            for n, i in zip(moves, mine[places], strict=True):
                kept[b][n] = (float(part.z_i[i]), part.x_id[i].astype(np.int64))
    items = [item for b, row in enumerate(kept) for item in _distinct(b, row)]
    if not items:
        raise _no_samples(run, edges)
    return items


def _distinct(bin_: int, row: Sequence[tuple[float, IntArray] | None]) -> list[Drawn]:
    """Return a bin's distinct drawn inputs, sorted by z, each with its number of draws."""
    found: dict[bytes, Drawn] = {}
    for z, x in (drawn for drawn in row if drawn is not None):
        known = found.get(x.tobytes())
        draws = 1 if known is None else known.draws + 1
        found[x.tobytes()] = Drawn(bin_, z, draws, x)
    return sorted(found.values(), key=lambda item: item.z)
