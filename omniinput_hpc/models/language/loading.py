"""Load a Hugging Face model from a local folder: all of its weights, and nothing else."""

from __future__ import annotations

import contextlib
import copy
import io
import logging
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

os.environ["HF_HUB_OFFLINE"] = "1"

import torch
import transformers
from safetensors import safe_open
from transformers import AutoConfig, AutoModelForCausalLM, AutoModelForImageClassification
from transformers.quantizers import AutoQuantizationConfig
from transformers.utils import logging as hf_logging

from omniinput_hpc.errors import UserError
from omniinput_hpc.models.checked import OVERFLOW
from omniinput_hpc.models.device import free_bytes
from omniinput_hpc.models.language import accounting, gguf_file, hf_checks, hf_folder, trial
from omniinput_hpc.models.language.trial import reason_of

log = logging.getLogger("omniinput_hpc")

AFTERWARDS = "bitsandbytes"
"""The scheme whose weights transformers dequantizes after it has read them."""
_COLOURS = re.compile(r"\x1b\[[0-9;]*m")


def load(kind: Any, folder: Path, dtype: str, device: str) -> Any:
    """Return a model of one of transformers' Auto classes, in evaluation mode and frozen.

    Raises `UserError` if the model cannot be loaded, lacks weights, leaves weights out (see
    `accounting`), has weights that are not finite in dtype ("float32", "bfloat16", "float16"), or
    does not fit on the device. Reports of transformers are logged.
    """
    where = f"model.path = {folder}"
    settings, tensors, weights = hf_folder.check(folder)
    try:
        with _passed_on():
            model, report, ties = _from_files(kind, folder, (settings, tensors), dtype, device)
    except UserError:
        raise
    except torch.OutOfMemoryError:
        raise _too_large(_bytes_of(tensors, dtype), device, where) from None
    except Exception as error:  # a config.json may make transformers' classes raise anything
        raise UserError(f"{where}: cannot be loaded: {reason_of(error)}") from None
    model = _unpacked(model, dtype, tensors, where)
    _check_plain(model, where)
    quantized = hf_checks.quantization(settings) is not None
    unexpected, read = report["unexpected_keys"], partial(_read, folder)
    left_out = accounting.account(model, unexpected, tensors, read, where, quantized)
    # transformers would fill missing weights with random numbers
    for fault in ("missing_keys", "mismatched_keys"):
        if report[fault]:
            names = ", ".join(sorted(str(key) for key in report[fault])[:3])
            raise UserError(
                f"{where}: the weights do not fit a {type(model).__name__} "
                f"({fault.replace('_', ' ')}: {names})"
            )
    accounting.check_ties(model, ties, where)
    _report(f"{where}: {line}" for line in [*_not_read(folder, weights), *left_out])
    if gguf_file.is_gguf(folder):
        _forget_packing(model, settings, where)
    model.eval().requires_grad_(False)
    model = to_device(model, device, where)
    overflow = OVERFLOW if dtype == "float16" else ""
    _check_finite(model, f"infinite in {dtype}{overflow}", where)
    if kind is not AutoModelForImageClassification:
        _check_tables(model, kind, where)
    if kind is AutoModelForCausalLM:
        trial.check_length(model, 2, where)
        trial.check_causal(model, where)
    return model


def _from_files(
    kind: Any,
    folder: Path,
    checked: tuple[Mapping[str, Any], hf_checks.Tensors],
    dtype: str,
    device: str,
) -> tuple[Any, dict[str, Any], dict[str, str]]:
    """Return a model as transformers loads it, its report, and the names of tied weights.

    `checked` holds the folder's settings and tensors.
    """
    place = folder
    options: dict[str, Any] = {"local_files_only": True, "trust_remote_code": False}
    more: dict[str, Any] = {}
    if gguf_file.is_gguf(folder):
        place, options["gguf_file"] = folder.parent, folder.name
        if hasattr(transformers, "GgufConfig"):  # otherwise newer versions may keep weights packed
            unpacked = transformers.GgufConfig(gguf_file=folder.name, dequantize=True)
            more["quantization_config"] = unpacked
    options |= _placement(device)
    config = AutoConfig.from_pretrained(place, **options)
    if config.model_type == hf_checks.TIMM:  # transformers passes the number of classes, too
        (config.model_args or {}).pop("num_classes", None)
    _ask_for_plain_weights(config, f"model.path = {folder}")
    settings, tensors = checked
    ties = _check_size(kind, config, tensors, settings, folder)
    # hides the progress bars for GGUF files, which cannot be turned off
    with contextlib.redirect_stderr(io.StringIO()):
        model, report = kind.from_pretrained(
            place,
            config=config,
            use_safetensors=True,
            dtype=getattr(torch, dtype),
            output_loading_info=True,
            **options,
            **more,
        )
    return model, report, ties


