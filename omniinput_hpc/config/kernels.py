"""``[kernel]``: one table per kernel, distinguished by ``name``.

To add a kernel, write its table here, add it to `KERNELS`, and write the file that its
`implementation` names (CONTRIBUTING.md has an example).
"""

from __future__ import annotations

from functools import reduce
from operator import or_
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, Self

from pydantic import AfterValidator, Field, create_model, field_validator, model_validator

from omniinput_hpc.config.table import NotNegative, Positive, Range, Table, WholePositive

STEP_SIZES = (1e-3, 1e6)
"""Smallest and largest step size of the discrete Langevin proposal."""

MAX_PARTS = 64
"""Largest number of parts of a mixture."""
CONTEXT_LENGTH, MAX_CONTEXTS, MAX_CONTINUATIONS = 4, 2048, 4096
"""Sizes of the continuations that `look_ahead` keeps: see `kernels.look_ahead.continuations`."""
UNDER_LAW = {
    "name": "mixture",
    "parts": [{"name": "from-law", "weight": 0.9}, {"name": "metropolis", "weight": 0.1}],
}
"""The default kernel under a law, and in a space that `pattern`, `end` or lists constrain."""
LEAST_BURN_IN = 4
"""The fewest rounds of burn-in in which `look_ahead` can learn."""


def _ascending(lengths: list[int]) -> list[int]:
    if lengths[0] > lengths[1]:
        raise ValueError(f"expected [shortest, longest], found {lengths}")
    return lengths


Lengths = Annotated[
    list[WholePositive], Field(min_length=2, max_length=2), AfterValidator(_ascending)
]


class KernelTable(Table):
    """Base class of the kernels' tables, with the properties that the run file's layout needs."""

    implementation: ClassVar[str]  # "module:class", imported only to build it: it needs torch
    name: str

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the kernels: one, or those of a mixture's parts."""
        return (self.name,)

    @property
    def part_names(self) -> tuple[str, ...]:
        """Name of each kind of move that is counted separately."""
        return (self.name,)

    @property
    def n_tuned(self) -> int:
        """Number of values that the kernel tunes in burn-in."""
        return 0

    @property
    def learns_ahead(self) -> bool:
        """Whether the kernel learns in burn-in from all walkers of a rung together."""
        return False

    def looking_ahead(self, ahead: bool) -> Self:
        """Return a copy with `look_ahead` set if it was left out."""
        return self

    @property
    def evaluates_part(self) -> bool:
        """Whether a KV cache lets the kernel skip the sites before the first changed one."""
        return False


class Metropolis(KernelTable):
    """``[kernel] name = "metropolis"``: random other values at ``sites`` random sites."""

    implementation: ClassVar = "omniinput_hpc.kernels.metropolis:Metropolis"
    name: Literal["metropolis"] = Field(
        "metropolis",
        description="Random sites get random other values. For language models, the sites are "
        "the same in all walkers of all rungs.",
    )
    sites: WholePositive = Field(1, description="How many sites a move changes.")

    @property
    def evaluates_part(self) -> bool:
        """Always true."""
        return True


class GibbsWithGradients(KernelTable):
    """``[kernel] name = "gibbs-with-gradients"``."""

    implementation: ClassVar = "omniinput_hpc.kernels.gibbs_with_gradients:GibbsWithGradients"
    name: Literal["gibbs-with-gradients"] = Field(
        description="The gradient of z guides the choice of a site and its new value."
    )
    proposal: Literal["joint", "site"] = Field(
        "joint",
        description='`"joint"`: site and value are drawn together. `"site"`: a random site is '
        "redrawn from its distribution given the others, as the gradient predicts it; for large "
        "vocabularies under a `[law]`.",
    )


