"""``[sampler]``, ``[ladder]``, ``[wang_landau]``: the method, the length of a round, the rungs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import pairwise
from typing import Annotated, Any, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, field_validator, model_validator

from omniinput_hpc.config.table import Finite, NotNegative, Positive, Range, Table, WholePositive
from omniinput_hpc.errors import UserError
from omniinput_hpc.histogram import MAX_GROUPS

ROUNDING = 1e-12
"""Distance from a whole number, relative to the largest beta, that counts as rounding."""
MAX_RUNGS = 1 << 14
"""Largest number of betas, and of windows."""
MAX_WALKERS = 1 << 24
MAX_SHOWN = 8
"""Largest number of betas in a message."""


class Sampler(Table):
    """``[sampler]``: the method, the walkers per rung, and the length of a round."""

    method: Literal["parallel-tempering", "wang-landau", "ancestral", "annealed"] = Field(
        "parallel-tempering", description="See [methods.md](methods.md)."
    )
    walkers: int | Literal["auto"] = Field(
        description='Walkers per rung. `"auto"` (per block): 16, doubled up to 4,096 while '
        "every rank makes 10 % more moves per second, in at most 80 % of the free memory and five "
        "minutes per round. A run takes the number that `--check` found (`RUN.check.json`) for the "
        "same input, model and devices."
    )
    blocks: WholePositive = Field(
        1,
        description="Equal blocks of each rung's walkers, for [more ranks than "
        "rungs](running.md#more-ranks-than-rungs). It divides `walkers`.",
    )
    steps: WholePositive = Field(
        description="Moves of every walker between two exchanges; with `annealed`, at each beta."
    )
    exchanges: WholePositive = Field(
        description="Exchanges per round; with `annealed`, new populations per round and group "
        "of walkers."
    )

    @field_validator("walkers", mode="before")
    @classmethod
    def _whole_or_auto(cls, value: Any) -> Any:
        whole = isinstance(value, int) and not isinstance(value, bool)
        if value != "auto" and not (whole and value >= 1):
            raise ValueError(f'expected a whole number of at least 1, or "auto", found {value!r}')
        if whole and value > MAX_WALKERS:
            raise ValueError(f"expected at most {MAX_WALKERS:,} walkers, found {value:,}")
        return value

    @model_validator(mode="after")
    def _cut_equally(self) -> Sampler:
        if self.walkers != "auto" and self.walkers % self.blocks:
            raise ValueError(
                f"blocks = {self.blocks} does not divide walkers = {self.walkers}: the walkers of "
                "each rung are split into equal blocks"
            )
        return self

    @property
    def swaps(self) -> bool:
        """Whether neighbouring rungs exchange walkers."""
        return self.method in ("parallel-tempering", "wang-landau")

    @property
    def weighs_draws(self) -> bool:
        """Whether samples are draws with their own weights, not states of a rung's chain."""
        return self.method in ("ancestral", "annealed")

    @property
    def whole_ladders(self) -> bool:
        """Whether a rank needs all rungs of its walkers."""
        return self.method == "annealed"

    @property
    def block_walkers(self) -> int:
        """Walkers per block, evaluated as one batch: W / blocks."""
        return self.n_walkers // self.blocks

    @property
    def n_walkers(self) -> int:
        """W; raises a `UserError` if it is "auto" and not resolved yet."""
        if self.walkers == "auto":
            raise UserError(
                'sampler.walkers = "auto" is not resolved yet; a run chooses the number'
            )
        return self.walkers

    @property
    def moves_per_round(self) -> int:
        """Kernel moves per walker and round."""
        return self.steps * self.exchanges


