"""Check that a run file is consistent: ``omniinput verify RUN.h5 [--rescore 1000]``.

Every committed round is read and compared with its checksums. Counters, moves and histograms,
swaps, walkers, samples and the state that a run resumes from must agree. Files of rescored samples
next to the run file are checked, too. With ``--rescore`` the model evaluates some of the recorded
samples again. Exit codes: 0 all agrees; 1 something is wrong, with one line for each finding; 2 not
a run file. The file of a live run can be verified, too.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, suppress
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from omniinput_hpc import models
from omniinput_hpc.cli import side_files
from omniinput_hpc.config import Config, input_file
from omniinput_hpc.errors import EXIT_COMPLETE, EXIT_FAILURE, UserError
from omniinput_hpc.histogram import bin_of
from omniinput_hpc.parallel.alone import Ranks
from omniinput_hpc.runfile import consistency
from omniinput_hpc.runfile.block_histograms import histograms, words_of
from omniinput_hpc.runfile.checked_datasets import BeingWritten, BrokenRun, OnDamage
from omniinput_hpc.runfile.reader import RunReader, open_run
from omniinput_hpc.runfile.records import Checkpoint, RecordedRound
from omniinput_hpc.tempering import ladder

LINES_PER_CHECK = 5
MAX_ATTEMPTS = 50


class Findings:
    """Findings: the first few lines of each check, and the number of further ones."""

    def __init__(self) -> None:
        self._lines: list[str] = []
        self._count: Counter[str] = Counter()

    def add(self, check: str, text: str) -> None:
        """Add a finding of a check."""
        self._count[check] += 1
        if self._count[check] <= LINES_PER_CHECK:
            self._lines.append(f"{check}: {text}")

    def extend(self, found: Iterable[tuple[str, str]], where: str = "") -> None:
        """Add pairs of a check's name and a finding; each text begins with `where`."""
        for check, text in found:
            self.add(check, where + text)

    def lines(self) -> list[str]:
        """Return all lines."""
        more = [
            f"{check}: and {n - LINES_PER_CHECK} more like these"
            for check, n in self._count.items()
            if n > LINES_PER_CHECK
        ]
        return self._lines + more


def run(world: Ranks, path: Path, n_rescored: int, assignments: Sequence[str] = ()) -> int:
    """Verify a run file on rank 0, print the findings, and return the exit code.

    The model evaluates `n_rescored` samples again; with 0 no model is needed. For this model,
    `assignments` override the stored input (``--set model.path=...``). Raises a UserError if the
    file is not a run file or the model cannot be built.
    """

    def verify() -> bool:
        return show(*verify_file(path, n_rescored, assignments), f"{path}:")

    return EXIT_COMPLETE if world.on_rank_0(verify) else EXIT_FAILURE


def show(notes: Sequence[str], findings: Sequence[str], head: str) -> bool:
    """Print notes, findings and the verdict; return whether nothing is wrong."""
    for line in [*notes, *(f"WRONG  {line}" for line in findings)]:
        print(line)
    verdict = f"{len(findings)} problem(s)" if findings else "all agrees"
    print(f"{head} {verdict}", flush=True)
    return not findings


def verify_file(
    path: Path,
    n_rescored: int = 0,
    assignments: Sequence[str] = (),
    heartbeat: Callable[[], object] = lambda: None,
) -> tuple[list[str], list[str]]:
    """Verify a run file; return notes and findings as lines; call `heartbeat` for each round."""
    findings = Findings()
    try:
        reader, last, damage = _open(path)
    except BrokenRun as error:
        return [], [f"layout: {error}"]
    with reader as run:
        notes, source = _summary(run), f"{path} (stored input)"
        try:
            config = input_file.parse(run.config_toml, source)
            _ = config.sampler.n_walkers  # raises if it is "auto", which no run file stores
        except UserError as error:
            return notes, [*(f"checksums: {words}" for words in damage), f"stored input: {error}"]
        checks: list[Callable[[], None]] = [
            lambda: side_files.check_checkpoint(run, notes, findings.add),
            lambda: _check_header(run, config, findings),
            lambda: _check_rounds(run, config, last, findings, heartbeat),
            lambda: side_files.check_rescored(run, notes, findings.add),
        ]
        if n_rescored and run.rounds:
            chosen = input_file.parse(run.config_toml, source, assignments)
            checks.append(lambda: notes.extend(_rescore(run, chosen, n_rescored, findings)))
        for check in checks:
            try:
                check()
            except (OSError, BrokenRun) as error:
                findings.add("reading", f"the file cannot be read to its end: {error}")
        findings.extend(("checksums", words) for words in damage)
    return notes, findings.lines()