@contextlib.contextmanager
def _passed_on() -> Iterator[None]:
    """Log the warnings that transformers issues while it loads a model."""
    hf_logging.disable_progress_bar()
    logger, said = logging.getLogger("transformers"), _Collected()
    level, propagate, handlers = logger.level, logger.propagate, logger.handlers
    logger.handlers, logger.propagate = [said], False
    logger.setLevel(logging.WARNING)
    try:
        yield
    finally:
        logger.handlers, logger.propagate = handlers, propagate
        logger.setLevel(level)
        _report(f"transformers: {text}" for text in dict.fromkeys(said.texts))


def _report(lines: Iterable[str]) -> None:
    """Show lines to the user, once.

    In a run they are logged as information, which only rank 0 shows; a command without a log shows
    warnings.
    """
    level = logging.INFO if log.handlers else logging.WARNING
    for line in lines:
        log.log(level, "%s", line)


def _not_read(folder: Path, weights: list[Path]) -> list[str]:
    """Return a line if a folder holds weights that transformers does not read."""
    if gguf_file.is_gguf(folder):
        return []
    others = [file.name for file in weights if file not in hf_checks.files_read(folder, weights)]
    return [f"weight files not read: {', '.join(others[:4])}"] if others else []


class _Collected(logging.Handler):
    """Keeps the texts of log records."""

    def __init__(self) -> None:
        super().__init__()
        self.texts: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        """Keep a record's text, without colours."""
        self.texts.append(_COLOURS.sub("", record.getMessage()).strip())


def _read(folder: Path, name: str) -> torch.Tensor:
    """Return one tensor of a folder's files."""
    for file in hf_checks.files_read(folder, hf_folder.weight_files(folder)):
        with safe_open(str(file), "pt") as opened:
            if name in opened.keys():  # noqa: SIM118  # not a mapping
                tensor: torch.Tensor = opened.get_tensor(name)
                return tensor
    raise AssertionError(f"{name} is in none of the files of {folder}")


def _ask_for_plain_weights(config: Any, where: str) -> None:
    """Let transformers convert quantized weights to plain ones while it reads them.

    Raises `UserError` if it cannot do so for this scheme: gradients and the bits of z are those of
    plain weights.
    """
    text = config.get_text_config(decoder=True)
    owner = config if getattr(config, "quantization_config", None) is not None else text
    found = getattr(owner, "quantization_config", None)
    if found is None:
        return
    scheme, why = None, "transformers cannot turn them into plain weights"
    try:
        scheme = AutoQuantizationConfig.from_dict(dict(found))
    except Exception as error:  # its type depends on the scheme and on the packages
        why = reason_of(error)
    method = found.get("quant_method") if isinstance(found, dict) else found
    if scheme is None or not (hasattr(scheme, "dequantize") or method == AFTERWARDS):
        raise UserError(
            f"{where}: config.json says that its weights are quantized ({str(method)[:40]!r}), "
            f"which is not supported ({why}); save them as float32, bfloat16 or float16"
        )
    _report(
        [f"{where}: the weights are quantized ({method}); they are dequantized once, on loading"]
    )
    if method != AFTERWARDS:
        owner.quantization_config = {**found, "dequantize": True}


def _unpacked(model: Any, dtype: str, tensors: hf_checks.Tensors, where: str) -> Any:
    """Return a model with plain weights, if transformers can make them only now.

    Raises `UserError` if the files hold other weights as codes than config.json says: transformers
    would quantize weights that are not.
    """
    quantizer = getattr(model, "hf_quantizer", None)
    if quantizer is None or quantizer.quantization_config.quant_method != AFTERWARDS:
        return model
    coded = sum(name.endswith(".weight") and t.dtype in ("I8", "U8") for name, t in tensors.items())
    read = sum(type(one).__name__ in ("Linear8bitLt", "Linear4bit") for one in model.modules())
    if coded != read:
        raise UserError(
            f"{where}: by config.json {read} layers are quantized, but the files hold {coded} as "
            "codes; do they belong together?"
        )
    return model.dequantize(getattr(torch, dtype))


