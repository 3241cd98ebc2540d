"""``[output]``: what z is, one table per name. Left out: the model's own output."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, Literal

from pydantic import Field, create_model, field_validator

from omniinput_hpc.config.models import FunctionName, Model
from omniinput_hpc.config.paths import PathText
from omniinput_hpc.config.table import Table

TokenId = Annotated[int, Field(ge=0, le=2**31 - 1)]
TextOrIds = Annotated[str, Field(min_length=1)] | Annotated[list[TokenId], Field(min_length=1)]
Targets = Annotated[list[str | int], Field(min_length=1)]
ROUGHEST = ("bfloat16", "float16", "float32")
"""Types of weights, the least precise first."""


def _is_id(value: object) -> bool:
    return type(value) is int and 0 <= value < 2**31


def _text_or_ids(value: Any) -> Any:
    is_ids = isinstance(value, list) and value and all(map(_is_id, value))
    if value is not None and not is_ids and not (isinstance(value, str) and value):
        raise ValueError(f"expected a text or a list of token ids, found {value!r}")
    return value


class OutputTable(Table):
    """Base class of the outputs' tables."""

    def read_from(self, model: Table) -> Sequence[Table]:
        """Return the models, of the run's `model` and others, whose numbers z is made of."""
        return [model]

    def problem(self, kind: str) -> str:
        """Return why this output does not fit a kind of model; "" if it does."""
        return ""


class _OfDecoder(OutputTable):
    def problem(self, kind: str) -> str:
        return "" if kind == "causal-lm" else 'it reads the next tokens of a "causal-lm"'


class Next(_OfDecoder):
    """``[output] name = "next"``: how unlikely some tokens are as the next one."""

    name: Literal["next"] = Field(
        description="z = -ln of the probability that a target is the next token after the input."
    )
    targets: Targets = Field(description="Texts of one token each, or token ids.")
    after: TextOrIds | None = Field(
        None, description="Fixed text or token ids between every input and the target."
    )
    against: Targets | None = Field(
        None,
        description="Other such tokens: z = ln P(against) - ln P(targets), the log-odds. Low z: "
        "the targets are likely.",
    )
    aggregate: Literal["sum", "max"] = Field(
        "sum", description="P of several tokens: their sum, or the likeliest one's."
    )

    @field_validator("targets", "against", mode="before")
    @classmethod
    def _are_tokens(cls, value: Any) -> Any:
        for one in value if isinstance(value, list) else []:
            if not _is_id(one) and not (isinstance(one, str) and one):
                raise ValueError(f"expected texts of one token, or token ids, found {one!r}")
        return value

    @field_validator("after", mode="before")
    @classmethod
    def _is_text(cls, value: Any) -> Any:
        return _text_or_ids(value)


class Text(_OfDecoder):
    """``[output] name = "text"``: how unlikely a text is after the input."""

    name: Literal["text"] = Field(
        description="z = the mean loss per token of a text that follows the input."
    )
    text: TextOrIds = Field(description="The text, or its token ids.")

    @field_validator("text", mode="before")
    @classmethod
    def _is_text(cls, value: Any) -> Any:
        return _text_or_ids(value)


class Difference(OutputTable):
    """``[output] name = "difference"``: where two models differ."""

    name: Literal["difference"] = Field(
        description="z = the model's own output minus that of another model of the same inputs."
    )
    other: Model = Field(
        description="The other model: a table like `[model]`. `length`, `prefix` and `tokens` are "
        "those of `[model]` if left out."
    )

    def read_from(self, model: Table) -> Sequence[Table]:
        """See `OutputTable`."""
        return [model, self.other]


_CLASS: Any = {"class": (int, Field(ge=0, le=2**31 - 1, description="Counted from 0."))}
_WithClass = create_model("_WithClass", __base__=OutputTable, **_CLASS)
"""A table with the key `class`, which is a word of Python."""


class Classifier(_WithClass):
    """``[output] name = "classifier"``: a text classifier's judgement of the inputs' texts."""

    name: Literal["classifier"] = Field(
        description="z = a text classifier's logit of a class, given the text of the input with "
        "its prefix, in the classifier's own tokens; longer texts than it takes are cut."
    )
    path: PathText = Field(
        description="Folder of a Hugging Face text classifier with its tokenizer, such as a "
        "judge or a reward model."
    )

    def read_from(self, model: Table) -> Sequence[Table]:
        """See `OutputTable`."""
        return []

    def problem(self, kind: str) -> str:
        """See `OutputTable`."""
        return "" if kind in ("causal-lm", "python") else "it reads texts of language models"


class PythonOutput(OutputTable):
    """``[output] name = "python"``: the user's own function."""

    name: Literal["python"] = Field(description="z is computed by a function of your own.")
    function: FunctionName = Field(
        description='`"module:function"`; `function(x)` or `function(x, texts)` returns z: '
        "tensors int64 [n, D] of values as in the run file, and float32 [n]; texts include the "
        "prefix. The current directory is importable."
    )

    def read_from(self, model: Table) -> Sequence[Table]:
        """See `OutputTable`."""
        return []


Output = Annotated[
    Next | Text | Difference | Classifier | PythonOutput, Field(discriminator="name")
]


def models_of(output: OutputTable | None, model: Table) -> Sequence[Table]:
    """Return the models whose numbers z is made of."""
    return [model] if output is None else output.read_from(model)


def roughest(models: Sequence[Table]) -> str:
    """Return the least precise type of weights of some models."""
    dtypes = [getattr(model, "dtype", "float32") for model in models]
    return str(min(dtypes, key=ROUGHEST.index, default="float32"))


def of_same_inputs(table: Any, model: Any) -> Any:
    """Return a given table with the keys of another model's inputs that it leaves out."""
    other = table.get("other") if isinstance(table, dict) else None
    if not isinstance(other, dict) or other.get("kind") != getattr(model, "kind", ""):
        return table
    given = {key: getattr(model, key, None) for key in ("length", "prefix", "tokens")}
    given = {key: value for key, value in given.items() if value is not None}
    return {**table, "other": {**given, **other}}
