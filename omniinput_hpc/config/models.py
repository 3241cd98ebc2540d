"""``[model]``: one table a family of models, told apart by ``kind``."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field, field_validator, model_validator

from omniinput_hpc.config.table import Table, WholePositive

DTYPES = Literal["float32", "bfloat16", "float16"]


class CausalLm(Table):
    """``[model] kind = "causal-lm"``: a Hugging Face decoder.

    Attributes
    ----------
    path : a local folder, or the name of a model in Hugging Face's cache
    length : tokens of an input, D; a prefix is not counted
    dtype : of the weights; log-softmax and sums are in float32 whatever it is
    prefix : fixed tokens in front of every input: text, or token ids
    tokens : which tokens a site may hold
    """

    kind: Literal["causal-lm"]
    path: Annotated[str, Field(min_length=1)]
    length: Annotated[int, Field(ge=2)]
    dtype: DTYPES = "float32"
    prefix: (
        Annotated[str, Field(min_length=1)]
        | Annotated[list[Annotated[int, Field(ge=0)]], Field(min_length=1)]
        | None
    ) = None
    tokens: Literal["all", "no-special"] = "all"


class SequenceClassifier(Table):
    """``[model] kind = "sequence-classifier"``: an encoder with classes, as DistilBERT on SST-2.

    Attributes
    ----------
    path, dtype : as for ``causal-lm``
    length : tokens of an input, [CLS] and [SEP] included, so that D = length - 2
    target : the class
    output : its logit; its logit minus the other's, of two; or its log-softmax
    sign : z = sign * output
    """

    kind: Literal["sequence-classifier"]
    path: Annotated[str, Field(min_length=1)]
    length: Annotated[int, Field(ge=3)]
    target: Annotated[int, Field(ge=0)]
    output: Literal["logit", "difference", "log-softmax"] = "logit"
    sign: Literal[-1, 1] = 1
    dtype: DTYPES = "float32"


class ImageClassifier(Table):
    """``[model] kind = "image-classifier"``: a network that gives one number per class.

    Attributes
    ----------
    path : a folder with model.json and model.safetensors; or a ``torch.export``ed program
        (``.pt2``), or, with `factory`, a safetensors file
    target, label, sign : z = sign * (output of class `label`, or its log-softmax)
    shape, n_values : of a model of one's own: [height, width] or [height, width, channels]
    factory, options : the user's own ``module:function`` and its keyword arguments
    """

    kind: Literal["image-classifier"]
    path: Annotated[str, Field(min_length=1)]
    target: Literal["logit", "log-softmax", "log-likelihood"] = "logit"
    label: Annotated[int, Field(ge=0)] = 0
    sign: Literal[-1, 1] = 1
    factory: str | None = None
    options: dict[str, Any] = Field(default_factory=dict)
    shape: Annotated[list[WholePositive], Field(min_length=2, max_length=3)] | None = None
    n_values: Annotated[int, Field(ge=2, le=65536)] | None = None

    @property
    def own(self) -> bool:
        """Whether the network is the user's own, so that no model.json describes it."""
        return self.factory is not None or self.path.endswith(".pt2")

    @field_validator("factory")
    @classmethod
    def _names_a_function(cls, value: str | None) -> str | None:
        return value if value is None else function_name(value)

    @model_validator(mode="after")
    def _one_description(self) -> ImageClassifier:
        if self.own and (self.shape is None or self.n_values is None):
            raise ValueError(
                "a program (.pt2) or a factory also wants shape = [height, width] or "
                "[height, width, channels], and n_values, the number of grey levels"
            )
        if not self.own and (self.shape is not None or self.n_values is not None):
            raise ValueError("shape and n_values stand in the folder's model.json; leave them out")
        if self.factory is None and self.options:
            raise ValueError("options belong to a factory")
        return self


def function_name(value: str) -> str:
    """Return ``module:function`` as it is, or raise ValueError where it is no such name."""
    module, colon, function = value.partition(":")
    if not (colon and function.isidentifier() and all(map(str.isidentifier, module.split(".")))):
        raise ValueError('expected "module:function"')
    return value


class PythonModel(Table):
    """``[model] kind = "python"``: an object made by the user's own ``module:function``."""

    kind: Literal["python"]
    factory: str
    options: dict[str, Any] = Field(default_factory=dict)

    @field_validator("factory")
    @classmethod
    def _names_a_function(cls, value: str) -> str:
        return function_name(value)


Model = Annotated[
    CausalLm | ImageClassifier | PythonModel | SequenceClassifier, Field(discriminator="kind")
]