class Ladder(Table):
    """``[ladder]``: the betas, listed, or spaced between two ends."""

    betas: Annotated[list[Finite], Field(min_length=1, max_length=MAX_RUNGS)] | None = Field(
        None,
        description="Inverse temperatures, ascending, in units of 1/z. beta > 0 prefers low "
        "outputs, beta < 0 high ones; 0.0 makes the density absolute.",
    )
    lowest: Finite | None = Field(
        None,
        description="Lowest beta of a spaced ladder. `lowest`, `highest`, `rungs` and `spacing` "
        "replace `betas`.",
    )
    highest: Finite | None = Field(None, description="Its highest beta.")
    rungs: Annotated[int, Field(ge=2, le=MAX_RUNGS)] | None = Field(
        None, description="Its number of betas."
    )
    spacing: Literal["linear", "geometric"] | None = Field(
        None, description="Equal differences, or equal ratios."
    )
    first: Positive | None = Field(
        None,
        description="Smallest positive beta, if `spacing` is geometric and `lowest` is 0.",
    )
    anchors: bool | None = Field(
        None,
        description="Draw the rung at beta = 0 uniformly at every move (before every exchange, "
        "if whole inputs take a GPU longer than moves), and the rung at beta = m from the model "
        "before every exchange. If the model's conditional weights are not probabilities, `true` "
        "is refused, and by default that rung is not drawn. Default: if possible; `false`: the "
        "kernel samples both rungs.",
    )
    tune: bool = Field(
        False,
        description="Burn-in moves the inner betas (never 0 or m) until neighbours reject "
        "equally often, and kappa and z0 of Gaussian rungs; kappa grows if z "
        "spreads over two phases.",
    )
    kappa: list[NotNegative] | None = Field(
        None,
        description="[Gaussian rungs](methods.md#parallel-tempering): one entry per rung.",
    )
    z0: list[Finite] | None = Field(None, description="Their centres, likewise.")
    lambdas: list[Finite] | None = Field(
        None,
        description="A [second direction](choosing-betas-and-bins.md#a-second-direction): one "
        "entry per rung; betas need not ascend.",
    )
    observable: str | None = Field(
        None, description="Its y: the name of one of the [[observables]]."
    )

    @model_validator(mode="after")
    def _one_way_to_say_it(self) -> Ladder:
        spaced = {k: getattr(self, k) for k in ("lowest", "highest", "rungs", "spacing")}
        given = [key for key, value in spaced.items() if value is not None]
        if self.betas is not None:
            extra = given + (["first"] if self.first is not None else [])
            if extra:
                raise ValueError(f"give either betas or {', '.join(extra)}, not both")
        elif len(given) < len(spaced):
            missing = [key for key in spaced if key not in given]
            raise ValueError(
                f"give betas, or all of {', '.join(spaced)}: missing {', '.join(missing)}"
            )
        beta_k = self._spaced()
        self._check_gaussian(len(beta_k))
        self._check_second_direction(len(beta_k))
        if self.ascends and not np.all(np.diff(beta_k) > 0):
            raise ValueError(
                "expected betas in strictly ascending order, found "
                + ", ".join(f"{beta:g}" for beta in beta_k[:MAX_SHOWN])
                + (", ..." if len(beta_k) > MAX_SHOWN else "")
            )
        return self

    def _check_gaussian(self, n_rungs: int) -> None:
        for name, given in (("kappa", self.kappa), ("z0", self.z0)):
            if (given is None) != (self.kappa is None and self.z0 is None):
                raise ValueError("a Gaussian ensemble requires both kappa and z0, a list each")
            if given is not None and len(given) != n_rungs:
                raise ValueError(f"{name} has {len(given)} entries for {n_rungs} rungs")

    def _check_second_direction(self, n_rungs: int) -> None:
        if (self.lambdas is None) != (self.observable is None):
            raise ValueError("a second direction requires both lambdas, a list, and observable")
        if self.lambdas is None:
            return
        if len(self.lambdas) != n_rungs:
            raise ValueError(f"lambdas has {len(self.lambdas)} entries for {n_rungs} rungs")
        tilted_k = self.lambda_k != 0.0
        if tilted_k[0] or not tilted_k[-1] or not (np.diff(tilted_k.astype(int)) >= 0).all():
            raise ValueError(
                "lambdas: expected rungs of lambda = 0 first, then those of other lambdas"
            )
        if self.tune or self.kappa is not None:
            other = "tune" if self.tune else "kappa"
            raise ValueError(f"lambdas and {other} exclude each other")
        points = list(zip(self._spaced().tolist(), self.lambdas, strict=True))
        if len(set(points)) < n_rungs:
            raise ValueError("two rungs have the same beta and lambda")

    def _spaced(self) -> NDArray[np.float64]:
        if self.betas is not None:
            return np.array(self.betas, dtype=np.float64)
        assert self.lowest is not None and self.highest is not None and self.rungs is not None
        if self.lowest >= self.highest:
            raise ValueError(f"lowest = {self.lowest:g} must be below highest = {self.highest:g}")
        if self.spacing == "linear":
            if self.first is not None:
                raise ValueError('first belongs to spacing = "geometric"')
            return np.linspace(self.lowest, self.highest, self.rungs)
        if self.lowest < 0:
            raise ValueError("geometric spacing requires lowest >= 0; list the betas instead")
        if self.lowest > 0:
            if self.first is not None:
                raise ValueError("first is for lowest = 0 only")
            return np.geomspace(self.lowest, self.highest, self.rungs)
        if self.first is None or self.first >= self.highest or self.rungs < 3:
            raise ValueError(
                "geometric spacing from 0 requires at least 3 rungs and first, the smallest "
                "positive beta, below highest"
            )
        return np.concatenate([[0.0], np.geomspace(self.first, self.highest, self.rungs - 1)])

    @property
    def with_anchors(self) -> bool:
        """Whether rungs are sampled directly if that is possible."""
        return self.anchors is not False

    @property
    def beta_k(self) -> NDArray[np.float64]:
        """The betas, float64 [K]; see `without_rounding`."""
        return without_rounding(self._spaced())

    @property
    def ascends(self) -> bool:
        """Whether betas must ascend."""
        return self.kappa is None and self.lambdas is None

    @property
    def n_plain(self) -> int:
        """Number of rungs of lambda = 0, which come first."""
        return int((self.lambda_k == 0.0).sum())

    @property
    def lambda_k(self) -> NDArray[np.float64]:
        """The lambdas, float64 [K]; 0 without a second direction."""
        return np.array(self.lambdas or np.zeros(len(self.beta_k)), dtype=np.float64)


