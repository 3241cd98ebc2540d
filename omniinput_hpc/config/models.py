"""``[model]``: one table per family of models, distinguished by ``kind``."""

from __future__ import annotations

from typing import Annotated, Any, Literal, TypeVar

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
    ValidationError,
    field_validator,
    model_validator,
)

from omniinput_hpc.config.paths import PathText
from omniinput_hpc.config.table import MAX_SITES, Positive, Table, WholePositive
from omniinput_hpc.errors import UserError
from omniinput_hpc.plugins import split_name

DTYPES = Literal["float32", "bfloat16", "float16"]
ENGINES = Literal["torch", "openvino"]
DTYPE = "Of the weights. Log-probabilities and sums are always in float32."
NOT_GGUF = "As for a `causal-lm`, but not GGUF."
AROUND = (
    "Number of tokens of an input. It includes those that the tokenizer adds at the ends, such as "
    "[CLS] and [SEP]. The others are the sites. A site may hold any token; attention sees all, "
    "even [PAD]."
)
BEFORE = (
    "Fixed text or token ids before every input, in place of the tokenizer's own: the beginning of "
    "a chat template, for example."
)
AFTER = "The same after every input."
TOKENS = (
    'Tokens that a site may hold. `"no-special"` leaves out special tokens and the padding of the '
    "vocabulary; the others are numbered anew. Probabilities stay those among all tokens."
)
CLASS = (
    'The class, counted from 0; 0 if the model has one output. `"any"`: the class with the largest '
    "output."
)
OPTIONS = "Keyword arguments of the factory."
NOISE = Field(
    False,
    description="Whether z may [differ between evaluations]"
    "(running.md#models-whose-output-is-not-a-function-of-the-input) of an input.",
)
ENGINE: Any = Field(
    "torch",
    description="What evaluates whole inputs on a CPU, in `rescore` and in the moves of a "
    'classifier: `"torch"`, or `"openvino"` (needs the extra `openvino`), which [can be '
    "faster](results/speed.md#beside-other-codes). Everything else uses torch.",
)
NO_PROGRAMS = (
    "torch.export programs (.pt2) are not supported: give the network as factory = "
    '"module:function" and its weights as a .safetensors file'
)


def _function_name(value: str) -> str:
    split_name(value)
    return value


def _class_number(value: Any) -> Any:
    if value != "any" and (type(value) is not int or not 0 <= value < 2**31):
        raise ValueError(f'expected a number of at least 0, or "any", found {value!r}')
    return value


def _rule_name(value: str) -> str:
    return value if value.startswith(TEXT_RULES) else _function_name(value)


ClassNumber = Annotated[int | Literal["any"], BeforeValidator(_class_number)]
FunctionName = Annotated[str, AfterValidator(_function_name)]
TEXT_RULES = ("regex:", "contains:", "words:")
"""What names of rules begin with that are not functions."""
RuleName = Annotated[str, AfterValidator(_rule_name)]
Prefix = (
    Annotated[str, Field(min_length=1)]
    | Annotated[list[Annotated[int, Field(ge=0, le=2**31 - 1)]], Field(min_length=1)]
    | None
)
"""A fixed text, or fixed token ids."""


class CausalLm(Table):
    """``[model] kind = "causal-lm"``: a Hugging Face decoder."""

    kind: Literal["causal-lm"] = Field(description="A Hugging Face decoder.")
    path: PathText = Field(
        description="Hugging Face folder with safetensors, or the name of a downloaded model "
        "(`hf download NAME`; a run never uses the network). Or a GGUF file (Llama, Qwen2, Qwen3), "
        "or a folder with one and no config.json; its weights are dequantized.",
    )
    length: int = Field(
        ge=2,
        le=MAX_SITES,
        description="Tokens (sites) of an input, without the prefix.",
    )
    dtype: DTYPES = Field("float32", description=DTYPE)
    prefix: Prefix = Field(
        None,
        description="Fixed text or token ids before every input. With a prefix, z is the mean over "
        "all tokens; without one, the first token is not predicted.",
    )
    tokens: Literal["all", "no-special"] = Field(
        "all",
        description=TOKENS,
    )
    engine: ENGINES = ENGINE
    noise: bool = NOISE


class SequenceClassifier(Table):
    """``[model] kind = "sequence-classifier"``: classes, or a reward, of a text."""

    kind: Literal["sequence-classifier"] = Field(
        description="A Hugging Face classifier of texts, such as DistilBERT on SST-2, or a reward "
        "model."
    )
    path: PathText = Field(description=NOT_GGUF)
    length: int = Field(
        ge=2,
        le=MAX_SITES,
        description=AROUND,
    )
    target: ClassNumber = Field(
        description=CLASS,
    )
    output: Literal["logit", "difference", "log-softmax", "log-odds"] = Field(
        "logit",
        description="z: the logit of class `target`; that minus the logit of the other class (of "
        "two); the log-softmax, ln of its probability; or the log-odds, ln of its probability over "
        "that of all others.",
    )
    sign: Literal[-1, 1] = Field(1, description="z is `sign` times the output.")
    dtype: DTYPES = Field("float32", description=DTYPE)
    prefix: Prefix = Field(
        None,
        description=BEFORE,
    )
    suffix: Prefix = Field(None, description=AFTER)
    tokens: Literal["all", "no-special"] = Field("all", description=TOKENS)
    engine: ENGINES = ENGINE
    noise: bool = NOISE