def _check_plain(model: Any, where: str) -> None:
    """Raise a `UserError` if a model has weights that are codes instead of real numbers."""
    quantizer = getattr(model, "hf_quantizer", None)
    packed = quantizer is not None and not quantizer.quantization_config.dequantize
    for name, weights in model.named_parameters():
        if packed or not weights.is_floating_point() or weights.element_size() < 2:
            raise UserError(
                f"{where}: {name} stays quantized ({str(weights.dtype).removeprefix('torch.')}), "
                "which is not supported; save the weights as float32, bfloat16 or float16"
            )


def _check_tables(model: Any, kind: Any, where: str) -> None:
    """Raise a `UserError` if a model has no table with a row for each token of a vocabulary."""
    what, find = "reads", model.get_input_embeddings
    if kind is AutoModelForCausalLM:
        what, find = "predicts", model.get_output_embeddings
    try:
        axes = find().weight.dim()
    except (AttributeError, NotImplementedError):  # how transformers reports a missing table
        axes = 0
    if axes != 2:
        raise UserError(
            f"{where}: a {type(model).__name__} {what} no tokens of a fixed vocabulary (it has no "
            "table with a row for each), so its inputs cannot be counted"
        )


def _placement(device: str) -> dict[str, Any]:
    """Return the options by which transformers reads weights directly onto a GPU.

    This needs accelerate; without it, weights are read into the host's memory and then moved.
    """
    straight = device != "cpu" and find_spec("accelerate") is not None
    return {"device_map": {"": device}} if straight else {}


@torch.no_grad()
def _check_finite(model: Any, fault: str, where: str) -> None:
    """Raise a `UserError` if weights are NaN or infinite; synchronizes with the device once."""
    named = dict(model.named_parameters())
    finite = torch.stack([weights.isfinite().all() for weights in named.values()]).tolist()
    if not all(finite):
        name = list(named)[finite.index(False)]
        raise UserError(f"{where}: weights of {name} are NaN or {fault}")


def _forget_packing(model: Any, settings: Mapping[str, Any], where: str) -> None:
    """Turn a model from a GGUF file into one of plain weights, which it already holds.

    Raises `UserError` if transformers reads another vocabulary than that in the file's header.
    """
    model.config.__dict__.pop("quantization_config", None)
    n_vocab = int(model.get_output_embeddings().weight.shape[0])
    if n_vocab != settings["vocab_size"]:
        raise UserError(
            f"{where}: transformers reads {n_vocab} tokens, but the file's tensors have "
            f"{settings['vocab_size']}"
        )


def _check_size(
    kind: Any, config: Any, tensors: hf_checks.Tensors, settings: Mapping[str, Any], folder: Path
) -> dict[str, str]:
    """Raise a `UserError` if the model that config.json describes is larger than its files.

    It is built without memory for its weights (on torch's device "meta"). Returns the names of the
    weights that config.json declares to be the same.
    """
    text = config.get_text_config(decoder=True)
    hf_checks.check_depth(getattr(text, "num_hidden_layers", None), tensors, folder)
    with torch.device("meta"):
        model = kind.from_config(copy.deepcopy(config), trust_remote_code=False)
    n_numbers = sum(weights.numel() for weights in model.parameters())
    n_buffers = sum(buffer.numel() for buffer in model.buffers())
    hf_checks.check_numbers(n_numbers, n_buffers, tensors, settings, folder)
    return dict(model.all_tied_weights_keys)


def to_device(model: Any, device: str, where: str) -> Any:
    """Return the model on a device; a `UserError` if it does not fit."""
    need = sum(p.numel() * p.element_size() for p in model.parameters())
    try:
        return model.to(device)
    except torch.OutOfMemoryError:
        raise _too_large(need, device, where) from None


def _bytes_of(tensors: hf_checks.Tensors, dtype: str) -> int:
    numbers = sum(tensor.n_numbers for tensor in tensors.values())
    return numbers * hf_folder.BYTES_PER_NUMBER[dtype]


def _too_large(need: int, device: str, where: str) -> UserError:
    return UserError(
        f"{where}: {need / 1e9:.1f} GB of weights do not fit on {device}, which has "
        f"{free_bytes(device) / 1e9:.1f} GB free; fewer ranks per GPU, or model.dtype = "
        '"bfloat16", may help'
    )
