"""Loading a Hugging Face model from a local folder: its weights, all of them, and nothing else."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

os.environ["HF_HUB_OFFLINE"] = "1"

import torch
from safetensors import SafetensorError
from transformers.utils import logging as hf_logging

from omniinput_hpc.errors import UserError
from omniinput_hpc.models.device import free_bytes
from omniinput_hpc.text import first_line


def load(kind: Any, folder: Path, dtype: str, device: str) -> Any:
    """Return a model of one of transformers' Auto classes, in evaluation mode and frozen.

    A `UserError` says that it cannot be loaded, lacks weights, has weights that are not finite in
    dtype ("float32", "bfloat16", "float16"), or does not fit on the device.
    """
    hf_logging.set_verbosity_error()
    hf_logging.disable_progress_bar()
    where = f"model.path = {folder}"
    try:
        model, report = kind.from_pretrained(
            folder,
            local_files_only=True,
            use_safetensors=True,
            trust_remote_code=False,
            dtype=getattr(torch, dtype),
            output_loading_info=True,
        )
    except (OSError, ValueError, RuntimeError, KeyError, SafetensorError) as error:
        raise UserError(f"{where}: cannot be loaded: {first_line(error)}") from None
    # transformers would make up what is missing, at random.
    for fault in ("missing_keys", "mismatched_keys"):
        if report[fault]:
            names = ", ".join(sorted(str(key) for key in report[fault])[:3])
            raise UserError(
                f"{where}: the weights do not make up a {type(model).__name__} "
                f"({fault.replace('_', ' ')}: {names})"
            )
    for name, weights in model.named_parameters():
        if not bool(weights.isfinite().all()):
            raise UserError(f"{where}: weights of {name} are NaN or infinite in {dtype}")
    model.eval().requires_grad_(False)
    return to_device(model, device, where)


def to_device(model: Any, device: str, where: str) -> Any:
    """Return the model on a device; a `UserError` if it does not fit."""
    need = sum(p.numel() * p.element_size() for p in model.parameters())
    try:
        return model.to(device)
    except torch.OutOfMemoryError:
        raise UserError(
            f"{where}: {need / 1e9:.1f} GB of weights do not fit on {device}, which has "
            f"{free_bytes(device) / 1e9:.1f} GB free; fewer ranks a GPU, or model.dtype = "
            '"bfloat16", may help'
        ) from None
