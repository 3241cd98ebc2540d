"""Check the files, settings and sizes of a Hugging Face folder before transformers reads it.

transformers trusts config.json: it builds 100,000 layers, reads other files that are named there,
and waits for a pipe. These checks, which import no torch, refuse such folders first.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from omniinput_hpc.errors import UserError
from omniinput_hpc.text import first_line
from omniinput_hpc.untrusted.files import irregular, read_bytes
from omniinput_hpc.untrusted.parsing import leaves, parse_json
from omniinput_hpc.untrusted.safetensors_header import Tensor, read_header

Tensors = Mapping[str, Tensor]
"""Tensors of all weight files of a folder, by name."""

MAX_SETTINGS_BYTES = 1 << 24
MAX_VOCABULARY = 1 << 24
MAX_LAYERS = 2000
"""The deepest language models have about 130; each layer is built as Python objects."""
MAX_LAYERS_PER_TENSOR = 10
MAX_COUNT = 1 << 20
MAX_NUMBER = 2**31 - 1
MAX_REAL = 2**53
"""For keys that hold real numbers, whole or not: the base of rotations is not a count."""
MAX_SURPLUS = 2
"""A model may have this many times the numbers in its files (tied weights are stored once)."""
MAX_SURPLUS_QUANTIZED = 16
"""The same if `quantization_config` says that the files pack several numbers into one."""
MAX_BUFFERS = 1 << 28
"""Numbers allowed in tables that are computed, such as a causal mask; more only if the model has as
many weights."""

_REALS = re.compile(r"theta$|(^|_)base$")
_LAYERS = re.compile(r"layer|block|depth|types|loop|group")
_SIZES = re.compile(r"size|dim|token|window|norm|chunk|stride|length|position|theta|factor")
_COUNTS = re.compile(r"^(num|n)_|expert|label")
_ELSEWHERE = {
    "configuration_files": "other settings files, which are not read",
    "transformers_weights": "a file of weights, which is not read",
}
"""Keys of config.json that make transformers read files that are not checked here."""
_NESTED = ("decoder", "generator", "text_config")
"""Keys that may hold the settings of a model's text part, as in transformers' `get_text_config`."""
_METHODS = {"to_dict", "to_diff_dict", "to_json_string", "update", "from_dict", "save_pretrained"}
"""Keys that would overwrite methods of transformers' settings object."""
MULTI_LABEL = "multi_label_classification"
"""The problem_type in config.json of classifiers whose labels are independent."""
MERGE_FIRST = (
    "adapters are not read: merge it into the model (merge_and_unload) and save the result"
)
_ADAPTER_FILES = ("adapter_config.json", "adapter_model.safetensors")
_ADAPTERS = re.compile(r"(^|[._])(lora_[A-Za-z]\w*|base_layer|modules_to_save|ia3_l)(\.|$)")
"""Names of an adapter's tensors, and of those of the model under it (`base_layer`)."""
_PACKED = re.compile(r"F8_.*|F6_.*|F4|I8|U8")
"""Dtypes that hold codes, which only a quantization scheme turns into weights."""
_MASK = re.compile(r"\.(bias|masked_bias|causal_mask|mask)$")
TIMM = "timm_wrapper"
"""transformers' model type for folders of timm."""
_TIMM_READS = re.compile("path|dir|file|url|pretrained")
"""Settings by which timm looks for weights."""
_WHOLE = "model.safetensors"
_INDEX = "model.safetensors.index.json"
_SHARD = re.compile(r"shard-[0-9]{5}-model-.*\.safetensors")


def read_settings(folder: Path, name: str) -> dict[str, Any]:
    """Return the table in a JSON file of a model folder.

    Raises `UserError` if the file is missing, broken, not a regular file, or holds something else.
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
    """Raise a `UserError` if transformers would block on a file, or read more than a model.

    A folder may hold only regular files and folders; an index may name only weights in the folder.
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
            raise UserError(f"{entry}: distributed checkpoints are not read; save the whole model")
    for name in _ADAPTER_FILES:
        if os.path.exists(folder / name):
            raise UserError(f"model.path = {folder}: it holds an adapter ({name}); {MERGE_FIRST}")
    if os.path.exists(folder / "generation_config.json"):
        read_settings(folder, "generation_config.json")
    if os.path.exists(folder / _INDEX):
        names = read_settings(folder, _INDEX).get("weight_map")
        if not isinstance(names, dict) or not all(map(_is_weight_file, names.values())):
            raise UserError(f"{folder / _INDEX}: weight_map must name *.safetensors in the folder")


