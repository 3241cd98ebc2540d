"""Check what an output uses, before a run and without torch; its part of the fingerprint."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from omniinput_hpc import plugins
from omniinput_hpc.config import Config, Table
from omniinput_hpc.config.output import Classifier, Difference, Next, PythonOutput, Text
from omniinput_hpc.errors import UserError
from omniinput_hpc.models import input_space, table
from omniinput_hpc.models.language import hf_folder, tokenizer
from omniinput_hpc.models.language.hf_architectures import check_architecture
from omniinput_hpc.models.language.tokenizer import Vocabulary

PATH, FUNCTION = "output.path", "output.function ="
_KEY = re.compile(r"(?<![\w/.-])model\.(?=\w+ )")
"""The table that a message names before a key."""


@dataclass(frozen=True)
class Tokens:
    """The ids of an output's tokens: those that z is about, and those before or against them."""

    targets: list[int]
    after: list[int]
    against: list[int]


def tokens_of(output: Next | Text, folder: Path, n_vocab: int, words: Vocabulary | None) -> Tokens:
    """Return the ids of an output's tokens; a `UserError` names what cannot be used."""
    if isinstance(output, Text):
        ids = hf_folder.ids_of(output.text, "output.text", folder, n_vocab, words)
        return Tokens(ids, [], [])
    targets = _single(output.targets, "output.targets", folder, n_vocab, words)
    if output.against == "others":
        against = sorted(set(range(n_vocab)) - set(targets))
    else:
        against = _single(output.against or [], "output.against", folder, n_vocab, words)
    both = sorted({*targets} & {*against})
    if both:
        name = str(both[0]) if words is None else words.name_of(both[0])
        raise UserError(f"output.against: the token {name} is among output.targets, too")
    after = hf_folder.ids_of(output.after or [], "output.after", folder, n_vocab, words)
    return Tokens(targets, after, against)


def _single(
    given: Sequence[str | int], key: str, folder: Path, n_vocab: int, words: Vocabulary | None
) -> list[int]:
    """Return the ids of texts of one token each, without repetitions."""
    found = []
    for one in given:
        ids = hf_folder.ids_of(one if isinstance(one, str) else [one], key, folder, n_vocab, words)
        if len(ids) > 1 and words is not None:
            pieces = ", ".join(map(repr, words.pieces(ids)))
            raise UserError(
                f"{key}: {one!r} is {len(ids)} tokens of {folder} ({pieces}); give texts of one "
                'token, or use output.name = "text"'
            )
        found += ids
    return list(dict.fromkeys(found))


def preflight(config: Config, about: Mapping[str, Any]) -> dict[str, Any]:
    """Return what `models.table.preflight` found of the model, with what the output adds.

    Raises a `UserError` that names what is missing or does not fit.
    """
    output, found = config.output, {**about}
    assert output is not None
    parts: list[str | list[str]] = [f"output {output.name}:"]
    if isinstance(output, Next | Text):
        folder = Path(about["folder"])
        n_vocab = hf_folder.n_vocab_of(folder)
        tokens = tokens_of(output, folder, n_vocab, tokenizer.read(folder))
        parts += [_digest([output.model_dump(), vars(tokens)])]
    elif isinstance(output, Difference):
        other = _other(config, output.other, about)
        parts += [*table.options_text(output.other), other["fingerprint"] or other["files"]]
        found["bytes"] = _sum(about["bytes"], other["bytes"])
        found["source"] = "; ".join(filter(None, [about["source"], other["source"]]))
    elif isinstance(output, Classifier):
        folder, n_bytes = _judge(output)
        files = [str(file) for file in sorted(folder.iterdir()) if _is_read(file)]
        parts += [str(getattr(output, "class")), files]
        found["bytes"] = _sum(about["bytes"], n_bytes)
    elif isinstance(output, PythonOutput):
        plugins.check_module(output.function, FUNCTION)
        parts += [f"{output.function} {plugins.source_of(output.function)}"]
    return {**found, "parts": parts}


def require_same_inputs(config: Config, other: Table, shapes: Sequence[tuple[int, int]]) -> None:
    """Raise a `UserError` if two models, with (n_sites, n_values) each, have different inputs."""
    of_model, of_other = shapes
    config = config.model_copy(update={"law": None, "space": None})  # the run's, not a model's
    input_space.require_same(
        input_space.space_of("[model]", config, *of_model),
        input_space.space_of("output.other", config.model_copy(update={"model": other}), *of_other),
    )


def _other(config: Config, other: Table, about: Mapping[str, Any]) -> dict[str, Any]:
    """Return what is found of the other model of a difference."""
    with named_as("output.other"):
        found = table.preflight_kind(other, config.allowed, hashed=False)
    shapes = [(of["n_sites"], of["n_values"]) for of in (about, found)]
    if all(n is not None for shape in shapes for n in shape):
        require_same_inputs(config, other, shapes)
    factory = getattr(other, "factory", None)
    return {**found, "source": plugins.source_of(factory) if factory else ""}


@contextmanager
def named_as(place: str) -> Iterator[None]:
    """Let messages on the keys of ``[model]`` name those of another table."""
    try:
        yield
    except UserError as error:
        raise UserError(_KEY.sub(f"{place}.", str(error))) from None


def _judge(output: Classifier) -> tuple[Path, int]:
    """Return the folder of a text classifier and the bytes of its weights, in float32."""
    folder = hf_folder.resolve(output.path, PATH)
    if folder.is_file():
        raise UserError(f"{PATH} = {folder}: a GGUF file is not a text classifier")
    with named_as("output"):
        config, tensors, _ = hf_folder.check(folder, output.path)
    settings = hf_folder.settings_file(folder)
    check_architecture(config["model_type"], "sequence-classifier", settings)
    tokenizer.require(tokenizer.read(folder), folder, PATH)
    return folder, sum(tensor.n_numbers for tensor in tensors.values()) * 4


def _is_read(file: Path) -> bool:
    return file.is_file() and file.suffix in (".json", ".safetensors", ".txt", ".model")


def _sum(one: int | None, other: int | None) -> int | None:
    return None if one is None or other is None else one + other


def _digest(value: Any) -> str:
    return hashlib.sha256(json.dumps(value).encode()).hexdigest()[:16]
