"""The input file as types: every table and key that a run may have.

`input_file` reads files and writes the messages; this package only defines what is allowed.
"""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, ValidationInfo, field_validator, model_validator

from omniinput_hpc.config.kernels import (
    CONTEXT_LENGTH,
    LEAST_BURN_IN,
    UNDER_LAW,
    Kernel,
    KernelTable,
    Metropolis,
    Mixture,
    with_default_name,
)
from omniinput_hpc.config.law import Law
from omniinput_hpc.config.method import (
    Ladder,
    Sampler,
    WangLandau,
    check_ancestral,
    check_annealed,
    check_second_direction,
    drawn_samples,
    equal_windows,
)
from omniinput_hpc.config.models import (
    CausalLm,
    ImageClassifier,
    MaskedLm,
    Model,
    Potts,
    PythonModel,
    RuleName,
    SequenceClassifier,
)
from omniinput_hpc.config.observables import Observables
from omniinput_hpc.config.output import Output, models_of, of_same_inputs, problem, roughest
from omniinput_hpc.config.paths import IsPath
from omniinput_hpc.config.run_table import Precision, RunTable
from omniinput_hpc.config.space_table import Allowed, Space
from omniinput_hpc.config.table import Finite, Positive, Table, WholePositive
from omniinput_hpc.histogram import MAX_BINS

Side = Literal["low", "high"]
"""The low or the high end of z."""
Measure = Literal["count", "probability"]
"""What exp(log_g) is of a bin: a number of inputs, or a probability."""

__all__ = [
    "Allowed", "Analysis", "Bins", "CausalLm", "Config", "ImageClassifier", "KernelTable",
    "Ladder", "MaskedLm", "Measure", "Mixture", "Potts", "Precision", "PythonModel", "RunTable",
    "Sampler", "Samples", "SequenceClassifier", "Side", "Space", "Table", "WangLandau",
]  # fmt: skip


class Bins(Table):
    """``[bins]``: the histogram of z; bins are half-open, of equal width, the last one closed."""

    lower: Finite = Field(description="Lower end of the first bin, in units of z.")
    upper: Finite = Field(description="Upper end of the last bin.")
    width: Positive = Field(
        description="Width of each bin; upper - lower is a whole number of widths."
    )

    @model_validator(mode="after")
    def _fits(self) -> Bins:
        if self.lower >= self.upper:
            raise ValueError(f"lower = {self.lower:g} must be below upper = {self.upper:g}")
        bins = (self.upper - self.lower) / self.width
        if bins > MAX_BINS:
            raise ValueError(f"{bins:.3g} bins are too many; increase width")
        if round(bins) < 1 or abs(bins - round(bins)) > 1e-6 * max(1.0, bins):
            raise ValueError(
                f"the range from {self.lower:g} to {self.upper:g} is not a whole number of bins "
                f"of width {self.width:g}"
            )
        largest = max(abs(self.lower), abs(self.upper))
        apart = float(np.spacing(np.float32(largest)))
        if self.width < apart:
            raise ValueError(
                f"width = {self.width:g} is finer than z: float32 numbers around {largest:g} are "
                f"{apart:g} apart; increase width, or let the model subtract a constant from z"
            )
        return self

    @property
    def edges(self) -> NDArray[np.float64]:
        """Bin edges, float64 [B + 1]: lower + i * width; the last is at least `upper`."""
        n_bins = round((self.upper - self.lower) / self.width)
        edges = np.asarray(self.lower + np.arange(n_bins + 1) * self.width, dtype=np.float64)
        edges[-1] = max(edges[-1], self.upper)  # z = upper counts, even if the product is rounded
        return edges


class Samples(Table):
    """``[samples]``: how often a walker's configuration is recorded."""

    every: WholePositive = Field(
        description="Moves between two recorded samples of a walker; 1 for `ancestral` and "
        "`annealed`."
    )


class Analysis(Table):
    """``[analysis]``: settings for the analysis of a run; sampling ignores them."""

    side: Side | None = Field(
        None,
        description="The end of z where the model is confident ([default](analysis.md#the-side)).",
    )
    rule: RuleName | None = Field(
        None,
        description='`"module:function"` that scores inputs: int array [n, D], or their texts if '
        'its argument is called `texts`, to scores [n] in [0, 1]. Or `"regex:PATTERN"`, '
        '`"contains:TEXT"`, `"words:FILE"`.',
    )
    test_data: Annotated[str | None, IsPath()] = Field(
        None,
        description="File written by `omniinput test-sets`, to draw with the density.",
    )