def _open(path: Path) -> tuple[RunReader, Checkpoint | None, list[str]]:
    """Open a run file and read the state that a live run will soon overwrite, all of one round.

    Returns the reader, the state and the list of checksum errors, which grows while the file is
    read.
    """
    for _ in range(MAX_ATTEMPTS):
        damage: list[str] = []
        with ExitStack() as undo, suppress(BeingWritten):
            # Impossible values are ignored here: the checks report them in the same words.
            run = undo.enter_context(open_run(path, _add_to(damage), lambda *_: None))
            last = run.stored()
            with open_run(path, lambda *_: None, tried=True) as again:
                if again.last_round == run.last_round:
                    undo.pop_all()  # stays open
                    return run, last, damage
    raise UserError(f"{path} is being written too fast to be verified; wait until the run ends")


def _add_to(damage: list[str]) -> OnDamage:
    return lambda _, words: damage.append(words)


def _summary(run: RunReader) -> list[str]:
    g = run.geometry
    lines = [
        f"{run.path}: {run.rounds} of {g.rounds} rounds and {run.burn_in_committed} of burn-in "
        f"committed; {g.n_rungs} rungs of {g.n_walkers} walkers, "
        f"{run.rounds * g.n_rungs * g.samples_per_round:,} samples"
    ]
    if not run.is_settled:
        lines.append("a counter lags behind its checksum, as after a kill; a resume corrects it")
    if not g.checksums:
        lines.append(
            "it has no checksums (an older version made it): changed bits are found only if "
            "numbers contradict each other"
        )
    return lines


def _check_header(run: RunReader, config: Config, findings: Findings) -> None:
    """Compare layout, counters, ladder and bins with the stored input, and with checksums."""
    g = run.geometry
    run.check_header()
    for name, stored, expected in (
        ("rounds", g.rounds, config.run.rounds),
        ("rungs", g.n_rungs, len(config.beta_k)),
        ("walkers", g.n_walkers, config.sampler.walkers),
        ("bins", g.n_bins, len(config.bins.edges) - 1),
        ("samples per rung and round", g.samples_per_round, config.samples_per_round),
    ):
        if stored != expected:
            findings.add("layout", f"{stored} {name}, but the stored input says {expected}")
    flat_k = np.isnan(config.beta_k)  # flat-histogram rungs
    tuned = config.ladder is not None and config.ladder.tune
    same = np.array_equal(run.beta_k, config.beta_k, equal_nan=True)
    if not (np.array_equal(np.isnan(run.beta_k), flat_k) if tuned else same):
        findings.add("layout", "ladder/beta differs from the ladder of the stored input")
    if not np.array_equal(run.edges, config.bins.edges):
        findings.add("layout", "bins/edges differ from the bins of the stored input")
    burn_in = config.run.burn_in
    if run.burn_in_committed > burn_in or (run.rounds and run.burn_in_committed != burn_in):
        findings.add(
            "counters",
            f"{run.burn_in_committed} of {burn_in} burn-in rounds committed before {run.rounds} "
            "counted ones",
        )


def _check_rounds(
    run: RunReader,
    config: Config,
    last: Checkpoint | None,
    findings: Findings,
    heartbeat: Callable[[], object],
) -> None:
    """Check every committed round, then the sums over them and the state to resume from."""
    g = run.geometry
    total_kb = np.zeros((g.n_rungs, g.n_bins), dtype=np.int64)
    walker_kw = None
    for rounds, counts_kb in histograms(run):
        total_kb += counts_kb
        seen_kb = np.zeros((g.n_rungs, g.n_bins + 2), dtype=np.int64)
        for number in rounds:
            round_ = run.round(number)
            run.check_round(number)
            found: Lines = chain(
                _moves(run, config, round_),
                _swaps(run, config, round_),
                _walkers(run, config, round_, walker_kw),
                _samples(run, round_, seen_kb),
            )
            findings.extend(found, f"round {number}, ")
            walker_kw = round_.walker_kw
            heartbeat()
        found = _histogram(run, config, rounds, counts_kb, seen_kb)
        findings.extend(found, f"{words_of(rounds)}, ")
    if last is not None:
        if run.rounds:
            findings.extend(_cumulative(run, total_kb, last))
        findings.extend(_state(run, config, walker_kw, last))


