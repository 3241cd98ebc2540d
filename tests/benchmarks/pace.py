"""How busy GPUs are, by a simulation with counted costs: no GPU is seen (`scaling.py --simulate`).

What a move launches is counted for every span of sites on torch's "meta" device (`launches`), by
the program's own kernel, for models of 1 and of 2 layers; every count is linear in the layers,
which gives the model's. `launches.Chip` turns counts into seconds. Spans are drawn by the program's
own streams of random numbers. Then ranks make segments, wait for a neighbour at each exchange, and
for all at a round's end. The search of `look_ahead` in burn-in counts as whole texts, shared by all
ranks.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import bench_tools  # noqa: F401  (makes tests/helpers importable)
import numpy as np
import torch
from launches import CHIPS, Chip, Counter, Work, model_on_meta
from numpy.typing import NDArray

from omniinput_hpc import kernels, rng
from omniinput_hpc.config import Config
from omniinput_hpc.kernels import DeviceStream
from omniinput_hpc.kernels.independent import AutoregressiveSampler
from omniinput_hpc.kernels.look_ahead import search
from omniinput_hpc.kernels.parts.spans import Span, SpanSchedule
from omniinput_hpc.sampling import loop
from omniinput_hpc.sampling.burn_in import EQUILIBRATION_SHARE, SEARCH_SHARE
from omniinput_hpc.tempering import ladder
from omniinput_hpc.tempering.ensembles import Canonical
from omniinput_hpc.tempering.ladder import Block, Grid

FEW, MORE = 1, 2
"""Layers of the models that are counted."""
SHAPES = {
    "olmo": (32, 4096, 11008, 50304),
    "llama": (32, 4096, 11008, 32000),
    "olmo-1b": (16, 2048, 8192, 50304),
}
"""Layers, width, inner width and tokens; all are counted with OLMo's kind of layer."""


@dataclass(frozen=True)
class Pace:
    """What a simulation found.

    Attributes
    ----------
    busy : the share of the time that GPUs compute, the mean of all
    segment : seconds between two exchanges
    moves : of walkers, per second and GPU
    hours : of the whole run
    """

    busy: float
    segment: float
    moves: float
    hours: float


def counted(make: Any, n_layers: int) -> Work:
    """Return the work of a model of all its layers, `make(n)` being that of one of n layers."""
    few, more = make(FEW), make(MORE)
    times = (n_layers - FEW) / (MORE - FEW)
    return Work(*(a + times * (b - a) for a, b in zip(few.numbers(), more.numbers(), strict=True)))


