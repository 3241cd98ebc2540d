"""Whether a Hugging Face folder may be given to transformers: files, settings, sizes. No torch.

transformers believes what config.json says: it builds 100,000 layers, reads other files that are
named there, and waits for a pipe. Here that is refused before it is asked.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from omniinput_hpc.errors import UserError
from omniinput_hpc.untrusted.files import irregular, read_bytes
from omniinput_hpc.untrusted.parsing import leaves, parse_json
from omniinput_hpc.untrusted.safetensors_header import Tensor, read_header

Tensors = Mapping[str, Tensor]
"""Tensors of all weight files of a folder, by name."""

MAX_SETTINGS_BYTES = 1 << 24
MAX_VOCABULARY = 1 << 24
MAX_LAYERS = 2000
"""The deepest language models have some 130; each layer is built as Python objects."""
MAX_COUNT = 1 << 20
MAX_NUMBER = 2**31 - 1
MAX_SURPLUS = 2
"""A model may have so many times the numbers that its files hold (tied weights are stored once)."""
MAX_SURPLUS_QUANTIZED = 16
"""Where `quantization_config` says that the files pack several numbers into one."""
MAX_BUFFERS = 1 << 28
"""Numbers of tables that are made and not read (a causal mask), where the weights are fewer."""

_LAYERS = re.compile(r"layer|block|depth|types|loop|group")
_SIZES = re.compile(r"size|dim|token|window|norm|chunk|stride|length|position|theta|factor")
_COUNTS = re.compile(r"^(num|n)_|expert|label")
_DEPTHS = ("num_hidden_layers", "n_layer", "n_layers", "num_layers")
_ELSEWHERE = {
    "configuration_files": "other files of settings, which are not read",
    "transformers_weights": "a file of weights, which is not read",
}
"""Keys of config.json that would make transformers read files that are not checked here."""
_POSITIVE = (
    "n_layer", "n_layers", "n_embd", "n_head", "n_heads", "n_positions", "num_hidden_layers",
    "hidden_size", "num_attention_heads", "max_position_embeddings",
)  # fmt: skip
_TYPES: dict[str, tuple[tuple[type, ...], str]] = {
    "id2label": ((dict, type(None)), "a table"),
    "quantization_config": ((dict, type(None)), "a table"),
    "rope_scaling": ((dict, type(None)), "a table"),
    "activation_function": ((str,), "a name"),
    "hidden_act": ((str,), "a name"),
    "attn_implementation": ((str, dict, type(None)), "a name"),
    "dtype": ((str, dict, type(None)), "a name"),
    "n_inner": ((int, type(None)), "a whole number"),
}
_FRACTIONS = re.compile(r"(^|_)p?drop(out)?$|_eps(ilon)?$")
_METHODS = {"to_dict", "to_diff_dict", "to_json_string", "update", "from_dict", "save_pretrained"}
"""What a key would take the place of, in transformers' object of these settings."""
_INDEX = "model.safetensors.index.json"
_SHARD = re.compile(r"shard-[0-9]{5}-model-.*\.safetensors")


def read_settings(folder: Path, name: str) -> dict[str, Any]:
    """Return the table that a JSON file of a model folder holds.

    A `UserError` says that the file is missing, broken, no regular file, or holds something else.
    """
    file = folder / name
    if not os.path.exists(file):
        raise UserError(f"model.path = {folder}: the folder has no {name}")
    try:
        settings = parse_json(read_bytes(file, "file of settings", MAX_SETTINGS_BYTES))
    except ValueError as error:
        raise UserError(f"{file} is not valid JSON: {error}") from None
    if not isinstance(settings, dict):
        raise UserError(f"{file} does not hold a table of settings")
    return settings


def check_files(folder: Path) -> None:
    """Raise a `UserError` where transformers would wait for a file, or read more than a model.

    A folder may hold regular files and folders alone; an index names weights in the folder.
    """
    try:
        entries = sorted(folder.iterdir())
    except OSError as error:
        raise UserError(f"model.path = {folder} cannot be read: {error.strerror}") from None
    for entry in entries:
        what = irregular(entry)
        if what:
            raise UserError(f"{entry} cannot be read: it is {what}, not a regular file")
        if _SHARD.fullmatch(entry.name):
            raise UserError(f"{entry}: distributed checkpoints are not read; save the model whole")
    if os.path.exists(folder / "adapter_config.json"):
        raise UserError(
            f"model.path = {folder}: it holds an adapter (adapter_config.json), which is not read; "
            "merge it into the model (merge_and_unload) and save that"
        )
    if os.path.exists(folder / "generation_config.json"):
        read_settings(folder, "generation_config.json")
    if os.path.exists(folder / _INDEX):
        names = read_settings(folder, _INDEX).get("weight_map")
        if not isinstance(names, dict) or not all(map(_is_weight_file, names.values())):
            raise UserError(f"{folder / _INDEX}: weight_map must name *.safetensors of the folder")


