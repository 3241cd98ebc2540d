"""``[output]``: what z is, one table per name. Left out: the model's own output."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, ClassVar, Literal

from pydantic import BeforeValidator, Field, create_model

from omniinput_hpc.config.models import FunctionName, Model
from omniinput_hpc.config.paths import PathText
from omniinput_hpc.config.table import Table

ROUGHEST = ("bfloat16", "float16", "float32")
"""Types of weights, the least precise first."""


def _is_id(value: object) -> bool:
    return type(value) is int and 0 <= value < 2**31


def _is_text(value: object) -> bool:
    return isinstance(value, str) and value != ""


def _text_or_ids(value: Any) -> Any:
    is_ids = isinstance(value, list) and value and all(map(_is_id, value))
    if not is_ids and not _is_text(value):
        raise ValueError(f"expected a text or a list of token ids, found {value!r}")
    return value


def _tokens(value: Any) -> Any:
    for one in value if isinstance(value, list) else []:
        if not _is_id(one) and not _is_text(one):
            raise ValueError(f"expected texts of one token, or token ids, found {one!r}")
    return value


def _against(value: Any) -> Any:
    if value != "others" and (not isinstance(value, list) or not value):
        raise ValueError(f'expected a list of tokens, or "others", found {value!r}')
    return _tokens(value)


TextOrIds = Annotated[str | list[int], BeforeValidator(_text_or_ids)]
Against = Annotated[list[str | int] | Literal["others"], BeforeValidator(_against)]
Targets = Annotated[list[str | int], Field(min_length=1), BeforeValidator(_tokens)]


class OutputTable(Table):
    """Base class of the outputs' tables."""

    kinds: ClassVar[Sequence[str]] = ()  # of models that it fits; none means all
    of_model: ClassVar[bool] = True  # whether z is made of numbers of the [model]


class Next(OutputTable):
    """``[output] name = "next"``: how unlikely some tokens are as the next one."""

    kinds = ("causal-lm",)
    name: Literal["next"] = Field(
        description="z = -ln of the probability that a target is the next token after the input."
    )
    targets: Targets = Field(description="Texts of one token each, or token ids.")
    after: TextOrIds | None = Field(
        None, description="Fixed text or token ids between every input and the target."
    )
    against: Against | None = Field(
        None,
        description='Other such tokens, or `"others"` (all that are not targets): z = ln '
        "P(against) - ln P(targets), the log-odds. Low z: the targets are likely. Against the "
        'others, with `aggregate = "max"`, z < 0 means that a target is the likeliest next token.',
    )
    aggregate: Literal["sum", "max"] = Field(
        "sum", description="P of several tokens: their sum, or the likeliest one's."
    )


class Text(OutputTable):
    """``[output] name = "text"``: how unlikely a text is after the input."""

    kinds = ("causal-lm",)
    name: Literal["text"] = Field(
        description="z = the mean loss per token of a text that follows the input."
    )
    text: TextOrIds = Field(description="The text, or its token ids.")


class Difference(OutputTable):
    """``[output] name = "difference"``: where two models differ."""

    name: Literal["difference"] = Field(
        description="z = the model's own output minus that of another model of the same inputs."
    )
    other: Model = Field(
        description="The other model: a table like `[model]`. `length`, `prefix` and `tokens` are "
        "those of `[model]` if left out."
    )


_CLASS: Any = {"class": (int, Field(ge=0, le=2**31 - 1, description="Counted from 0."))}
_WithClass = create_model("_WithClass", __base__=OutputTable, **_CLASS)
"""A table with the key `class`, which is a word of Python."""


class Classifier(_WithClass):
    """``[output] name = "classifier"``: a text classifier's judgement of the inputs' texts."""

    kinds, of_model = ("causal-lm", "python"), False
    name: Literal["classifier"] = Field(
        description="z = a text classifier's logit of a class, given the text of the input with "
        "its prefix, in the classifier's own tokens; longer texts than it takes are cut."
    )
    path: PathText = Field(
        description="Folder of a Hugging Face text classifier with its tokenizer, such as a "
        "judge or a reward model."
    )


class PythonOutput(OutputTable):
    """``[output] name = "python"``: the user's own function."""

    of_model = False
    name: Literal["python"] = Field(description="z is computed by a function of your own.")
    function: FunctionName = Field(
        description='`"module:function"`; `function(x)` or `function(x, texts)` returns z: '
        "tensors int64 [n, D] of values as in the run file, and float32 [n]; texts include the "
        "prefix."
    )


Output = Annotated[
    Next | Text | Difference | Classifier | PythonOutput, Field(discriminator="name")
]


def problem(output: Any, kind: str) -> str:
    """Return why an output does not fit a kind of model; "" if it does."""
    if output is None or not output.kinds or kind in output.kinds:
        return ""
    fits = " or ".join(f'"{one}"' for one in output.kinds)
    return f'output.name = "{output.name}" is for model.kind = {fits}, not "{kind}"'


def models_of(output: OutputTable | None, model: Table) -> list[Table]:
    """Return the models whose numbers z is made of."""
    of_model = [model] if output is None or output.of_model else []
    return [*of_model, *([output.other] if isinstance(output, Difference) else [])]


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