Lines = Iterator[tuple[str, str]]
"""Pairs of a check's name and a finding."""


def _stacked(state: Checkpoint, name: str) -> NDArray[Any]:
    """Return a field of the states of all rungs, [K, ...]."""
    return np.stack([getattr(rung, name) for rung in state.rungs])


def _histogram(
    run: RunReader,
    config: Config,
    rounds: range,
    counts_kb: NDArray[np.int64],
    seen_kb: NDArray[np.int64],
) -> Lines:
    """Check the histogram of some rounds, [K, B], also against their samples (see `_samples`)."""
    moves = len(rounds) * config.sampler.moves_per_round * run.walkers
    outside_k2 = np.asarray(sum(run.round(n).outside_k2.astype(np.int64) for n in rounds))
    for k, words in consistency.counted(counts_kb, outside_k2, moves):
        yield "histogram", f"rung {k}: {words}"
    counted_kb = np.concatenate([outside_k2[:, :1], counts_kb, outside_k2[:, 1:]], axis=1)
    for k, n_uncounted in enumerate(np.maximum(seen_kb - counted_kb, 0).sum(axis=1)):
        if n_uncounted:
            yield "samples", f"rung {k}: {n_uncounted} outputs that the histogram did not count"


def _moves(run: RunReader, config: Config, round_: RecordedRound) -> Lines:
    moves = config.sampler.moves_per_round * run.walkers
    attempted_kn, accepted_kn = round_.attempted_kn, round_.accepted_kn
    attempted_k = attempted_kn.sum(axis=1)
    for k in np.flatnonzero(attempted_k != moves):
        yield "moves", f"rung {k}: {attempted_k[k]:,} moves attempted, not {moves:,}"
    for rung, words in consistency.accepted(attempted_kn, accepted_kn):
        yield "moves", f"rung {rung}: {words} moves"


def _swaps(run: RunReader, config: Config, round_: RecordedRound) -> Lines:
    n, k = config.sampler.exchanges, run.geometry.n_rungs
    if not config.sampler.swaps:
        n = 0
    first = (round_.number + config.run.burn_in) * n
    due_k = np.zeros(k - 1, dtype=np.int64)
    for parity in range(2):
        pairs = ladder.pairs(k, parity)
        n_due = (first + n - parity + 1) // 2 - (first - parity + 1) // 2
        due_k[pairs.start : pairs.stop : pairs.step] = n_due * run.walkers
    attempted_k, accepted_k = round_.swaps_attempted_k, round_.swaps_accepted_k
    for i in np.flatnonzero(attempted_k != due_k):
        yield "swaps", f"rungs {i} and {i + 1}: {attempted_k[i]} attempted, not {due_k[i]}"
    for rung, words in consistency.accepted(attempted_k, accepted_k):
        yield "swaps", f"rungs {rung} and {rung + 1}: {words}"
    trips_v = round_.round_trips_v
    for walker in np.flatnonzero((trips_v < 0) | (trips_v > n)):
        yield "round trips", f"walker {walker}: {trips_v[walker]} in {n} exchanges"


def misplaced_lanes(walker_kw: NDArray[np.int32]) -> NDArray[np.int64]:
    """Return the lanes that do not hold each of their walkers once; walkers are int32 [K, W]."""
    k, w = walker_kw.shape
    expected_kw = np.arange(k)[:, None] * w + np.arange(w)
    return np.flatnonzero((np.sort(walker_kw, axis=0) != expected_kw).any(axis=0))