def _name_of(table: Any) -> str:
    return str(getattr(table, "path", None) or getattr(table, "factory", None) or "")


class Config(Table):
    """The whole input file."""

    run: RunTable = Field(description="The run file, its length, and the hardware.")
    model: Model = Field(description="What is sampled. The keys depend on `kind`.")
    law: Law | None = Field(
        None,
        description="Optional: what inputs are [weighed by](analysis.md#under-a-law). Default: all "
        "weigh the same.",
    )
    output: Output | None = Field(
        None, description="Optional: what z is. Default: the model's own output. One of:"
    )
    space: Space | None = Field(None, description="Optional: which inputs exist. Default: all.")
    sampler: Sampler = Field(description="The method, and the lengths of a round.")
    ladder: Ladder | None = Field(
        None,
        description="The inverse temperatures: listed, or spaced between two ends. Required, "
        'except for `sampler.method = "wang-landau"`.',
    )
    wang_landau: WangLandau | None = Field(
        None,
        description='Optional, for `sampler.method = "wang-landau"`: how burn-in learns S(z).',
    )
    kernel: Kernel = Field(
        Metropolis(),
        description="How a walker moves. The keys depend on `name`. Default: `metropolis`; under a "
        "[law], or with `space.pattern`, `space.end`, `space.canonical` or lists in "
        "`space.allowed`, a mixture of it (0.1) and `from-law` (0.9).",
    )
    bins: Bins = Field(
        description="The histogram of z: half-open bins of equal width, the last one closed."
    )
    samples: Samples = Field(description="How often inputs are recorded.")
    observables: Observables | None = Field(
        None,
        description="Optional, any number of `[[observables]]`: what is recorded besides z.",
    )
    analysis: Analysis | None = Field(
        None,
        description="Optional: how `jobscripts/local.sh` analyses the run.",
    )

    @model_validator(mode="before")
    @classmethod
    def _kernel_of_a_law(cls, tables: Any) -> Any:
        if not isinstance(tables, dict) or "kernel" in tables:
            return tables
        space = tables.get("space")
        space = space if isinstance(space, dict) else {}
        constrained = "pattern" in space or "end" in space or space.get("canonical") is True
        constrained |= isinstance(space.get("allowed"), list)
        return {**tables, "kernel": UNDER_LAW} if tables.get("law") or constrained else tables

    @field_validator("kernel", mode="before")
    @classmethod
    def _has_a_name(cls, table: Any) -> Any:
        return with_default_name(table)

    @field_validator("output", mode="before")
    @classmethod
    def _is_of_the_same_inputs(cls, table: Any, info: ValidationInfo) -> Any:
        return of_same_inputs(table, info.data.get("model"))

    @model_validator(mode="after")
    def _output_fits(self) -> Config:
        wrong = problem(self.output, self.model.kind)
        if wrong:
            raise ValueError(wrong)
        return self

    @model_validator(mode="after")
    def _law_fits(self) -> Config:
        wrong = self.space.problem(self) if self.space is not None else ""
        if wrong:
            raise ValueError(wrong)
        if self.law is None:
            return self
        if self.sampler.weighs_draws:
            raise ValueError(
                f'sampler.method = "{self.sampler.method}" draws from the model itself; under a '
                '[law] set it to "parallel-tempering"'
            )
        if "lm-conditional" in self.kernel.names:
            raise ValueError(
                'kernel.name = "lm-conditional" is for inputs that all weigh the same; under a '
                '[law] choose "from-law"'
            )
        return self

    @model_validator(mode="after")
    def _samples_fit_a_round(self) -> Config:
        moves = self.sampler.moves_per_round
        if self.samples.every > moves:
            raise ValueError(
                f"samples.every = {self.samples.every} is more than the {moves} moves of a round "
                "(sampler.steps * sampler.exchanges), so that nothing would be recorded"
            )
        return self

    @model_validator(mode="after")
    def _precision_fits(self) -> Config:
        dtype = roughest([self.model, *models_of(self.output, self.model)])
        if self.run.precision == "tf32" and dtype != "float32":
            raise ValueError(
                f'run.precision = "tf32" is for float32, but model.dtype = "{dtype}"; leave it out'
            )
        return self

    @model_validator(mode="after")
    def _space_fits(self) -> Config:
        if self.allowed is not None and not hasattr(self.model, "tokens"):
            raise ValueError(
                f'space.allowed = "{self.allowed}" is for models with a tokenizer, not '
                f'for model.kind = "{self.model.kind}"; leave it out'
            )
        return self

    @property
    def allowed(self) -> Allowed:
        """Which values all sites may take, if ``space.allowed`` names them."""
        given = None if self.space is None else self.space.allowed
        return None if isinstance(given, list) else given

    @property
    def constrained(self) -> bool:
        """Whether the inputs are only some of those that the sites' values make."""
        return bool(self.constraint)

    @property
    def constraint(self) -> str:
        """The key that leaves out some of them; "" without one."""
        return "" if self.space is None else self.space.constraint

    @property
    def measure(self) -> Measure:
        """What the density measures: the number of inputs, or their probability under a law."""
        return "count" if self.law is None else "probability"

    @property
    def seed(self) -> int | None:
        """``run.seed``; None if a stored input of another version does not state it."""
        return self.run.seed

    @property
    def exchanges(self) -> int | None:
        """Exchanges per round; None as for `seed`."""
        return self.sampler.exchanges

    @property
    def observed(self) -> dict[str, str]:
        """What is computed of every recorded sample, by its name."""
        return {one.name: one.what for one in self.observables or ()}

    @property
    def annealed(self) -> bool:
        """Whether draws come in populations."""
        return self.sampler.method == "annealed"

    @property
    def noisy(self) -> bool:
        """Whether z is not a function of the input, ``noise`` of a model that it is made of."""
        of_z = [self.model, *models_of(self.output, self.model)]
        return any(bool(getattr(model, "noise", False)) for model in of_z)

    @property
    def model_name(self) -> str:
        """The model's path, or the function that makes it; "" if it has neither."""
        return _name_of(self.model)

    @property
    def law_name(self) -> str:
        """Kind of the law, and the name of its path or function; "" without a law."""
        if self.law is None:
            return ""
        return f"{self.law.kind} {Path(_name_of(self.law)).name}".strip()

    @property
    def predicted_from(self) -> int | None:
        """First site that a decoder predicts, whose loss z is; None for any other z."""
        if (
            self.model.kind != "causal-lm"
            or self.output is not None
            or self.constraint == "space.end"
        ):
            return None
        return 0 if getattr(self.model, "prefix", None) else 1

    @property
    def drawn_samples(self) -> NDArray[np.int64]:
        """Which of a lane's samples of a round are surely drawn directly at beta = 0."""
        return drawn_samples(self.sampler, self.ladder, self.samples.every)

    @property
    def every_token(self) -> bool:
        """Whether the model is a decoder whose sites may take all of its tokens."""
        decoder = self.model.kind == "causal-lm" and self.allowed is None and not self.constrained
        return decoder and getattr(self.model, "tokens", "all") == "all"

    @property
    def rounded_as(self) -> str:
        """The type to whose precision z is rounded; TF32 keeps as many bits as float16."""
        dtype = roughest(models_of(self.output, self.model))
        return "float16" if self.run.precision == "tf32" else dtype

    @model_validator(mode="after")
    def _fits_the_method(self) -> Config:
        method = self.sampler.method
        if self.wang_landau is not None and method != "wang-landau":
            raise ValueError(f'[wang_landau] is for sampler.method = "wang-landau", not "{method}"')
        if self.ladder is None and method != "wang-landau":
            raise ValueError("ladder: missing")
        if method == "wang-landau" and self.run.burn_in < 4:
            raise ValueError(
                f"run.burn_in = {self.run.burn_in}: Wang-Landau learns S(z) in burn-in; set it "
                "to at least 4 rounds, better a few dozen"
            )
        if method == "wang-landau" and self.sampler.blocks > 1:
            raise ValueError(
                f"sampler.blocks = {self.sampler.blocks}: with sampler.method = "
                '"wang-landau" all walkers of a rung learn S(z) together; set sampler.blocks = 1'
            )
        if self.kernel.learns_ahead:
            self._fits_look_ahead()
        if method == "ancestral":
            check_ancestral(self.ladder, self.samples.every)
        if method == "annealed":
            check_annealed(self.sampler, self.ladder, self.samples.every)
        if self.ladder is not None:
            check_second_direction(self.ladder, method, self.kernel.names, self.observed)
        _ = self.windows  # raises a ValueError if they are wrong
        if self.ladder is not None and self.ladder.tune and method != "parallel-tempering":
            raise ValueError('ladder.tune is for sampler.method = "parallel-tempering"')
        return self

    def _fits_look_ahead(self) -> None:
        if self.run.burn_in < LEAST_BURN_IN:
            raise ValueError(
                f"run.burn_in = {self.run.burn_in}: kernel.look_ahead = true learns in burn-in; "
                f"set it to at least {LEAST_BURN_IN} rounds, better a dozen"
            )

    @property
    def windows(self) -> list[tuple[int, int]]:
        """Bins [first, end) of each flat-histogram rung; empty without Wang-Landau.

        Raises a ValueError if a window holds no bin, or if neighbouring windows share none.
        """
        if self.sampler.method != "wang-landau":
            return []
        options, edges = self.wang_landau or WangLandau(), self.bins.edges
        n_bins = len(edges) - 1
        if isinstance(options.windows, int):
            return equal_windows(n_bins, options.windows, options.overlap)
        windows = []
        for low, high in options.windows:
            first = int(np.searchsorted(edges, low - 1e-9 * self.bins.width))
            end = int(np.searchsorted(edges, high + 1e-9 * self.bins.width, side="right")) - 1
            if first < 0 or end <= first:
                raise ValueError(f"wang_landau.windows: [{low:g}, {high:g}] holds no bin of [bins]")
            windows.append((first, end))
        for one, other in pairwise(windows):
            if other[0] >= one[1]:
                raise ValueError("wang_landau.windows: neighbouring windows share no whole bin")
        return windows

    @property
    def beta_k(self) -> NDArray[np.float64]:
        """Betas of all rungs, float64 [K]; flat-histogram rungs come first, as NaN."""
        flat = np.full(len(self.windows), np.nan)
        return np.concatenate([flat, self.ladder.beta_k]) if self.ladder is not None else flat

    @property
    def canonical_k(self) -> NDArray[np.float64]:
        """The betas, float64 [n], of the rungs whose weight is exp(-beta z) alone."""
        if self.ladder is None:
            return np.zeros(0)
        plain_k = (self.ladder.lambda_k == 0.0) & (np.array(self.ladder.kappa or 0.0) == 0.0)
        return np.asarray(self.ladder.beta_k[plain_k])

    @property
    def n_shares(self) -> int:
        """The number of equal parts of the work, a multiple of the number of ranks."""
        return self.sampler.blocks * (1 if self.sampler.whole_ladders else len(self.beta_k))

    @property
    def samples_per_round(self) -> int:
        """Recorded samples per rung and round: S = W * (steps * exchanges // every)."""
        return self.sampler.n_walkers * (self.sampler.moves_per_round // self.samples.every)

    def goes_beyond(self, m: float) -> bool:
        """Return whether a canonical rung is colder than beta = m, the model's own distribution."""
        return bool((self.canonical_k > m).any())

    def with_look_ahead(self, n_sites: int, m: float) -> Config:
        """Return a copy with ``kernel.look_ahead`` decided if it was left out.

        Models get stuck beyond m without it. It is true if burn-in can learn it.
        """
        moves = self.sampler.method != "ancestral"
        learns = self.run.burn_in >= LEAST_BURN_IN and n_sites > CONTEXT_LENGTH
        return self.looking_ahead(moves and learns and self.goes_beyond(m))

    def looking_ahead(self, ahead: bool) -> Config:
        """Return a copy with ``kernel.look_ahead`` set if it was left out."""
        return self.model_copy(update={"kernel": self.kernel.looking_ahead(ahead)})

    def with_walkers(self, n_walkers: int) -> Config:
        """Return a copy with another number of walkers per rung."""
        sampler = self.sampler.model_copy(update={"walkers": n_walkers})
        return self.model_copy(update={"sampler": sampler})