class MaskedLm(Table):
    """``[model] kind = "masked-lm"``: a masked language model, of proteins for example."""

    kind: Literal["masked-lm"] = Field(
        description="A Hugging Face masked language model, such as BERT or ESM-2: z is the mean "
        "loss of each token given all others (pseudo-log-likelihood)."
    )
    path: PathText = Field(description=NOT_GGUF)
    length: int = Field(ge=2, le=MAX_SITES, description=AROUND)
    tokens: Literal["all", "no-special"] | Annotated[list[str], Field(min_length=2)] = Field(
        "all",
        description="As for a `causal-lm`, or a list of the tokens: the 20 amino acids, for "
        "example.",
    )
    sites: Annotated[list[Annotated[int, Field(ge=0)]], Field(min_length=1)] | None = Field(
        None, description="The sites whose loss counts, from 0. Default: all."
    )
    dtype: DTYPES = Field("float32", description=DTYPE)
    prefix: Prefix = Field(None, description=BEFORE)
    suffix: Prefix = Field(None, description=AFTER)
    noise: bool = NOISE


class ImageClassifier(Table):
    """``[model] kind = "image-classifier"``: a network with one output per class."""

    kind: Literal["image-classifier"] = Field(
        description="A network with one output per class, or one in all. Sites are the pixels' "
        "grey levels: rows, then columns, then channels."
    )
    path: PathText = Field(
        description="Folder with model.json (architecture `cnn`, `mlp` or `resnet`) and "
        "model.safetensors; or a Hugging Face folder of an image classifier (ViT, ResNet, ...) "
        "with preprocessor_config.json; with `factory`, a safetensors file.",
    )
    target: Literal["logit", "log-softmax", "log-odds", "log-likelihood"] = Field(
        "logit",
        description="z: the logit, log-softmax or log-odds of class `label`, as for a "
        "`sequence-classifier`; or the log-likelihood of an energy-based model, up to a constant.",
    )
    label: ClassNumber = Field(
        0,
        description=CLASS,
    )
    sign: Literal[-1, 1] = Field(1, description="z is `sign` times the output.")
    factory: FunctionName | None = Field(
        None,
        description='Your `"module:function"` that returns a `torch.nn.Module` of float32 [W, '
        "channels, height, width] in [0, 1], or normalized: level v is v / (n_values - 1).",
    )
    options: dict[str, Any] = Field(default_factory=dict, description=OPTIONS)
    shape: Annotated[list[WholePositive], Field(min_length=2, max_length=3)] | None = Field(
        None,
        description="[height, width] or [height, width, channels]. Required with `factory`. "
        "Hugging Face: by default what the processor gives the network; pictures of another shape "
        "are resized inside the model, and one channel stands for three.",
    )
    n_values: Annotated[int, Field(ge=2, le=65536)] | None = Field(
        None, description="Number of grey levels. Required with `factory`; 256 for Hugging Face."
    )
    mean: Annotated[list[float], Field(min_length=1, max_length=3)] | None = Field(
        None,
        description="With `factory`, as in its training: what is subtracted from the pixels in "
        "[0, 1], a number per channel or one for all. Default: 0.",
    )
    std: Annotated[list[Positive], Field(min_length=1, max_length=3)] | None = Field(
        None, description="By what they are divided then, like `mean`. Default: 1."
    )
    noise: bool = NOISE

    @field_validator("path")
    @classmethod
    def _is_no_program(cls, value: str) -> str:
        if value.endswith(".pt2"):
            raise ValueError(NO_PROGRAMS)
        return value

    @model_validator(mode="after")
    def _one_description(self) -> ImageClassifier:
        if self.factory is not None:
            if self.shape is None or self.n_values is None:
                raise ValueError(
                    "a factory also requires shape = [height, width] or [height, width, channels], "
                    "and n_values, the number of grey levels"
                )
            return self
        for name in ("options", "mean", "std"):
            if getattr(self, name):
                raise ValueError(f"{name}: only with a factory")
        return self


class Potts(Table):
    """``[model] kind = "potts"``: fields and couplings of direct coupling analysis."""

    kind: Literal["potts"] = Field(
        description="A Potts model (DCA) of sequences of one length: z is its energy, -sum h_i(a) "
        "- sum J_ij(a, b), so that beta = 1 is the model's own distribution."
    )
    path: PathText = Field(
        description="File of parameters: adabmDCA's text, plmc's binary file, or .npz with h "
        "[L, q] and J [L, L, q, q]."
    )
    alphabet: Annotated[str, Field(min_length=2)] | None = Field(
        None,
        description="A character for each value, in order. Default: what the file names; "
        '"-ACDEFGHIKLMNPQRSTVWY" for 21 values without names, "-ACGU" for 5.',
    )
    noise: bool = NOISE


class PythonModel(Table):
    """``[model] kind = "python"``: an object that the user's own ``module:function`` returns."""

    kind: Literal["python"] = Field(description="An object made by a function of your own.")
    factory: FunctionName = Field(
        description='`"module:function"`; `function(device=..., **options)` returns the model.'
    )
    options: dict[str, Any] = Field(default_factory=dict, description=OPTIONS)
    rounding: Positive | None = Field(
        None,
        description="How much z may differ between evaluations by rounding. Default: that of "
        "float32.",
    )
    noise: bool = NOISE


Model = Annotated[
    CausalLm | ImageClassifier | MaskedLm | Potts | PythonModel | SequenceClassifier,
    Field(discriminator="kind"),
]


SomeTable = TypeVar("SomeTable", bound=Table)


def read_options(options: type[SomeTable], model: Table) -> SomeTable:
    """Return the ``[model]`` table of a run file, or raise a `UserError` that names the key."""
    if isinstance(model, options):
        return model
    try:
        return options.model_validate(model.model_dump(exclude_unset=True))
    except ValidationError as error:
        first = error.errors()[0]
        key = ".".join(map(str, ("model", *first["loc"])))
        raise UserError(f"{key}: {first['msg'].removeprefix('Value error, ')}") from None
