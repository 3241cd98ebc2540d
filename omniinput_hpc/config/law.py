"""``[law]``: what inputs are weighed by, one table per ``kind``; without it, all weigh the same."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field

from omniinput_hpc.config.models import DTYPES, OPTIONS, FunctionName, Prefix
from omniinput_hpc.config.paths import PathText
from omniinput_hpc.config.table import MAX_SITES, Positive, Table, WholePositive

SITES: Any = Field(le=MAX_SITES, description="How many sites it draws, from the first on.")
PATH = "As for a `causal-lm` model, with the tokens of [model]."
FACTORY = (
    "As for a `python` model; needs `conditional_logits`, and an `output` that is their mean loss."
)


class UniformPrompt(Table):
    """``prompt = { kind = "uniform" }``."""

    kind: Literal["uniform"] = Field(description="All values are equally likely.")
    sites: WholePositive = SITES


class DataPrompt(Table):
    """``prompt = { kind = "data" }``: rows of a file."""

    kind: Literal["data"] = Field(description="A row of a file, drawn with replacement.")
    file: PathText = Field(
        description="Text file with a prompt per line, a FASTA file, or a JSON list of texts or of "
        "lists of values. Each must have `sites` tokens."
    )
    sites: WholePositive = SITES


class CausalLmPrompt(Table):
    """``prompt = { kind = "causal-lm" }``: another decoder's texts."""

    kind: Literal["causal-lm"] = Field(description="Texts of another decoder.")
    path: PathText = Field(description=PATH)
    sites: WholePositive = SITES


class PythonPrompt(Table):
    """``prompt = { kind = "python" }``: draws of a user's own model."""

    kind: Literal["python"] = Field(description="Draws of a model of your own.")
    factory: FunctionName = Field(description=FACTORY)
    options: dict[str, Any] = Field(default_factory=dict, description=OPTIONS)
    sites: WholePositive = SITES


Prompt = Annotated[
    UniformPrompt | DataPrompt | CausalLmPrompt | PythonPrompt, Field(discriminator="kind")
]


class LawTable(Table):
    """The keys that all kinds of laws share."""

    temperature: Positive = Field(
        1.0,
        description="Conditional probabilities are raised to the power 1 / temperature, and "
        "normalized again; in any case if tokens are left out.",
    )
    prompt: Prompt | None = Field(
        None,
        description="A law of the first sites. The others follow the law itself, given these.",
    )


class ModelLaw(LawTable):
    """``[law] kind = "model"``."""

    kind: Literal["model"] = Field(
        description="The next-token distribution of [model], whatever [output] z is."
    )


class CausalLmLaw(LawTable):
    """``[law] kind = "causal-lm"``."""

    kind: Literal["causal-lm"] = Field(description="The next-token distribution of a decoder.")
    path: PathText = Field(description=PATH)
    dtype: DTYPES = Field("float32", description="Of the weights.")
    prefix: Prefix = Field(
        None, description="Fixed text or token ids before every input, for the law only."
    )


class PythonLaw(LawTable):
    """``[law] kind = "python"``."""

    kind: Literal["python"] = Field(description="An object made by a function of your own.")
    factory: FunctionName = Field(description=FACTORY)
    options: dict[str, Any] = Field(default_factory=dict, description=OPTIONS)


Law = Annotated[ModelLaw | CausalLmLaw | PythonLaw, Field(discriminator="kind")]
