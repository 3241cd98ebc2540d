"""``[model]``: one table a family of models, told apart by ``kind``."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field, field_validator

from omniinput_hpc.config.table import Table


class CausalLm(Table):
    """``[model] kind = "causal-lm"``: a Hugging Face decoder in a local folder."""

    kind: Literal["causal-lm"]
    path: Annotated[str, Field(min_length=1)]
    length: Annotated[int, Field(ge=2)]


class PythonModel(Table):
    """``[model] kind = "python"``: an object made by the user's own ``module:function``."""

    kind: Literal["python"]
    factory: str
    options: dict[str, Any] = Field(default_factory=dict)

    @field_validator("factory")
    @classmethod
    def _names_a_function(cls, value: str) -> str:
        module, colon, function = value.partition(":")
        if not (
            colon and function.isidentifier() and all(map(str.isidentifier, module.split(".")))
        ):
            raise ValueError('expected "module:function"')
        return value


Model = Annotated[CausalLm | PythonModel, Field(discriminator="kind")]
