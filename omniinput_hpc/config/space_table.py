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
        description='`"tokenizer"`: only tokens of the model\'s tokenizer, without the padding of '
        "the vocabulary. Probabilities stay those among all values. Or a list per site of the "
        "values that it may take.",
    )
    pattern: str | None = Field(
        None,
        description="Regular expression in Rust's syntax: only inputs whose whole text, without "
        "the prefix, [matches it](methods.md#constrained-spaces).",
    )
    end: Literal["eos"] | int | None = Field(
        None,
        description='`"eos"` (the tokenizer\'s end-of-text token), or a token id: inputs are '
        "[texts that end](methods.md#texts-that-end), of at most as many tokens as there are "
        "sites.",
    )

    @field_validator("end", mode="before")
    @classmethod
    def _is_end(cls, given: Any) -> Any:
        if given is not None and given != "eos" and (type(given) is not int or given < 0):
            raise ValueError(f'expected "eos" or a token id, found {given!r}')
        return given

    canonical: bool | None = Field(
        None,
        description="Only [sequences that the model's own tokenizer makes]"
        "(methods.md#canonical-sequences) of their text, one per text.",
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
        ends = lists if self.end is None else "space.end"
        return ends if self.pattern is None else "space.pattern"

    def problem(self, config: Any) -> str:
        """Return why a run cannot keep to the constraint; "" if it can."""
        key, method, kind = self.constraint, config.sampler.method, config.model.kind
        if not key:
            return ""
        if config.law is not None and self.end is None:
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
        return "" if self.end is None else self._end_problem(config)

    def _end_problem(self, config: Any) -> str:
        """Return why inputs cannot be texts that end."""
        kind, output = config.model.kind, None if config.output is None else config.output.name
        if self.pattern is not None or isinstance(self.allowed, list):
            return "space.end does not go with space.pattern or lists in space.allowed"
        if self.canonical:
            return "space.end does not go with space.canonical"
        if kind not in ("causal-lm", "python"):
            return f'space.end is for texts of a language model, not for model.kind = "{kind}"'
        if self.end == "eos" and kind == "python":
            return 'space.end = "eos": a python model has no tokenizer; give the value that ends'
        if output in ("next", "text"):
            return f'output.name = "{output}" reads what follows an input; leave out space.end'
        prompt = None if config.law is None else config.law.prompt
        if prompt is not None and prompt.kind not in ("data", "uniform"):
            return (
                f'law.prompt.kind = "{prompt.kind}" may end before the prompt does; with space.end '
                'choose "data" or "uniform"'
            )
        return ""