class Costs:
    """What is counted of a batch of W walkers, each thing once."""

    def __init__(self, config: Config, shape: str, batch: int, chip: Chip) -> None:
        self._config, self._batch, self.chip = config, batch, chip
        self._n_layers, width, inner, tokens = SHAPES[shape]
        length = config.model.length  # type: ignore[union-attr]
        self._models = {n: model_on_meta(n, width, inner, tokens, length) for n in (FEW, MORE)}
        self._x = torch.zeros((batch, length), dtype=torch.int64, device="meta")
        self._z = torch.zeros(batch, device="meta")
        self._spans: dict[Span, Work] = {}
        self._kernels = {n: kernels.build(config.kernel, m, batch) for n, m in self._models.items()}
        self._ensemble = Canonical(float(length - 1))
        self._states: dict[int, Any] = {}
        self._suffix = config.kernel.part_names.index("suffix")
        first = Span(0, 1, 2)
        self.fill = counted(lambda n: self._moved(n, first), self._n_layers).minus(self.of(first))

    def of(self, span: Span) -> Work:
        """Return the work of a move."""
        if span not in self._spans:
            self._spans[span] = counted(lambda n: self._moved(n, span), self._n_layers)
        return self._spans[span]

    def _moved(self, n: int, span: Span) -> Work:
        """Move walkers of a model of n layers; the first time their cache is made, too."""
        kernel, counter = self._kernels[n], Counter(self.chip)
        kernel._schedule = _Given(span)
        counter.record(self._models[n].kv_cache(self._batch), warm=True)
        state = self._states.get(n) or kernel.start(self._x, self._z)
        with torch.no_grad(), counter:
            self._states[n], _ = kernel.step(state, self._ensemble, self._stream())
        return counter.work

    def draws(self) -> tuple[Work, int]:
        """Return the work of exact draws, and for how many segments they are."""
        ahead = [0]

        def work(n: int) -> Work:
            sampler = AutoregressiveSampler(
                self._models[n], self._batch, self._config.sampler.exchanges
            )
            sampler._all_drawn = lambda *_: True  # type: ignore[method-assign]
            counter, rows = Counter(self.chip), self._batch * sampler.n_ahead
            counter.record(self._models[n].draws.kv_cache(rows), warm=True)
            with torch.no_grad(), counter:
                sampler.draw(self._x, self._stream())
            ahead[0] = sampler.n_ahead
            return counter.work

        return counted(work, self._n_layers), ahead[0]

    def whole_text(self) -> Work:
        """Return the work of a move that redraws all sites but the first."""
        return self.of(Span(self._suffix, 1, self._x.shape[1]))

    def uniform(self) -> Work:
        """Return the work of a move at beta = 0: whole inputs are evaluated."""

        def work(n: int) -> Work:
            counter = Counter(self.chip)
            counter.record(self._models[n].kv_cache(self._batch), warm=True)
            with torch.no_grad(), counter:
                self._models[n].output(self._x)
            return counter.work

        return counted(work, self._n_layers)

    def _stream(self) -> DeviceStream:
        """Return random numbers that were copied already: a run copies them in blocks."""
        one, other = rng.generator(1, "moves"), rng.generator(1, "choices")
        stream = DeviceStream(one, torch.device("meta"), 1 << 20, other)
        stream.uniform(1)
        return stream


class _Given:
    """A schedule of one span."""

    def __init__(self, span: Span) -> None:
        self._span = span

    def draw(self, u: Any) -> Span:
        """Return it."""
        return self._span


class Segments:
    """How long a batch computes between two exchanges."""

    def __init__(self, config: Config, costs: Costs) -> None:
        self._config, self._costs = config, costs
        draws, self._ahead = costs.draws()
        self._draw, self._fill = draws.seconds, costs.fill.seconds
        self._uniform = costs.uniform().seconds
        length = config.model.length  # type: ignore[union-attr]
        self._schedule, self._m = SpanSchedule(config.kernel, length), length - 1  # type: ignore[arg-type]

    def seconds(self, block: Block, round_: int, exchange: int) -> float:
        """Return the seconds of a segment's moves."""
        beta = self._config.beta_k[block.k]
        shared = loop.streams(self._config.run.seed, block, round_, exchange)[1]
        spans = [self._schedule.draw(shared.random(3)) for _ in range(self._config.sampler.steps)]
        moves = [self._costs.of(span).seconds for span in spans]
        if beta == 0.0:
            moves[-1] = self._uniform
        elif beta == self._m:
            moves[-1] = self._draw if exchange % self._ahead == 0 else 0.0
        return self._fill + sum(moves)