def check_settings(config: Mapping[str, Any], file: Path) -> None:
    """Check config.json before transformers' classes are made from it.

    Raises `UserError` for a key that requires code or other files, and for a number that is too
    large.
    """
    if "auto_map" in config:
        raise UserError(
            f"{file.parent} requires custom code (auto_map, trust_remote_code), which is never "
            "run; many such models have a version without it (allenai/OLMo-7B-hf for OLMo-7B)"
        )
    for key, what in _ELSEWHERE.items():
        if key in config:
            raise UserError(f"{file}: {key} names {what}; remove it")
    model_type = config.get("model_type")
    if model_type == TIMM:
        _check_timm(config, file)
    if not isinstance(model_type, str) or not re.fullmatch(r"[\w.-]{1,60}", model_type):
        raise UserError(f"{file} has no usable model_type")
    for key in config:
        if key.startswith("__") or key in _METHODS:
            raise UserError(f"{file}: {key} is not a setting; remove it")
    for key, value in leaves(config):
        if "implementation" in key and isinstance(value, str) and "/" in value:
            raise UserError(f"{file}: {key} names code on a hub, which is never run; remove it")
        if type(value) is int and abs(value) > _limit(key):
            found = f"{value:,}" if abs(value) < 2**64 else f"a number of {len(str(value))} digits"
            raise UserError(f"{file}: {key} is too large: {found}, at most {_limit(key):,}")


def _check_timm(config: Mapping[str, Any], file: Path) -> None:
    """Raise a `UserError` if timm is missing, or if its settings make it read other files."""
    missing = [name for name in ("timm", "torchvision") if find_spec(name) is None]
    if missing:
        names = " ".join(missing)
        raise UserError(f"{file.parent} is a folder of timm, which needs: pip install {names}")
    if not re.fullmatch(r"[\w.]{1,100}", str(config.get("architecture") or "")):
        raise UserError(f"{file} has no usable architecture")
    for key in config.get("model_args") or {}:
        if _TIMM_READS.search(key):
            raise UserError(f"{file}: model_args.{key} makes timm read other files; remove it")


def vocabulary_size(config: Mapping[str, Any], file: Path) -> int:
    """Return the number of tokens that a model knows.

    It is in the text settings of config.json, which may be nested. If it is missing there, the
    value comes from transformers' configuration object, whose import takes seconds. Raises
    `UserError` if there is none, or if it is not a usable number.
    """
    text = _text_settings(config)
    size = text["vocab_size"] if "vocab_size" in text else _asked(file, "vocab_size")
    if size is None:
        raise UserError(
            f"{file}: a model of type {config.get('model_type')} has no fixed vocabulary (no "
            "vocab_size), so its inputs cannot be counted"
        )
    if type(size) is not int or not 2 <= size <= MAX_VOCABULARY:
        raise UserError(f"{file} has no usable vocab_size")
    return size


def quantization(config: Mapping[str, Any]) -> Any:
    """Return the quantization scheme in config.json, None without one."""
    own = config.get("quantization_config")
    return _text_settings(config).get("quantization_config") if own is None else own


def _text_settings(config: Mapping[str, Any]) -> Mapping[str, Any]:
    nested = [config[name] for name in _NESTED if isinstance(config.get(name), dict)]
    return nested[0] if nested else config


def _asked(file: Path, name: str) -> Any:
    """Return a text setting from transformers' configuration object, None without it."""
    from transformers import AutoConfig

    try:
        config = AutoConfig.from_pretrained(
            file.parent, local_files_only=True, trust_remote_code=False
        )
        return getattr(config.get_text_config(decoder=True), name, None)
    except Exception as error:  # a config.json may make transformers' classes raise anything
        raise UserError(f"{file} cannot be read by transformers: {first_line(error)}") from None


def number_of_classes(config: Mapping[str, Any], file: Path) -> int:
    """Return the number of classes in config.json; a `UserError` if it is not a usable number."""
    key = "num_classes" if config.get("model_type") == TIMM else "num_labels"
    labels = config.get("id2label") or config.get(key, 2)
    n_classes = len(labels) if isinstance(labels, dict) else labels
    if type(n_classes) is not int or not 1 <= n_classes <= MAX_COUNT:
        raise UserError(f"{file} has no usable id2label or {key}")
    return n_classes


def check_class(
    how: str, which: int | str, n_classes: int, keys: tuple[str, str], where: object
) -> None:
    """Raise a `UserError` if a classifier lacks the class, or has too few for its output.

    keys : of `how` and of `which` in the input file
    """
    if isinstance(which, int) and which >= n_classes:
        classes = "one class, 0" if n_classes == 1 else f"{n_classes} classes, 0 to {n_classes - 1}"
        raise UserError(f"{keys[1]} = {which}: {where} has {classes}")
    if n_classes == 1 and how in ("log-softmax", "log-odds", "difference"):
        raise UserError(
            f'{keys[0]} = "{how}": {where} has only one class, and nothing to compare it with; '
            'choose "logit"'
        )
    if n_classes != 2 and how == "difference":
        raise UserError(
            f'{keys[0]} = "difference" is for two classes, but {where} has {n_classes}; choose '
            '"log-odds"'
        )


def check_labels(how: str, key: str, config: Mapping[str, Any], where: object) -> None:
    """Raise a `UserError` if classes of independent labels are compared with each other.

    key : of `how` in the input file
    config : of config.json
    """
    if how in ("log-softmax", "log-odds") and config.get("problem_type") == MULTI_LABEL:
        raise UserError(
            f'{key} = "{how}" compares classes, but the labels of {where} are independent '
            f'({MULTI_LABEL}); choose "logit", the log-odds of one label'
        )


