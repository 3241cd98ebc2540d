"""Anchors (rungs that are sampled directly), and the starting points of colder rungs."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property, partial
from typing import Any

import numpy as np
import torch

from omniinput_hpc.config import Config, KernelTable
from omniinput_hpc.errors import UserError
from omniinput_hpc.histogram import starting_parts
from omniinput_hpc.kernels import Kernel
from omniinput_hpc.kernels.independent import (
    AncestralSampler,
    AutoregressiveSampler,
    LawSampler,
    RowSums,
    UniformSampler,
    try_rows,
)
from omniinput_hpc.kernels.look_ahead.exploration import Explorer
from omniinput_hpc.kernels.parts.categorical import pick
from omniinput_hpc.kernels.parts.conditionals import begin_anew
from omniinput_hpc.kernels.parts.constrained import InputLaw
from omniinput_hpc.kernels.parts.device_rng import DeviceStream
from omniinput_hpc.models import Model, law_of, offers_of
from omniinput_hpc.models.batches import padded_batches
from omniinput_hpc.parallel.comm import World
from omniinput_hpc.tempering.ensembles import Canonical, Ensemble


def zero_inputs(n_walkers: int, n_sites: int, device: str) -> torch.Tensor:
    """Return inputs of value 0 at all sites, int64 [W, D]."""
    return torch.zeros((n_walkers, n_sites), dtype=torch.int64, device=device)


def rows_of(config: Config, model: Model, n_walkers: int, device: str) -> RowSums | None:
    """Return the sums of the model's conditional rows; None if unused, or if it has no rows.

    Raises a UserError if the rows do not fit into the device's memory.
    """
    ladder = config.ladder
    if ladder is None or not ladder.with_anchors or config.sampler.weighs_draws:
        return None  # these methods draw from normalized rows, whatever the model's rows sum to
    if config.law is not None or config.constrained:
        return None  # no rung of the ladder is the model's own distribution
    try:
        return try_rows(model, n_walkers, device)
    except torch.OutOfMemoryError:
        raise UserError(
            f"the conditional_logits of {n_walkers} inputs do not fit on {device}; set a smaller "
            "sampler.walkers, or ladder.anchors = false"
        ) from None


def agree(world: World, rows: RowSums | None) -> RowSums | None:
    """Return the extreme sums over all ranks, so that all ranks reach the same decision."""
    if rows is None:
        return None
    largest, less_whole = world.max(np.array([rows.largest, -rows.whole]))
    return RowSums(float(largest), -float(less_whole))


def missing(config: Config, rows: RowSums | None, m: float) -> str:
    """Return why the ladder has no anchor at beta = m; "" if none is missing.

    `m` is the model's own beta. Raises a UserError if an anchor is missing but the input file
    requires anchors.
    """
    ladder = config.ladder
    if ladder is None or rows is None or not rows.problem:
        return ""
    if not (config.canonical_k >= m).any():
        return ""
    if ladder.anchors:
        raise UserError(
            f"ladder.anchors = true: rungs of beta = m = {m:g} and above require draws from the "
            f"model, but {rows.problem}; set ladder.anchors = false, or leave it out"
        )
    return f"none at beta = m = {m:g}: {rows.problem}"


def uniform_every_move(options: KernelTable, model: Model, device: str) -> bool:
    """Whether a rung at beta = 0 is drawn uniformly at every move, not only before exchanges.

    A draw evaluates whole inputs. A kernel that evaluates only parts of inputs is faster, and on a
    GPU all rungs would wait for the draws; there the kernel makes all but the last move.
    """
    in_parts = options.evaluates_part and offers_of(model).kv_cache is not None
    return device == "cpu" or not in_parts


class Anchors:
    """Choose the exact sampler of each rung, if any.

    At beta = 0 every move is a fresh uniform draw, or a draw of the law; without `every_move` only
    the last move before every exchange is (see `uniform_every_move`). At beta = m, for models whose
    conditionals are log-probabilities, the last move before every exchange is a sequence drawn from
    the model.

    Parameters
    ----------
    like : int64 [W, D], a tensor with the shape and device of the walkers
    with_anchors : whether ``[ladder] anchors`` allows exact samplers
    rows : sums of the model's conditional rows; None if it has none, or if they are not used
    ancestral_beta_k : the betas of the rungs if every rung is drawn directly, else None
    n_segments : segments per round, each of which ends before an exchange

    A law of inputs replaces both: beta = 0 is drawn from it, and beta = m is not an anchor.
    """

    def __init__(
        self,
        model: Any,
        like: torch.Tensor,
        with_anchors: bool,
        rows: RowSums | None,
        ancestral_beta_k: list[float] | None,
        n_segments: int = 1,
        every_move: bool = True,
    ) -> None:
        self._model, self._like, self._every_move = model, like, every_move
        law: InputLaw | None = law_of(model)
        self._law = law
        self._repetitions, n_walkers = Repetitions(model, like), len(like)
        self._ancestral = self._model_itself = None
        self._uniform: UniformSampler | LawSampler | None = None
        self._m = float(model.n_sites - offers_of(model).predicted_from)
        if ancestral_beta_k is not None:
            self._ancestral = AncestralSampler(model, n_walkers, ancestral_beta_k)
        elif with_anchors and law is not None:
            self._uniform = LawSampler(model, n_walkers, law)
        elif with_anchors:
            self._uniform = UniformSampler(model, n_walkers)
            if rows is not None and not rows.problem:
                self._model_itself = AutoregressiveSampler(model, n_walkers, n_segments)

    @property
    def model_beta(self) -> float | None:
        """The beta of the model's own distribution; None if it cannot be sampled directly."""
        return self._m if self._model_itself is not None else None

    def first_inputs(self, random: np.random.Generator, n: int) -> torch.Tensor | None:
        """Return n draws of the law of inputs, int64 [n, D]; None without a law."""
        if self._law is None:
            return None
        u = random.random((n, self._like.shape[1]))
        return self._law.draw(torch.from_numpy(u).to(self._like.device))

    def cold_start(
        self,
        beta: float,
        random: np.random.Generator,
        lanes: range,
        n_walkers: int,
        between: Callable[[], None] = lambda: None,
    ) -> torch.Tensor | None:
        """Return starting inputs of a rung with beta > m, int64 [n, D]; None for other rungs.

        lanes : the n requested lanes, out of the W = `n_walkers` lanes of the rung
        between : called between batches of evaluations; may raise

        A third of the lanes start from texts drawn from the model, a third from repetitions, and a
        third from texts found by search, since phases of repetitions and of memorized passages set
        in near b = 1.1 to 1.2. If no walker crosses such a barrier, the thirds keep disagreeing,
        which reveals it (`estimators.errors.convergence`).
        """
        if self._model_itself is None or not beta > self._m:
            return None
        like = self._like
        stream = DeviceStream(random, like.device, like.numel())
        z = torch.zeros(len(like), device=like.device)
        drawn = self._model_itself.start(like, z)
        state, _ = self._model_itself.step(drawn, Canonical(self._m), stream)
        part_w = starting_parts(n_walkers, COLD_STARTS)
        here = torch.from_numpy(part_w[lanes.start : lanes.stop]).to(like.device)
        x = state.x[: len(lanes)].clone()
        repeated = self._repetitions.best(int((part_w == 1).sum()), between)
        before = int((part_w[: lanes.start] == 1).sum())
        x[here == 1] = repeated[before : before + int((here == 1).sum())]
        n_found = int((here == 2).sum())
        if n_found:
            between()
            x[here == 2] = found_texts(self._model, like, beta / self._m, n_found, stream)
        return x

    def of(self, ensemble: Ensemble) -> tuple[Kernel | None, bool]:
        """Return an ensemble's exact sampler, if any, and whether it makes every move."""
        if not isinstance(ensemble, Canonical):
            return None, False
        if self._ancestral is not None:
            return self._ancestral, True
        if ensemble.beta == 0.0 and self._uniform is not None:
            return self._uniform, self._every_move
        if ensemble.beta == self._m and self._model_itself is not None:
            return self._model_itself, False
        return None, False