def _walkers(
    run: RunReader, config: Config, round_: RecordedRound, before_kw: NDArray[np.int32] | None
) -> Lines:
    """Check which walkers the lanes hold at each sample; `before_kw` is from the round before."""
    g = run.geometry
    lanes = misplaced_lanes(round_.walker_kw)
    if lanes.size:
        yield "walkers", f"exchange/walker: walkers lost or doubled in lanes {_some(lanes)}"
    walker_ktw = round_.samples_walker.reshape(g.n_rungs, -1, g.n_walkers)
    for t in range(walker_ktw.shape[1]):
        lanes = misplaced_lanes(walker_ktw[:, t])
        if lanes.size:
            yield "walkers", f"samples/walker, sample {t}: lost or doubled in lanes {_some(lanes)}"
            return
    in_first_segment = config.sampler.steps // config.samples.every
    if before_kw is not None and np.any(walker_ktw[:, :in_first_segment] != before_kw[:, None]):
        yield "walkers", "samples/walker: not the walkers that the previous round left there"


def _samples(run: RunReader, round_: RecordedRound, seen_kb: NDArray[np.int64]) -> Lines:
    """Check the values and the outputs of the samples, rung by rung.

    Counts the outputs in `seen_kb`, int64 [K, B + 2]: below the bins, in each bin, above the bins.
    """
    g, z_ks = run.geometry, round_.samples_z
    for k in range(g.n_rungs):
        x_sd = run.round(round_.number, range(k, k + 1)).samples_x[0]
        for words in consistency.inputs(x_sd, run.space):
            yield "samples", f"rung {k}: {words}"
        for words in consistency.outputs(z_ks[k]):
            yield "samples", f"rung {k}: {words}"
        if not np.isfinite(z_ks[k]).all():
            continue
        bin_s = bin_of(z_ks[k].astype(np.float64), run.edges)
        seen_kb[k] += np.bincount(bin_s + 1, minlength=g.n_bins + 2)


def _cumulative(run: RunReader, total_kb: NDArray[np.int64], last: Checkpoint) -> Lines:
    lane_kb = _stacked(last, "lane_counts_gb").sum(axis=1)
    for k in np.flatnonzero((lane_kb != total_kb).any(axis=1)):
        yield (
            "cumulative histogram",
            f"rung {k}: histogram/lane_counts hold {lane_kb[k].sum():,} counts, the rounds "
            f"{total_kb[k].sum():,} (or as many in other bins)",
        )
    for rung, words in consistency.sums_of_z(_stacked(last, "z_sum_b"), total_kb, run.edges):
        yield "sums of z", f"rung {rung}: histogram/z_sum: {words}"


def _state(
    run: RunReader, config: Config, walker_kw: NDArray[np.int32] | None, state: Checkpoint
) -> Lines:
    """Check the state that a run resumes from; `walker_kw` is of the last counted round, if any."""
    x_kwd, z_kw = _stacked(state, "x"), _stacked(state, "z")
    state_walker_kw = _stacked(state, "walker_w")
    for words in (*consistency.inputs(x_kwd, run.space), *consistency.outputs(z_kw)):
        yield "state", words
    headings = [words for rung in state.rungs for words in consistency.headings(rung.heading_w)]
    for words in (*consistency.directions(_stacked(state, "direction_w")), *headings):
        yield "state", words
    lanes = misplaced_lanes(state_walker_kw)
    if lanes.size:
        yield "state", f"walkers lost or doubled in lanes {_some(lanes)}"
        return
    if walker_kw is None:
        return
    if not np.array_equal(state_walker_kw, walker_kw):
        yield "state", "state/walker differs from exchange/walker of the last round"
    elif config.sampler.moves_per_round % config.samples.every == 0:
        yield from _last_samples(run, walker_kw, x_kwd, z_kw)


def _last_samples(
    run: RunReader, v_kw: NDArray[np.int32], x_kwd: NDArray[Any], z_kw: NDArray[np.float32]
) -> Lines:
    """Compare the state of each walker with its last sample, after which it did not move."""
    g, newest = run.geometry, slice(-run.geometry.n_walkers, None)
    x_vd = np.empty((g.n_rungs * g.n_walkers, g.n_sites), dtype=g.x_dtype)
    z_v = np.empty(len(x_vd), dtype=np.float32)
    seen_v = np.zeros(len(x_vd), dtype=bool)
    for k in range(g.n_rungs):
        rung = run.round(run.rounds - 1, range(k, k + 1))
        v = rung.samples_walker[0, newest]
        if not np.all((v >= 0) & (v < len(x_vd))):
            return  # `_walkers` has reported it
        x_vd[v] = rung.samples_x[0, newest]
        z_v[v] = rung.samples_z[0, newest]
        seen_v[v] = True
    differs_kw = (x_vd[v_kw] != x_kwd).any(axis=-1) | (z_v[v_kw] != z_kw)
    walkers = v_kw[differs_kw & seen_v[v_kw]]
    if walkers.size:
        yield "state", f"x or z differ from the last samples of walkers {_some(walkers)}"