def files_read(folder: Path, weights: list[Path]) -> list[Path]:
    """Return the safetensors files of a folder that transformers reads.

    That is model.safetensors, otherwise the files that the index names, otherwise all. Raises
    `UserError` if a named file is missing, or if the index names other files next to
    model.safetensors, which would be left out.
    """
    whole, index = folder / _WHOLE, folder / _INDEX
    named: set[str] = set()
    if os.path.exists(index):
        named = set(read_settings(folder, _INDEX)["weight_map"].values())
    if whole in weights:
        if named - {_WHOLE}:
            raise UserError(
                f"model.path = {folder}: it holds {_WHOLE}, but {_INDEX} names other files "
                f"({min(named - {_WHOLE})}); keep only one of the two models there"
            )
        return [whole]
    missing = sorted(named - {file.name for file in weights})
    if missing:
        raise UserError(f"{index} names {missing[0]}, which is not in the folder; is it complete?")
    return [file for file in weights if file.name in named] or weights


def read_tensors(weights: list[Path]) -> dict[str, Tensor]:
    """Return all tensors of a folder's safetensors files.

    Raises `UserError` if a file is broken, or if two of them hold the same tensor.
    """
    found: dict[str, Tensor] = {}
    for file in weights:
        tensors = read_header(file)
        twice = sorted(found.keys() & tensors.keys())
        if twice:
            raise UserError(f"{file}: another file in the folder also holds {twice[0]}")
        found |= tensors
    return found


def check_tensors(tensors: Tensors, quantized: bool, folder: Path) -> None:
    """Raise a `UserError` for tensors of an adapter, and for codes without a scheme or scale.

    `quantized`: config.json describes a scheme (``quantization_config``).
    """
    for name, tensor in sorted(tensors.items()):
        if _ADAPTERS.search(name):
            raise UserError(
                f"model.path = {folder}: {name} is part of an adapter (such as LoRA); {MERGE_FIRST}"
            )
        if _PACKED.fullmatch(tensor.dtype) and not quantized and not _MASK.search(name):
            raise UserError(
                f"model.path = {folder}: {name} is stored as {tensor.dtype}, but config.json has "
                "no quantization_config that explains these codes; save the weights as "
                "float32, bfloat16 or float16"
            )
        scales = (f"{name}_scale", f"{name}_scale_inv")
        is_scaled = tensor.dtype.startswith("F8_") and len(tensor.shape) > 1
        if is_scaled and not any(scale in tensors for scale in scales):
            raise UserError(
                f"model.path = {folder}: {name} is stored as {tensor.dtype}, but no tensor holds "
                f"its scale ({' or '.join(scales)})"
            )


def check_depth(depth: Any, tensors: Tensors, folder: Path) -> None:
    """Raise a `UserError` if a model has far more layers than its files have tensors.

    Layers may share their weights (ALBERT), but each is built as Python objects.
    """
    if type(depth) is int and depth > MAX_LAYERS_PER_TENSOR * len(tensors):
        raise UserError(
            f"model.path = {folder}: config.json describes {depth:,} layers, but the weights hold "
            f"{len(tensors):,} tensors; do they belong to this model?"
        )


def check_numbers(
    n_model: int, n_buffers: int, tensors: Tensors, config: Mapping[str, Any], folder: Path
) -> None:
    """Raise a `UserError` if a model has far more numbers than its files hold.

    `n_model` counts the numbers in its weights, `n_buffers` those in its other tables.
    """
    held = sum(tensor.n_numbers for tensor in tensors.values())
    surplus = MAX_SURPLUS_QUANTIZED if quantization(config) is not None else MAX_SURPLUS
    if n_model > surplus * held:
        raise UserError(
            f"model.path = {folder}: config.json describes a model of {n_model:,} weights, but the "
            f"safetensors hold {held:,}; do they belong to this model?"
        )
    if n_buffers > max(MAX_BUFFERS, n_model):
        raise UserError(
            f"model.path = {folder}: config.json describes a model with tables of {n_buffers:,} "
            f"numbers beside its {n_model:,} weights; is its number of positions right?"
        )


def _limit(key: str) -> int:
    """Return the largest whole number allowed for a key of config.json ("text_config.n_layer")."""
    name = key.rpartition(".")[2].lower()
    if _REALS.search(name):
        return MAX_REAL
    if _SIZES.search(name):
        return MAX_NUMBER
    if _LAYERS.search(name):
        return MAX_LAYERS
    return MAX_COUNT if _COUNTS.search(name) else MAX_NUMBER


def _is_weight_file(name: Any) -> bool:
    return isinstance(name, str) and "/" not in name and name.endswith(".safetensors")


def check_engine(engine: str, dtype: str) -> None:
    """Raise a `UserError` if OpenVINO is asked for, and is missing or lacks this precision."""
    if engine == "openvino" and find_spec("openvino") is None:
        raise UserError('model.engine = "openvino" needs a package: pip install openvino')
    if engine == "openvino" and dtype == "float16":
        raise UserError('model.engine = "openvino" needs model.dtype = "float32" or "bfloat16"')
