"""``[space]``: which inputs exist."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field, field_validator

from omniinput_hpc.config.table import Table

Allowed = Literal["tokenizer"] | None
"""The values that all sites may take; None means all."""


class Space(Table):
    """``[space]``: which inputs exist."""

    allowed: Literal["tokenizer"] | list[list[int]] | None = Field(
        None,
        description='`"tokenizer"`: only values that are tokens of the model\'s tokenizer. By '
        "default the padding of a vocabulary counts as inputs, too. Probabilities "
        "stay those among all values; the run file holds token ids. Or a list per site of the "
        "values that it may take.",
    )
    pattern: str | None = Field(
        None,
        description="Regular expression in Rust's syntax: only inputs whose whole text, without "
        "the prefix, matches it ([more](methods.md#constrained-spaces)).",
    )

    canonical: bool | None = Field(
        None,
        description="Only sequences that the model's own tokenizer makes of their text, one per "
        "text ([more](methods.md#canonical-sequences)). Left out: all sequences of tokens.",
    )

    @field_validator("canonical")
    @classmethod
    def _or_left_out(cls, given: bool | None) -> bool | None:
        return given or None

    @field_validator("allowed", mode="before")
    @classmethod
    def _is_allowed(cls, given: Any) -> Any:
        for number, values in enumerate(given if isinstance(given, list) else [], 1):
            if not isinstance(values, list) or any(type(v) is not int or v < 0 for v in values):
                raise ValueError(f"expected a list of values for each site, but {number} is not")
            if not values:
                raise ValueError(f"list {number} is empty: each site needs a value")
        if given not in (None, "tokenizer") and not isinstance(given, list):
            raise ValueError(f'expected "tokenizer", or a list of values per site, found {given!r}')
        return given

    @property
    def constraint(self) -> str:
        """The key that leaves out inputs of the sites' values, for messages; "" if none does."""
        lists = "a list in space.allowed" if isinstance(self.allowed, list) else ""
        lists = "space.canonical" if self.canonical else lists
        return lists if self.pattern is None else "space.pattern"

    def problem(self, config: Any) -> str:
        """Return why a run cannot keep to the constraint; "" if it can."""
        key, method, kind = self.constraint, config.sampler.method, config.model.kind
        if not key:
            return ""
        if config.law is not None:
            return f"{key} is for inputs that all weigh the same; leave out [law]"
        if config.sampler.weighs_draws:
            return (
                f'sampler.method = "{method}" draws from the model, which does not keep to {key}; '
                'set it to "parallel-tempering"'
            )
        if "lm-conditional" in config.kernel.names:
            return f'kernel.name = "lm-conditional" does not keep to {key}; leave [kernel] out'
        if self.canonical and kind not in ("causal-lm", "sequence-classifier"):
            return (
                f'space.canonical is for models with a tokenizer, not for model.kind = "{kind}"; '
                "leave it out"
            )
        if key == "space.pattern" and kind == "image-classifier":
            return "space.pattern is for models whose values stand for text"
        return ""