class DiscreteLangevin(KernelTable):
    """``[kernel] name = "discrete-langevin"``: changes all sites at once."""

    implementation: ClassVar = "omniinput_hpc.kernels.discrete_langevin:DiscreteLangevin"
    name: Literal["discrete-langevin"] = Field(
        description="The gradient of z guides a change of all sites at once."
    )
    ordered: bool = Field(
        False,
        description="Values are ordered (grey levels): near ones are proposed more often.",
    )
    step_size: float = Field(
        1.0,
        ge=STEP_SIZES[0],
        le=STEP_SIZES[1],
        description="Larger steps change more sites. Burn-in tunes it to 57 % acceptance.",
    )
    proposal_beta: Range | None = Field(
        None,
        description="`[low, high]`: range of the proposal's beta, instead of the rung's beta.",
    )

    @field_validator("proposal_beta")
    @classmethod
    def _is_a_range(cls, value: list[float] | None) -> list[float] | None:
        if value is not None and value[0] > value[1]:
            raise ValueError(f"expected [low, high], found low = {value[0]:g} above {value[1]:g}")
        return value

    @property
    def n_tuned(self) -> int:
        """Two: the step size, and the number of its adaptations."""
        return 2


class LawWeights(Table):
    """``[kernel.weights]`` of from-law: relative frequencies, 0 for kinds not named."""

    site: NotNegative = Field(0.0, description="One site is redrawn.")
    block: NotNegative = Field(0.0, description="A block of neighbouring sites is redrawn.")
    suffix: NotNegative = Field(0.0, description="All sites from one on are redrawn.")

    @model_validator(mode="after")
    def _some(self) -> Self:
        if not any(getattr(self, name) for name in type(self).model_fields):
            raise ValueError("expected a weight above 0")
        return self


class ProposalWeights(LawWeights):
    """``[kernel.weights]`` of lm-conditional: relative frequencies, 0 for kinds not named."""

    flip: NotNegative = Field(0.0, description="One site gets a random other value.")


class LmConditional(KernelTable):
    """``[kernel] name = "lm-conditional"``: redraws spans from the model's conditionals."""

    implementation: ClassVar = "omniinput_hpc.kernels.lm_conditional:LmConditional"
    name: Literal["lm-conditional"] = Field(
        description="Redraws spans of tokens from a language model's own conditional probabilities."
    )
    weights: ProposalWeights = Field(
        ProposalWeights(site=0.2, block=0.3, suffix=0.4, flip=0.1),
        description="Relative frequency of each kind of span; 0 if not named.",
    )
    block_lengths: Lengths | None = Field(
        None,
        description="`[shortest, longest]` block, drawn log-uniformly. Default: 2 to 8.",
    )
    suffix_lengths: Lengths | None = Field(
        None,
        description="Likewise for suffixes. Default: 1 to `length`; at least a tenth of them are "
        "whole inputs (six tenths with `look_ahead`).",
    )

    look_ahead: bool | None = Field(
        None,
        description="On canonical rungs with beta > m, [draw suffixes by where their first "
        "tokens lead](methods.md#kernels), which burn-in learns. "
        "Default: true if the ladder has such rungs, "
        f"`burn_in` is at least {LEAST_BURN_IN}, and inputs have more than {CONTEXT_LENGTH} "
        "sites. The run file stores the decision.",
    )

    @property
    def part_names(self) -> tuple[str, ...]:
        """The four kinds of moves."""
        return tuple(ProposalWeights.model_fields)

    @property
    def n_tuned(self) -> int:
        """Size of the state of `kernels.look_ahead.continuations` with `look_ahead`, else 0."""
        contexts, continuations = (CONTEXT_LENGTH + 3) * MAX_CONTEXTS, 4 * MAX_CONTINUATIONS
        return 4 + contexts + continuations if self.look_ahead else 0

    @property
    def learns_ahead(self) -> bool:
        """Whether `look_ahead` is true."""
        return bool(self.look_ahead)

    def looking_ahead(self, ahead: bool) -> Self:
        """Return a copy with `look_ahead` set if it was left out."""
        return self.model_copy(update={"look_ahead": ahead} if self.look_ahead is None else {})

    @property
    def evaluates_part(self) -> bool:
        """Always true."""
        return True


