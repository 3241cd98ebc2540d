"""Loading a Hugging Face model from a local folder: its weights, all of them, and nothing else."""

from __future__ import annotations

import contextlib
import copy
import io
import math
import os
import re
from collections.abc import Iterable, Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any

os.environ["HF_HUB_OFFLINE"] = "1"

import torch
from transformers import AutoConfig, AutoModelForCausalLM
from transformers.utils import logging as hf_logging

from omniinput_hpc.errors import UserError
from omniinput_hpc.models.checked import OVERFLOW
from omniinput_hpc.models.device import free_bytes
from omniinput_hpc.models.language import gguf_file, hf_checks, hf_folder
from omniinput_hpc.text import first_line

_LAYER = re.compile(r"(?:^|\.)(?:h|layers?|blocks?)\.([0-9]{1,9})\.")


def load(kind: Any, folder: Path, dtype: str, device: str) -> Any:
    """Return a model of one of transformers' Auto classes, in evaluation mode and frozen.

    A `UserError` says that it cannot be loaded, lacks weights, has weights that are not finite in
    dtype ("float32", "bfloat16", "float16"), or does not fit on the device.
    """
    hf_logging.set_verbosity_error()
    hf_logging.disable_progress_bar()
    where = f"model.path = {folder}"
    settings, tensors, _ = hf_folder.check(folder)
    place = folder
    options: dict[str, Any] = {"local_files_only": True, "trust_remote_code": False}
    if gguf_file.is_gguf(folder):
        place, options["gguf_file"] = folder.parent, folder.name
    options |= _placement(device)
    try:
        config = AutoConfig.from_pretrained(place, **options)
        _check_size(kind, config, tensors, settings, folder)
        # a GGUF file's bars of progress, which cannot be turned off
        with contextlib.redirect_stderr(io.StringIO()):
            model, report = kind.from_pretrained(
                place,
                config=config,
                use_safetensors=True,
                dtype=getattr(torch, dtype),
                output_loading_info=True,
                **options,
            )
    except UserError:
        raise
    except torch.OutOfMemoryError:
        raise _too_large(_bytes_of(tensors, dtype), device, where) from None
    except Exception as error:  # a config.json may make transformers' classes raise anything
        raise UserError(f"{where}: cannot be loaded: {_reason(error)}") from None
    # transformers would make up what is missing, at random.
    for fault in ("missing_keys", "mismatched_keys"):
        if report[fault]:
            names = ", ".join(sorted(str(key) for key in report[fault])[:3])
            raise UserError(
                f"{where}: the weights do not make up a {type(model).__name__} "
                f"({fault.replace('_', ' ')}: {names})"
            )
    _check_depth(report["unexpected_keys"], model, where)
    if gguf_file.is_gguf(folder):
        _forget_packing(model, settings, where)
    model.eval().requires_grad_(False)
    model = to_device(model, device, where)
    overflow = OVERFLOW if dtype == "float16" else ""
    _check_finite(model, f"infinite in {dtype}{overflow}", where)
    _try_out(model, device, where)
    if kind is AutoModelForCausalLM:
        _check_causal(model, where)
    return model


def _check_depth(left_out: Iterable[str], model: Any, where: str) -> None:
    """Raise a `UserError` where weights were left out that go on the model's layers.

    Those of other parts (an image encoder) may be left out: its own first layer has none alike.
    """
    depth = getattr(model.config, "num_hidden_layers", math.inf)
    own = model.state_dict().keys()
    prefixes = ("", f"{model.base_model_prefix}.")
    for name in sorted(left_out):  # ranks say the same
        for found in _LAYER.finditer(name):
            first = f"{name[: found.start(1)]}0{name[found.end(1) :]}"
            alike = any(f"{prefix}{first}" in own for prefix in prefixes)
            if alike and int(found[1]) >= depth:
                raise UserError(
                    f"{where}: config.json describes {depth} layer(s), and the weights hold "
                    f"more ({name}); are they of this model?"
                )