def without_rounding(beta_k: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return betas, float64 [K], with those within rounding of a whole number replaced by it.

    The density is absolute, and a rung can be sampled directly, only if beta is exactly 0 or
    exactly m, a number of tokens. Both are whole, but spacing by a rule can give -2.2e-16 instead.
    """
    gaps = np.diff(beta_k)
    gap = gaps[gaps > 0].min(initial=np.inf)  # betas that are close on purpose do not change
    whole_k = np.rint(beta_k) + 0.0  # no -0.0
    near_k = np.abs(beta_k - whole_k) <= min(ROUNDING * np.abs(beta_k).max(), 1e-6 * gap)
    return np.where(near_k & (beta_k != whole_k), whole_k, beta_k)


def drawn_samples(sampler: Sampler, ladder: Ladder | None, every: int) -> NDArray[np.int64]:
    """Return which of a lane's samples of a round are surely drawn directly at beta = 0.

    They are those of the last moves before exchanges (see `sampling.anchors`).
    """
    if ladder is None or not ladder.with_anchors or sampler.method == "annealed":
        return np.zeros(0, dtype=np.int64)
    move = every * np.arange(1, sampler.moves_per_round // every + 1)
    return np.flatnonzero(move % sampler.steps == 0)


def check_second_direction(
    ladder: Ladder, method: str, kernels: Iterable[str], observables: Mapping[str, str]
) -> None:
    """Check what ``ladder.lambdas`` depends on besides the ladder; a ValueError says what to do."""
    if ladder.lambdas is None:
        return
    if method != "parallel-tempering":
        raise ValueError('ladder.lambdas is for sampler.method = "parallel-tempering"')
    if str(ladder.observable) not in observables:
        raise ValueError(
            f'ladder.observable = "{ladder.observable}" is not the name of one of [[observables]]'
        )
    other = [name for name in kernels if name not in ("metropolis", "from-law")]
    if other:
        raise ValueError(
            f'kernel.name = "{other[0]}" cannot weigh inputs by an observable; with ladder.lambdas '
            'choose "metropolis" or "from-law"'
        )


def check_ancestral(ladder: Ladder | None, every: int) -> None:
    """Check the keys on which ``method = "ancestral"`` depends; a ValueError names a wrong one."""
    if every != 1:
        raise ValueError(
            f'samples.every = {every}: sampler.method = "ancestral" records every draw, since each '
            "carries its probability; set samples.every = 1"
        )
    if ladder is not None and ladder.kappa is not None:
        raise ValueError(
            'ladder.kappa has no effect with sampler.method = "ancestral"; leave it out'
        )


def check_annealed(sampler: Sampler, ladder: Ladder | None, every: int) -> None:
    """Check the keys on which ``method = "annealed"`` depends; `every` is ``samples.every``.

    Raises a ValueError if the ladder has one rung or Gaussian rungs, if not every move is recorded,
    if the populations would differ in size, or if blocks would cut them.
    """
    if ladder is not None and len(ladder.beta_k) < 2:
        raise ValueError(
            'ladder: sampler.method = "annealed" carries populations from the lowest beta to '
            "higher ones; give at least two"
        )
    if ladder is not None and ladder.kappa is not None:
        raise ValueError(
            'ladder.kappa has no effect with sampler.method = "annealed"; leave it out'
        )
    if every != 1:
        raise ValueError(
            f'samples.every = {every}: sampler.method = "annealed" records every move, since each '
            "carries a weight; set samples.every = 1"
        )
    walkers = MAX_GROUPS * sampler.blocks if sampler.walkers == "auto" else sampler.walkers
    populations = min(MAX_GROUPS, walkers)
    if walkers % populations:
        raise ValueError(
            f"sampler.walkers = {walkers} cannot be split into {populations} equal populations, "
            f'as sampler.method = "annealed" requires; use a multiple of {MAX_GROUPS}'
        )
    if populations % sampler.blocks:
        raise ValueError(
            f"sampler.blocks = {sampler.blocks} splits populations of walkers, which "
            f'sampler.method = "annealed" keeps whole; use a divisor of {populations}'
        )


Share = Annotated[float, Field(gt=0, lt=1)]


class WangLandau(Table):
    """``[wang_landau]``: how burn-in learns S(z), with one rung per window of z."""

    flatness: Share = Field(
        0.8, description="ln f is halved when the rarest bin has this share of the mean count."
    )
    ln_f_first: float = Field(
        1.0,
        gt=0,
        le=10,
        description="First increment of S; at most bins / (10 walkers).",
    )
    ln_f_last: float = Field(
        1e-4, gt=0, le=1, description="Last increment, at which learning ends."
    )
    schedule: Literal["1/t", "halving"] = Field(
        "1/t",
        description='How the increment shrinks. `"1/t"`: by halving, ignoring the rarest 5 % of '
        "the bins, then as bins / moves.",
    )
    windows: (
        Annotated[list[Range], Field(max_length=MAX_RUNGS)]
        | Annotated[int, Field(ge=1, le=MAX_RUNGS)]
    ) = Field(
        1,
        description="Ranges `[[low, high], ...]` of z, one rung each, or their number; "
        "neighbours must overlap.",
    )
    overlap: Share = Field(
        0.5,
        description="Share of a window that its neighbour covers, if `windows` is a number.",
    )
    proposal: Literal["slope", "range", "directional"] = Field(
        "slope",
        description="Beta of gradient kernels: the slope dS/dz, or drawn from `proposal_beta` "
        'in a way of the papers, `"range"` or [`"directional"`](methods.md#wang-landau).',
    )
    proposal_beta: Range | None = Field(None, description="`[low, high]`, the range of beta.")
    direction: Literal["redrawn", "kept"] = Field(
        "redrawn",
        description='For `"directional"`: how long a walker keeps its direction.',
    )

    @property
    def keeps_direction(self) -> bool:
        """Whether each walker keeps its own direction between exchanges."""
        return self.direction == "kept"

    @model_validator(mode="after")
    def _fits(self) -> WangLandau:
        if self.ln_f_last > self.ln_f_first:
            raise ValueError(
                f"ln_f_last = {self.ln_f_last:g} is above ln_f_first = {self.ln_f_first:g}"
            )
        if (self.proposal == "slope") != (self.proposal_beta is None):
            raise ValueError(
                'proposal_beta = [low, high] belongs to proposal = "range" and "directional", '
                "which require it"
            )
        if self.proposal_beta is not None and self.proposal_beta[0] >= self.proposal_beta[1]:
            raise ValueError("proposal_beta = [low, high]: low must be below high")
        if self.keeps_direction and self.proposal != "directional":
            raise ValueError('direction = "kept" belongs to proposal = "directional"')
        if isinstance(self.windows, list):
            self._check_windows(self.windows)
        return self

    @staticmethod
    def _check_windows(windows: list[list[float]]) -> None:
        if not windows:
            raise ValueError("windows is empty; leave it out for one window over all bins")
        for low, high in windows:
            if low >= high:
                raise ValueError(f"windows: [{low:g}, {high:g}] is empty: low must be below high")
        for (low, high), (low_next, high_next) in pairwise(windows):
            if not (low < low_next and high < high_next):
                raise ValueError("windows: expected ascending windows")
            if low_next >= high:
                raise ValueError(
                    f"windows: [{low:g}, {high:g}] and [{low_next:g}, {high_next:g}] do not "
                    "overlap, so that walkers could never exchange; let them share some bins"
                )


def equal_windows(n_bins: int, n_windows: int, overlap: float) -> list[tuple[int, int]]:
    """Cut bins into windows of equal width; neighbours share `overlap` of their width."""
    if n_windows == 1:
        return [(0, n_bins)]
    width = n_bins / (1 + (n_windows - 1) * (1 - overlap))
    step = width * (1 - overlap)
    windows = [(round(i * step), min(n_bins, round(i * step + width))) for i in range(n_windows)]
    if step < 1 or any(b[0] >= a[1] for a, b in pairwise(windows)):
        raise ValueError(f"wang_landau.windows = {n_windows} is too many for {n_bins} bins")
    return windows