def _some(numbers: NDArray[Any]) -> str:
    shown = ", ".join(map(str, numbers[:10]))
    return shown if len(numbers) <= 10 else f"{shown}, ... ({len(numbers)} in all)"


def _rescore(run: RunReader, config: Config, n: int, findings: Findings) -> list[str]:
    """Evaluate n samples, spread over rounds and rungs, and compare z; return notes as lines."""
    from omniinput_hpc.models import device as devices  # imports torch
    from omniinput_hpc.models.batches import evaluate
    from omniinput_hpc.models.checked import try_out
    from omniinput_hpc.sampling.anchors import zero_inputs

    about = models.preflight(config)
    if about["fingerprint"] != run.fingerprint:
        findings.add("model", "its files or options have changed since the run")
    # "auto" would refuse a GPU that torch does not see; a check on the CPU is better than none
    wish = "cpu" if devices.unseen_gpu() else "auto"
    device = devices.choose(wish, 0, config.run.threads, config.run.precision)
    model = models.build(config, device, about.get("folder"))
    here, there = (model.n_sites, model.n_values), (run.n_sites, run.n_values)
    if here != there or not models.space_of(model).same_as(run.space):
        words = f"{here[0]} sites of {here[1]} values; the run's model has {there[0]} of {there[1]}"
        findings.add("model", words if here != there else f"{words}, but other tokens")
        return []
    batch = max(run.walkers // config.sampler.blocks, 1)
    try_out(model, zero_inputs(batch, run.n_sites, device), f"the model ({config.model.kind})")
    largest, share, n_other_bin, n_done = 0.0, 0.0, 0, 0
    for (number, k), samples in choose_samples(run, n).items():
        round_ = run.round(number, range(k, k + 1))
        x_nd = run.space.to_values(round_.samples_x[0, samples].astype(np.int64))
        if x_nd.min() < 0 or x_nd.max() >= run.n_values:  # `_samples` has reported it
            continue
        stored_n = round_.samples_z[0, samples].astype(np.float64)
        z_n = evaluate(model, x_nd, batch, device).astype(np.float64)
        error_n = np.abs(z_n - stored_n)
        allowed_n = models.closeness(config, stored_n, model)
        for i in np.flatnonzero(~(error_n <= allowed_n)):
            findings.add(
                "rescored",
                f"round {number}, rung {k}, sample {samples[i]}: stored z = {stored_n[i]:.7g}, "
                f"the model gives {z_n[i]:.7g}",
            )
        largest = max(largest, float(error_n.max()))
        share = max(share, float((error_n / allowed_n).max()))
        n_other_bin += int(np.sum(bin_of(z_n, run.edges) != bin_of(stored_n, run.edges)))
        n_done += len(samples)
    return [
        f"rescored {n_done:,} samples on {device}: largest difference {largest:.2g} ({share:.2g} "
        f"times what is allowed), {n_other_bin} in a different bin than before"
    ]


def choose_samples(run: RunReader, n: int) -> dict[tuple[int, int], NDArray[np.int64]]:
    """Return samples to rescore by (round, rung): a random one (fixed seed) from each n-th part."""
    g = run.geometry
    total = run.rounds * g.n_rungs * g.samples_per_round
    n = min(n, total)
    edge = np.array([i * total // n for i in range(n + 1)], dtype=np.int64)
    flat = np.random.default_rng(1).integers(edge[:-1], edge[1:])
    part, sample = np.divmod(flat, g.samples_per_round)
    starts = np.flatnonzero(np.diff(part, prepend=-1))
    groups = zip(part[starts].tolist(), np.split(sample, starts[1:]), strict=True)
    return {divmod(p, g.n_rungs): samples for p, samples in groups}