COLD_STARTS = 3
"""Parts of the lanes with different starts: the model's own texts, repetitions, found texts."""


def found_texts(
    model: Any, like: torch.Tensor, b: float, n: int, stream: DeviceStream
) -> torch.Tensor:
    """Return n likely texts at exponent b that a search found, int64 [n, D].

    `kernels.look_ahead.exploration` finds them. Half were drawn token by token from p^b and are
    resampled with the weights target / proposal = prod p^b / prod (p^b / Z_t). The others
    are the most likely distinct texts that do not repeat themselves, that is, with as many
    different values as half their length or more.
    """
    offers = offers_of(model)
    begin = partial(begin_anew, offers)
    texts = Explorer(begin, like, model.n_values, offers.predicted_from, b, stream).texts()
    log_p_i, log_w_i = texts.log_p.sum(axis=1), texts.log_z.sum(axis=1)
    tempered = np.flatnonzero(texts.tempered)
    w = np.exp(log_w_i[tempered] - log_w_i[tempered].max())
    u = (float(stream.uniform(1)) + np.arange(n - n // 2)) / max(n - n // 2, 1)
    drawn = tempered[np.searchsorted(np.cumsum(w) / w.sum(), u).clip(max=len(w) - 1)]
    _, first = np.unique(texts.x, axis=0, return_index=True)
    different = np.array([len(np.unique(x)) for x in texts.x[first]])
    varied = first[different >= like.shape[1] / 2]
    best = varied if len(varied) else first
    best = best[np.argsort(-log_p_i[best], kind="stable")][: max(n // 2, 1)]
    chosen = np.concatenate([drawn, np.resize(best, n // 2)])
    return torch.from_numpy(texts.x[chosen]).to(like.device)


N_BEST_VALUES = 16
"""The best this many values are also tried in alternating pairs."""
MAX_REPEATED = 2048
"""The largest number of values whose repetition is evaluated, if cached prefixes can rank them."""
N_SCREENED = 2
"""The ranking uses a value's probability after this many occurrences of the same value."""


class Repetitions:
    """Sequences that repeat one value or alternate two, ranked by z.

    Evaluating every value, or the most promising ones of a large vocabulary, is slow. It is done
    once, at the first call of `best`, and the result is shared by all rungs.
    """

    def __init__(self, model: Any, like: torch.Tensor) -> None:
        self._model, self._like = model, like
        self._between: Callable[[], None] = lambda: None

    def best(self, n: int, between: Callable[[], None] = lambda: None) -> torch.Tensor:
        """Return the n sequences of lowest z, int64 [n, D]; `between` is called between batches."""
        self._between = between
        values, z_constant = self._constant
        alternating, z_alternating = self._alternating
        constant = values[:n, None].expand(-1, self._like.shape[1])
        candidates = torch.cat([constant, alternating])
        z = torch.cat([z_constant[:n], z_alternating])
        chosen = candidates[z.argsort(stable=True)[:n]]
        return chosen[torch.arange(n, device=chosen.device) % len(chosen)]

    @cached_property
    def _constant(self) -> tuple[torch.Tensor, torch.Tensor]:
        """Values sorted by the z of repeating them, int64 [n], and these z, float32 [n]."""
        values = self._repeatable()
        x = values[:, None].expand(-1, self._like.shape[1])  # [n, D], a view without new memory
        z, order = self._outputs(x).sort(stable=True)
        return values[order], z

    def _repeatable(self) -> torch.Tensor:
        """Return the values worth repeating, int64 [n].

        If there are more than `MAX_REPEATED` values and the model has cached prefixes, these are
        the values most likely to follow `N_SCREENED` copies of themselves. A CPU would need more
        than an hour to evaluate a whole input for each of 50,000 values.
        """
        values = torch.arange(self._model.n_values, device=self._like.device)
        n_sites, offers = self._like.shape[1], offers_of(self._model)
        after = N_SCREENED + offers.predicted_from - 1
        if len(values) <= MAX_REPEATED or offers.prefixes is None or after >= n_sites:
            return values
        log_p = []
        for batch, n in padded_batches(values[:, None], len(self._like)):
            self._between()
            prefixes = begin_anew(offers, batch.expand(-1, n_sites))
            for _ in range(after):
                prefixes.extend(batch[:, 0])
            log_p.append(pick(prefixes.row(), batch[:, 0])[:n])
        return torch.cat(log_p).topk(MAX_REPEATED).indices.sort().values

    @cached_property
    def _alternating(self) -> tuple[torch.Tensor, torch.Tensor]:
        """Alternating pairs of the best values, int64 [P, D], and their z, float32 [P]."""
        best = self._constant[0][:N_BEST_VALUES]
        pairs = torch.cartesian_prod(best, best)
        pairs = pairs[pairs[:, 0] != pairs[:, 1]]
        odd = torch.arange(self._like.shape[1], device=self._like.device) % 2
        x = pairs[:, odd]
        return x, self._outputs(x)

    def _outputs(self, x: torch.Tensor) -> torch.Tensor:
        """Return z of many inputs, float32, evaluated in batches of the run's shape."""
        z = []
        for batch, n in padded_batches(x, len(self._like)):
            self._between()
            z.append(self._model.output(batch)[:n])
        return torch.cat(z) if z else torch.zeros(0, device=self._like.device)