def simulate(config: Config, costs: Costs, ranks: int, o: Any) -> Pace:
    """Let ranks run for some rounds, and return how it went."""
    s, n_rungs = config.sampler, len(config.beta_k)
    segments = Segments(config, costs)
    grid = Grid(n_rungs, s.blocks, ranks)
    held_r = [
        [Block(k, b, s.blocks) for k in grid.rungs(r) for b in grid.blocks(r)] for r in range(ranks)
    ]
    pauses = o.sync * np.array([len(held) for held in held_r])
    random, clock, busy = np.random.default_rng(1), np.zeros(ranks), 0.0
    for round_ in range(o.rounds):
        for exchange in range(s.exchanges):
            seconds = np.array(
                [sum(segments.seconds(one, round_, exchange) for one in held) for held in held_r]
            )
            seconds *= 1.0 + o.deviation * random.normal(size=ranks)
            busy += float(seconds.mean())
            clock = _exchanged(grid, clock + seconds + pauses, round_ * s.exchanges + exchange)
        clock[:] = clock.max()
    total = float(clock.max())
    searched = searched_texts(config) / ranks * costs.whole_text().seconds
    n_moves = o.rounds * s.moves_per_round * s.n_walkers * n_rungs / ranks
    all_rounds = config.run.rounds + config.run.burn_in
    return Pace(
        busy / total, total / (o.rounds * s.exchanges), n_moves / total,
        (all_rounds * total / o.rounds + searched) / 3600,
    )  # fmt: skip


def searched_texts(config: Config) -> float:
    """Return how many batches of whole texts the searches of burn-in evaluate, on all ranks."""
    if not config.kernel.learns_ahead:
        return 0.0
    learning = config.run.burn_in - config.run.burn_in // EQUILIBRATION_SHARE
    rounds = 2 ** int(np.log2(learning))  # of moves before the last search
    cold = np.count_nonzero(config.beta_k > config.model.length - 1)  # type: ignore[union-attr]
    share = SEARCH_SHARE * (search.HOT + search.COLD + search.BEGUN)
    return float(share * rounds * config.sampler.moves_per_round * cold * config.sampler.blocks)


def _exchanged(grid: Grid, clock: NDArray[np.float64], exchange: int) -> NDArray[np.float64]:
    """Return when ranks go on after an exchange: where a pair is held by two, both wait."""
    after = clock.copy()
    for rank in range(len(clock)):
        mine = grid.rungs(rank)
        for k in ladder.pairs_of(mine, grid.n_rungs, exchange):
            for other in (k, k + 1):
                if other not in mine:
                    after[rank] = max(after[rank], clock[grid.owner(other, rank)])
    return after


def print_simulation(config: Config, name: str, o: Any) -> list[Any]:
    """Print a row for each number of GPUs, and return them."""
    chip, batch = CHIPS[o.chip], config.sampler.block_walkers
    costs = Costs(config, o.shape, batch, chip)
    print(
        f"\nSimulated with counted costs of a model of the shape {o.shape} on {o.chip}s: "
        f"{o.rounds} rounds of {name}; {1e3 * o.sync:g} ms without the GPU a segment and batch, "
        f"deviation {o.deviation:.0%}\n{chip}\n"
        "| GPUs | walkers a batch | ms a segment | busy | walker-moves/s a GPU | hours "
        "| GPU-hours |\n| --- | --- | --- | --- | --- | --- | --- |"
    )
    rows = []
    for ranks in o.gpus:
        pace = simulate(config, costs, ranks, o)
        print(
            f"| {ranks} | {batch} | {1e3 * pace.segment:,.0f} | {pace.busy:.0%} | "
            f"{pace.moves:,.0f} | {pace.hours:.2f} | {ranks * pace.hours:.0f} |",
            flush=True,
        )
        rows.append({"input": name, "chip": o.chip, "ranks": ranks, "batch": batch, **vars(pace)})
    print_pieces(costs)
    return rows


def print_pieces(costs: Costs) -> None:
    """Print what single pieces cost."""
    several, n = costs.draws()
    pieces = {
        "move: one site in the middle": costs.of(Span(0, 12, 13)),
        "move: all sites": costs.of(Span(2, 0, 25)),
        "evaluation after an exchange": costs.fill,
        f"exact draws of {n} exchanges": several,
    }
    print("\n| piece | launches | kernels | GB | ms |\n| --- | --- | --- | --- | --- |")
    for name, work in pieces.items():
        print(
            f"| {name} | {work.launches:,.0f} | {work.kernels:,.0f} | {work.n_bytes / 1e9:,.1f} | "
            f"{1e3 * work.seconds:,.1f} |"
        )