class FromLaw(KernelTable):
    """``[kernel] name = "from-law"``: redraws spans from the law of inputs."""

    implementation: ClassVar = "omniinput_hpc.kernels.from_law:FromLaw"
    name: Literal["from-law"] = Field(
        description="Redraws spans of sites from the conditional probabilities of [law], or "
        "uniformly in a space that [space] constrains; for any output. A prompt is redrawn as a "
        "whole."
    )
    weights: LawWeights = Field(
        LawWeights(site=0.2, block=0.3, suffix=0.5),
        description="As for `lm-conditional`, without `flip`.",
    )
    block_lengths: Lengths | None = Field(None, description="As for `lm-conditional`.")
    suffix_lengths: Lengths | None = Field(
        None,
        description="As for `lm-conditional`; by default at least a tenth are whole inputs.",
    )
    look_ahead: ClassVar = False

    @property
    def part_names(self) -> tuple[str, ...]:
        """The three kinds of moves."""
        return tuple(LawWeights.model_fields)


PART_WEIGHT: float = Field(1.0, description="Relative frequency of this part.")

KERNELS: tuple[type[KernelTable], ...] = (
    Metropolis,
    GibbsWithGradients,
    DiscreteLangevin,
    LmConditional,
    FromLaw,
)
"""One row per kernel, from which the types below, the checks and docs/input-file.md follow."""


def _part(table: type[KernelTable]) -> type[KernelTable]:
    """Return a kernel's table as an entry of ``[[kernel.parts]]``: the same keys and a weight."""
    weight: Any = (Positive, PART_WEIGHT)
    return create_model(f"{table.__name__}Part", __base__=table, __module__=__name__, weight=weight)


def with_default_name(table: Any) -> Any:
    """Return a ``[kernel]`` table as read, with the name "metropolis" if it has none."""
    return {"name": "metropolis", **table} if isinstance(table, dict) else table


if TYPE_CHECKING:

    class Part(KernelTable):
        """The table of any kernel with a weight, for the type checker."""

        weight: float

else:
    _PARTS = [_part(table) for table in KERNELS]
    Part = Annotated[reduce(or_, _PARTS), Field(discriminator="name")]


class Mixture(KernelTable):
    """``[kernel] name = "mixture"``: each move is one of the parts, drawn by weight."""

    name: Literal["mixture"] = Field(description="Each move is one of the parts.")
    parts: list[Part] = Field(
        min_length=1,
        max_length=MAX_PARTS,
        description="`[[kernel.parts]]` tables: a kernel's `name` and keys, and its relative "
        "frequency `weight` (1.0).",
    )

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the kernels of all parts."""
        return tuple(part.name for part in self.parts)

    @property
    def part_names(self) -> tuple[str, ...]:
        """Names of the moves of all parts, each with the number of its part."""
        return tuple(
            f"{index}:{name}" for index, part in enumerate(self.parts) for name in part.part_names
        )

    @property
    def n_tuned(self) -> int:
        """Number of values that all parts tune together."""
        return sum(part.n_tuned for part in self.parts)

    @property
    def learns_ahead(self) -> bool:
        """Whether any part learns ahead."""
        return any(part.learns_ahead for part in self.parts)

    def looking_ahead(self, ahead: bool) -> Self:
        """Return a copy with `look_ahead` set in the parts that left it out."""
        return self.model_copy(update={"parts": [p.looking_ahead(ahead) for p in self.parts]})

    @property
    def evaluates_part(self) -> bool:
        """Whether a KV cache lets all parts skip sites."""
        return all(part.evaluates_part for part in self.parts)


if TYPE_CHECKING:
    Kernel = KernelTable
else:
    Kernel = Annotated[reduce(or_, (*KERNELS, Mixture)), Field(discriminator="name")]
