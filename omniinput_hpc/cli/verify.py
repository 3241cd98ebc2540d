"""Is a run file what it claims: ``python -m omniinput_hpc --verify RUN.h5 [--rescore 1000]``.

Every committed round is read again, one at a time, and what must agree is compared: counters, moves
and histograms, swaps, walkers, samples, the state to go on from; with ``--rescore`` the model
evaluates some of the recorded samples again. Exit code 0: all agrees; 1: something is wrong, a line
each; 2: no run file. A run that is going on can be verified as well.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from omniinput_hpc.config import Config, input_file
from omniinput_hpc.errors import EXIT_COMPLETE, EXIT_FAILURE, UserError
from omniinput_hpc.histogram import bin_of
from omniinput_hpc.parallel.comm import World
from omniinput_hpc.runfile.reader import BrokenRun, RunReader, open_run
from omniinput_hpc.tempering import ladder

LINES_PER_CHECK = 5
ATTEMPTS = 50
Z_SUM_TOLERANCE = 1e-9
"""Of the sum of z in a bin, relative to its counts times the larger edge."""

PARITY = ("histogram/lane_counts", "histogram/z_sum")
STATE = ("state/x", "state/z", "state/walker", "state/direction")


class Findings:
    """What is wrong, a line each; of each check the first few, and how many more there are."""

    def __init__(self) -> None:
        self._lines: list[str] = []
        self._count: Counter[str] = Counter()

    def add(self, check: str, text: str) -> None:
        """Note what a check found."""
        self._count[check] += 1
        if self._count[check] <= LINES_PER_CHECK:
            self._lines.append(f"{check}: {text}")

    def lines(self) -> list[str]:
        """Return all lines."""
        more = [
            f"{check}: and {n - LINES_PER_CHECK} more like these"
            for check, n in self._count.items()
            if n > LINES_PER_CHECK
        ]
        return self._lines + more


def run(world: World, path: Path, n_rescored: int, assignments: Sequence[str] = ()) -> int:
    """Verify a run file on rank 0, print what was found, and return the exit code.

    Parameters
    ----------
    n_rescored : samples that the model evaluates again; 0: none, and no model is needed
    assignments : overrides of the stored input, for the model (``--set model.path=...``)

    Raises
    ------
    UserError
        The file is no run file, or the model cannot be built.
    """

    def verify() -> bool:
        notes, findings = verify_file(path, n_rescored, assignments)
        for line in [*notes, *(f"WRONG  {line}" for line in findings)]:
            print(line)
        verdict = f"{len(findings)} line(s) of what is wrong" if findings else "all agrees"
        print(f"{path}: {verdict}", flush=True)
        return not findings

    return EXIT_COMPLETE if world.on_rank_0(verify) else EXIT_FAILURE


def verify_file(
    path: Path, n_rescored: int = 0, assignments: Sequence[str] = ()
) -> tuple[list[str], list[str]]:
    """Verify a run file; return notes and findings, a line each (see `run`)."""
    findings = Findings()
    try:
        reader, last = _open(path)
    except BrokenRun as error:
        return [], [f"layout: {error}"]
    with reader as run:
        notes, source = [_summary(run)], f"{path} (stored input)"
        try:
            config = input_file.parse(run.config_toml, source)
            _ = config.sampler.n_walkers  # a run file's input holds the number
        except UserError as error:
            return notes, [f"stored input: {error}"]
        checks: list[Callable[[], None]] = [
            lambda: _check_header(run, config, findings),
            lambda: _check_rounds(run, config, last, findings),
        ]
        if n_rescored and run.rounds:
            from omniinput_hpc.cli import spot_check  # imports torch

            chosen = input_file.parse(run.config_toml, source, assignments)
            checks.append(lambda: notes.extend(spot_check.check(run, chosen, n_rescored, findings)))
        for check in checks:
            try:
                check()
            except OSError as error:
                findings.add("reading", f"the file cannot be read to its end: {error}")
    return notes, findings.lines()


def _open(path: Path) -> tuple[RunReader, dict[str, NDArray[Any]]]:
    """Open a file and read what a live run will soon write over: all of one and the same round."""
    for _ in range(ATTEMPTS):
        with ExitStack() as undo:
            run = undo.enter_context(open_run(path))
            names = [
                *(STATE if run.last_round is not None else ()),
                *(PARITY if run.rounds else ()),
            ]
            last = {name: run.slab(name, run.last_round or 0) for name in names}
            with open_run(path) as again:
                if again.last_round == run.last_round:
                    undo.pop_all()  # stays open
                    return run, last
    raise UserError(f"{path} is being written too fast to be verified; wait until the run ends")


def _summary(run: RunReader) -> str:
    g = run.geometry
    return (
        f"{run.path}: {run.rounds} of {g.rounds} rounds and {run.burn_in_committed} of burn-in "
        f"committed; {g.n_rungs} rungs of {g.n_walkers} walkers, "
        f"{run.rounds * g.n_rungs * g.samples_per_round:,} samples"
    )


def _check_header(run: RunReader, config: Config, findings: Findings) -> None:
    """Compare layout, counters, ladder and bins with the stored input."""
    g = run.geometry
    for name, stored, wanted in (
        ("rounds", g.rounds, config.run.rounds),
        ("rungs", g.n_rungs, len(config.beta_k)),
        ("walkers", g.n_walkers, config.sampler.walkers),
        ("bins", g.n_bins, len(config.bins.edges) - 1),
        ("samples a rung and round", g.samples_per_round, config.samples_per_round),
    ):
        if stored != wanted:
            findings.add("layout", f"{stored} {name}, but the stored input says {wanted}")
    flat_k = np.isnan(config.beta_k)  # of flat-histogram rungs
    tuned = config.ladder is not None and config.ladder.tune
    same = np.array_equal(run.beta_k, config.beta_k, equal_nan=True)
    if not (np.array_equal(np.isnan(run.beta_k), flat_k) if tuned else same):
        findings.add("layout", "ladder/beta is not the stored input's ladder")
    if not np.array_equal(run.edges, config.bins.edges):
        findings.add("layout", "bins/edges are not the stored input's bins")
    burn_in = config.run.burn_in
    if run.burn_in_committed > burn_in or (run.rounds and run.burn_in_committed != burn_in):
        findings.add(
            "counters",
            f"{run.burn_in_committed} burn-in rounds committed before {run.rounds} counted ones, "
            f"of {burn_in}",
        )


def _check_rounds(
    run: RunReader, config: Config, last: dict[str, NDArray[Any]], findings: Findings
) -> None:
    """Check every committed round, then the sums over them, and the state to go on from."""
    g = run.geometry
    total_kb = np.zeros((g.n_rungs, g.n_bins), dtype=np.uint64)
    walker_kw = None
    for round_ in range(run.rounds):
        counts_kb = run.slab("histogram/counts", round_)
        total_kb += counts_kb
        for check, text in (
            *_histogram(run, config, round_, counts_kb),
            *_moves(run, config, round_),
            *_swaps(run, config, round_),
            *_walkers(run, config, round_, walker_kw),
            *_samples(run, round_, counts_kb),
        ):
            findings.add(check, f"round {round_}, {text}")
        walker_kw = run.slab("exchange/walker", round_)
    if run.rounds:
        for check, text in _cumulative(run, total_kb, last):
            findings.add(check, text)
    if last:
        for check, text in _state(run, config, walker_kw, last):
            findings.add(check, text)


Lines = Iterator[tuple[str, str]]
"""The name of a check, and what it found."""


def _histogram(run: RunReader, config: Config, round_: int, counts_kb: NDArray[Any]) -> Lines:
    moves = config.sampler.moves_per_round * run.walkers
    counted_k = counts_kb.sum(axis=1, dtype=np.int64)
    counted_k += run.slab("histogram/outside", round_).sum(axis=1, dtype=np.int64)
    for k in np.flatnonzero(counted_k != moves):
        yield "histogram", f"rung {k}: {counted_k[k]:,} counts of {moves:,} moves"


def _moves(run: RunReader, config: Config, round_: int) -> Lines:
    moves = config.sampler.moves_per_round * run.walkers
    attempted_kn = run.slab("kernel/attempted", round_)
    accepted_kn = run.slab("kernel/accepted", round_)
    attempted_k = attempted_kn.sum(axis=1)
    for k in np.flatnonzero(attempted_k != moves):
        yield "moves", f"rung {k}: {attempted_k[k]:,} moves attempted, not {moves:,}"
    bad_kn = (accepted_kn < 0) | (accepted_kn > attempted_kn)
    for k in np.flatnonzero(bad_kn.any(axis=1)):
        yield "moves", f"rung {k}: accepted {accepted_kn[k]} of {attempted_kn[k]} attempted moves"


def _swaps(run: RunReader, config: Config, round_: int) -> Lines:
    n, k = config.sampler.exchanges, run.geometry.n_rungs
    if config.sampler.method == "ancestral":
        n = 0  # independent draws: nothing to exchange
    first = (round_ + config.run.burn_in) * n
    due_k = np.zeros(k - 1, dtype=np.int64)
    for parity in range(2):
        pairs = ladder.pairs(k, parity)
        n_due = (first + n - parity + 1) // 2 - (first - parity + 1) // 2
        due_k[pairs.start : pairs.stop : pairs.step] = n_due * run.walkers
    attempted_k = run.slab("exchange/attempted", round_)
    accepted_k = run.slab("exchange/accepted", round_)
    for i in np.flatnonzero(attempted_k != due_k):
        yield "swaps", f"rungs {i} and {i + 1}: {attempted_k[i]} attempted, not {due_k[i]}"
    for i in np.flatnonzero((accepted_k < 0) | (accepted_k > attempted_k)):
        yield "swaps", f"rungs {i} and {i + 1}: {accepted_k[i]} accepted of {attempted_k[i]}"
    trips = run.slab("exchange/round_trips", round_)
    for walker in np.flatnonzero((trips < 0) | (trips > n)):
        yield "round trips", f"walker {walker}: {trips[walker]} in {n} exchanges"


def misplaced_lanes(walker_kw: NDArray[np.int32]) -> NDArray[np.int64]:
    """Return the lanes whose walkers, int32 [K, W], are not all those of the lane, each once."""
    k, w = walker_kw.shape
    expected_kw = np.arange(k)[:, None] * w + np.arange(w)
    return np.flatnonzero((np.sort(walker_kw, axis=0) != expected_kw).any(axis=0))


def _walkers(
    run: RunReader, config: Config, round_: int, before_kw: NDArray[np.int32] | None
) -> Lines:
    """Check who is where after the round, and at each of its sampled moves."""
    g = run.geometry
    lanes = misplaced_lanes(run.slab("exchange/walker", round_))
    if lanes.size:
        yield "walkers", f"exchange/walker: walkers lost or doubled in lanes {_some(lanes)}"
    walker_ktw = run.slab("samples/walker", round_).reshape(g.n_rungs, -1, g.n_walkers)
    for t in range(walker_ktw.shape[1]):
        lanes = misplaced_lanes(walker_ktw[:, t])
        if lanes.size:
            yield "walkers", f"samples/walker, sample {t}: lost or doubled in lanes {_some(lanes)}"
            return
    in_first_segment = config.sampler.steps // config.samples.every
    if before_kw is not None and np.any(walker_ktw[:, :in_first_segment] != before_kw[:, None]):
        yield "walkers", "samples/walker: not those whom the round before left there"


def _samples(run: RunReader, round_: int, counts_kb: NDArray[Any]) -> Lines:
    """Check the samples rung by rung: values, finite outputs, and no more than were counted."""
    g = run.geometry
    outside_k2 = run.slab("histogram/outside", round_)
    z_ks = run.slab("samples/z", round_)
    for k in range(g.n_rungs):
        x_sd = run.slab("samples/x", round_, range(k, k + 1))[0]
        if x_sd.max(initial=0) >= g.n_values:
            yield "samples", f"rung {k}: a value of x is {x_sd.max()}, of {g.n_values} values"
        if not np.isfinite(z_ks[k]).all():
            n_bad = np.count_nonzero(~np.isfinite(z_ks[k]))
            yield "samples", f"rung {k}: {n_bad} outputs are not finite"
            continue
        bin_s = bin_of(z_ks[k].astype(np.float64), run.edges)
        sampled_b = np.bincount(bin_s + 1, minlength=g.n_bins + 2)
        counted_b = np.concatenate([outside_k2[k, :1], counts_kb[k], outside_k2[k, 1:]])
        n_strange = int(np.maximum(sampled_b - counted_b.astype(np.int64), 0).sum())
        if n_strange:
            yield "samples", f"rung {k}: {n_strange} outputs that the histogram did not count"


def _cumulative(run: RunReader, total_kb: NDArray[np.uint64], last: dict[str, Any]) -> Lines:
    lane_kb = last["histogram/lane_counts"].sum(axis=1)
    for k in np.flatnonzero((lane_kb != total_kb).any(axis=1)):
        yield (
            "cumulative histogram",
            f"rung {k}: histogram/lane_counts hold {lane_kb[k].sum():,} counts, the rounds "
            f"{total_kb[k].sum():,} (or they are in other bins)",
        )
    z_sum_kb = last["histogram/z_sum"]
    largest_b = np.maximum(np.abs(run.edges[:-1]), np.abs(run.edges[1:]))
    slack_kb = Z_SUM_TOLERANCE * total_kb * largest_b
    inside_kb = z_sum_kb >= total_kb * run.edges[:-1] - slack_kb
    inside_kb &= z_sum_kb <= total_kb * run.edges[1:] + slack_kb
    for k in np.flatnonzero(~inside_kb.all(axis=1)):
        n_bad = np.count_nonzero(~inside_kb[k])
        yield "sums of z", f"rung {k}: histogram/z_sum: the mean z of {n_bad} bins is outside them"


def _state(
    run: RunReader,
    config: Config,
    walker_kw: NDArray[np.int32] | None,
    last: dict[str, NDArray[Any]],
) -> Lines:
    """Check what a resumed run would go on from."""
    g = run.geometry
    x_kwd, z_kw, state_kw, direction_kw = (last[name] for name in STATE)
    if x_kwd.max(initial=0) >= g.n_values:
        yield "state", f"a value of x is {x_kwd.max()}, of {g.n_values} values"
    if not np.isfinite(z_kw).all():
        yield "state", f"{np.count_nonzero(~np.isfinite(z_kw))} outputs are not finite"
    if not np.isin(direction_kw, (0, ladder.UP_FROM_BOTTOM, ladder.DOWN_FROM_TOP)).all():
        yield "state", "a direction is none of 0, 1, 2"
    lanes = misplaced_lanes(state_kw)
    if lanes.size:
        yield "state", f"walkers lost or doubled in lanes {_some(lanes)}"
        return
    if walker_kw is None:
        return
    if not np.array_equal(state_kw, walker_kw):
        yield "state", "state/walker are not those that exchange/walker of the last round has"
    elif config.sampler.moves_per_round % config.samples.every == 0:
        yield from _last_samples(run, last)


def _last_samples(run: RunReader, last: dict[str, NDArray[Any]]) -> Lines:
    """Compare the state with the last sample of each walker, where no move came after it."""
    g, round_ = run.geometry, run.rounds - 1
    x_vd = np.empty((g.n_rungs * g.n_walkers, g.n_sites), dtype=g.x_dtype)
    z_v = np.empty(len(x_vd), dtype=np.float32)
    seen_v = np.zeros(len(x_vd), dtype=bool)
    for k in range(g.n_rungs):
        one, newest = range(k, k + 1), slice(-g.n_walkers, None)
        v = run.slab("samples/walker", round_, one)[0, newest]
        if not np.all((v >= 0) & (v < len(x_vd))):
            return  # found by the check of walkers
        x_vd[v] = run.slab("samples/x", round_, one)[0, newest]
        z_v[v] = run.slab("samples/z", round_, one)[0, newest]
        seen_v[v] = True
    v_kw = last["state/walker"]
    differs_kw = (x_vd[v_kw] != last["state/x"]).any(axis=-1) | (z_v[v_kw] != last["state/z"])
    walkers = v_kw[differs_kw & seen_v[v_kw]]
    if walkers.size:
        yield "state", f"x or z are not those of the last samples of walkers {_some(walkers)}"


def _some(numbers: NDArray[Any]) -> str:
    shown = ", ".join(map(str, numbers[:10]))
    return shown if len(numbers) <= 10 else f"{shown}, ... ({len(numbers)} in all)"