def check_settings(config: Mapping[str, Any], file: Path) -> None:
    """Check config.json before transformers' classes are made of it.

    A `UserError` names a key that calls for code or for other files, or a number that is too large.
    """
    if "auto_map" in config:
        raise UserError(
            f"{file.parent} requires custom code (auto_map, trust_remote_code), which is never "
            "run; many such models have a twin without it (allenai/OLMo-7B-hf for OLMo-7B)"
        )
    for key, what in _ELSEWHERE.items():
        if key in config:
            raise UserError(f"{file}: {key} names {what}; remove it")
    model_type = config.get("model_type")
    if not isinstance(model_type, str) or not re.fullmatch(r"[\w.-]{1,60}", model_type):
        raise UserError(f"{file} has no usable model_type")
    for key, value in config.items():
        wrong = _wrong_type(key, value)
        if wrong:
            shown = repr(value)
            raise UserError(f"{file}: {key} = {shown[:60]} is not usable; it must be {wrong}")
    n_embd, n_head = config.get("n_embd", 1), config.get("n_head", 1)
    if n_embd % n_head:
        raise UserError(f"{file}: n_embd = {n_embd} is no multiple of n_head = {n_head}")
    for key, value in leaves(config):
        if "implementation" in key and isinstance(value, str) and "/" in value:
            raise UserError(f"{file}: {key} names code of a hub, which is never run; remove it")
        if type(value) is int and abs(value) > _limit(key):
            found = f"{value:,}" if abs(value) < 2**64 else f"a number of {len(str(value))} digits"
            raise UserError(f"{file}: {key} is too large: {found}, at most {_limit(key):,}")


def vocabulary_size(config: Mapping[str, Any], file: Path) -> int:
    """Return vocab_size of config.json; a `UserError` where it is no usable number."""
    size = config.get("vocab_size")
    if type(size) is not int or not 2 <= size <= MAX_VOCABULARY:
        raise UserError(f"{file} has no usable vocab_size")
    return size


def number_of_classes(config: Mapping[str, Any], file: Path) -> int:
    """Return how many classes config.json speaks of; a `UserError` where it is no number."""
    labels = config.get("id2label") or config.get("num_labels", 2)
    n_classes = len(labels) if isinstance(labels, dict) else labels
    if type(n_classes) is not int or not 1 <= n_classes <= MAX_COUNT:
        raise UserError(f"{file} has no usable id2label or num_labels")
    return n_classes


def read_tensors(weights: list[Path]) -> dict[str, Tensor]:
    """Return all tensors of a folder's safetensors files; a `UserError` names a broken one."""
    return {name: tensor for file in weights for name, tensor in read_header(file).items()}


def check_sizes(config: Mapping[str, Any], tensors: Tensors, file: Path) -> None:
    """Raise a `UserError` where config.json speaks of more than the weight files hold."""
    largest = max((size for t in tensors.values() for size in t.shape), default=0)
    vocabulary = config.get("vocab_size")
    if type(vocabulary) is int and vocabulary > largest:
        raise UserError(
            f"{file}: vocab_size is {vocabulary:,}, and no tensor of the weights has as many rows"
        )
    for key in _DEPTHS:
        depth = config.get(key)
        if type(depth) is int and depth > len(tensors):
            raise UserError(
                f"{file}: {key} is {depth:,}, and the weights hold {len(tensors):,} tensors"
            )


def check_numbers(
    n_model: int, n_buffers: int, tensors: Tensors, config: Mapping[str, Any], folder: Path
) -> None:
    """Raise a `UserError` where a model has far more numbers than its files hold.

    `n_model` are those of its weights, `n_buffers` those of its other tables.
    """
    held = sum(tensor.n_numbers for tensor in tensors.values())
    surplus = MAX_SURPLUS_QUANTIZED if config.get("quantization_config") else MAX_SURPLUS
    if n_model > surplus * held:
        raise UserError(
            f"model.path = {folder}: config.json describes a model of {n_model:,} weights, and the "
            f"safetensors hold {held:,}; are they of this model?"
        )
    if n_buffers > max(MAX_BUFFERS, n_model):
        raise UserError(
            f"model.path = {folder}: config.json describes a model with tables of {n_buffers:,} "
            f"numbers beside its {n_model:,} weights; are its positions right?"
        )


def _wrong_type(key: str, value: Any) -> str | None:
    """Return what a key must be that transformers would fail on, seconds later; else None.

    Keys that differ between models are left to transformers.
    """
    if key.startswith("__") or key in _METHODS:
        return "removed, it is no setting"
    if key in _POSITIVE and (type(value) is not int or value < 1):
        return "a whole number of at least 1"
    if _FRACTIONS.search(key) and (
        value is not None
        and (isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= 1)
    ):
        return "a number from 0 to 1"
    kinds, words = _TYPES.get(key, ((object,), ""))
    return None if isinstance(value, kinds) else words


def _limit(key: str) -> int:
    """Return how large a whole number of config.json may be, by its key ("text_config.n_layer")."""
    name = key.rpartition(".")[2].lower()
    if _SIZES.search(name):
        return MAX_NUMBER
    if _LAYERS.search(name):
        return MAX_LAYERS
    return MAX_COUNT if _COUNTS.search(name) else MAX_NUMBER


def _is_weight_file(name: Any) -> bool:
    return isinstance(name, str) and "/" not in name and name.endswith(".safetensors")