def _placement(device: str) -> dict[str, Any]:
    """Return the options that make transformers read weights onto a GPU, not through the host.

    It needs accelerate for that; without it they are read into the host's memory and moved.
    """
    straight = device != "cpu" and find_spec("accelerate") is not None
    return {"device_map": {"": device}} if straight else {}


@torch.no_grad()
def _check_finite(model: Any, fault: str, where: str) -> None:
    """Raise a `UserError` where weights are NaN or infinite; their device is waited for once."""
    named = dict(model.named_parameters())
    finite = torch.stack([weights.isfinite().all() for weights in named.values()]).tolist()
    if not all(finite):
        name = list(named)[finite.index(False)]
        raise UserError(f"{where}: weights of {name} are NaN or {fault}")


def _forget_packing(model: Any, settings: Mapping[str, Any], where: str) -> None:
    """Make a model that was read from a GGUF file one of plain weights, which it is by now.

    A `UserError` says that transformers read another vocabulary than the file's header has.
    """
    model.config.__dict__.pop("quantization_config", None)
    n_vocab = int(model.get_output_embeddings().weight.shape[0])
    if n_vocab != settings["vocab_size"]:
        raise UserError(
            f"{where}: transformers reads {n_vocab} tokens, and its tensors have "
            f"{settings['vocab_size']}"
        )


def _check_size(
    kind: Any, config: Any, tensors: hf_checks.Tensors, settings: Mapping[str, Any], folder: Path
) -> None:
    """Raise a `UserError` where the model that config.json describes is larger than its files.

    It is built without memory for its weights (on torch's device "meta").
    """
    with torch.device("meta"):
        model = kind.from_config(copy.deepcopy(config), trust_remote_code=False)
    n_numbers = sum(weights.numel() for weights in model.parameters())
    n_buffers = sum(buffer.numel() for buffer in model.buffers())
    hf_checks.check_numbers(n_numbers, n_buffers, tensors, settings, folder)


def _try_out(model: Any, device: str, where: str) -> None:
    """Evaluate two tokens: settings of the wrong type show only now, as a `UserError`."""
    tokens = torch.zeros((1, 2), dtype=torch.int64, device=device)
    try:
        with torch.no_grad():
            model(input_ids=tokens, attention_mask=torch.ones_like(tokens))
    except Exception as error:  # see above
        raise UserError(f"{where}: cannot evaluate two tokens: {_reason(error)}") from None


@torch.no_grad()
def _check_causal(lm: Any, where: str) -> None:
    """Raise a `UserError` where what a model predicts depends on the tokens that it predicts.

    Encoders with a head for language do so (BERT without `is_decoder`): their NLL of a token is
    not its probability given those before it.
    """
    n_vocab = int(lm.get_output_embeddings().weight.shape[0])
    tokens = torch.arange(2, device=lm.device)[None]
    other = tokens.clone()
    other[:, -1] = (tokens[:, -1] + 1) % n_vocab  # another last token
    ahead = [lm(input_ids=x, use_cache=False).logits[0, :-1].float() for x in (tokens, other)]
    rounding = 1e-4 if lm.dtype == torch.float32 else 0.1
    tolerance = rounding * (1 + float(ahead[0].abs().max()))
    if float((ahead[0] - ahead[1]).abs().max()) > tolerance:
        raise UserError(
            f"{where}: its predictions depend on later tokens, so that this "
            f"{type(lm).__name__} is no causal language model (an encoder such as BERT needs "
            "is_decoder = true in its config.json, and weights that were trained so)"
        )


def _reason(error: Exception) -> str:
    plain = isinstance(error, (OSError, ValueError, RuntimeError))
    return first_line(error) if plain else f"{type(error).__name__}: {first_line(error)}"


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
        f"{free_bytes(device) / 1e9:.1f} GB free; fewer ranks a GPU, or model.dtype = "
        '"bfloat16", may help'
    )
