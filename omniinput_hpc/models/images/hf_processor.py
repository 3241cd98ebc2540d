"""What a Hugging Face image processor does to a picture, without torch.

The sites of a folder from the hub are the pixels of the picture that the network receives after
its processor has resized and cropped it. The processor's rescaling and normalization remain. With
``model.shape`` the sites are a picture of that shape, resized to the network's inside the model.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from omniinput_hpc.errors import UserError
from omniinput_hpc.models.language import hf_checks, hf_folder
from omniinput_hpc.models.language.hf_architectures import check_architecture

PROCESSOR = "preprocessor_config.json"
RESAMPLING = {0: "nearest-exact", 2: "bilinear", 3: "bicubic"}
"""Pillow's numbers of the ways to resize that torch has, too."""
KNOWN_STEPS = ("do_resize", "do_center_crop", "do_rescale", "do_normalize", "do_convert_rgb")


@dataclass(frozen=True)
class Processor:
    """How grey levels become the numbers that a network receives.

    Attributes
    ----------
    size : height and width of the picture that the network receives; None: any
    n_channels : of that picture, 1 or 3
    scale : of white, before normalization
    mean, std : per channel, or one for all, subtracted and divided by
    flipped : whether the network receives blue, green, red
    resampling : how a picture of another shape is resized, as torch names it; "" if it is not
    """

    size: tuple[int, int] | None
    n_channels: int
    scale: float
    mean: tuple[float, ...]
    std: tuple[float, ...]
    flipped: bool
    resampling: str


def preflight(folder: Path, path: str) -> tuple[list[Path], int, int]:
    """Return the files that define a model, its number of classes, and the bytes of its weights.

    Raises `UserError` if they are missing, broken, or of another kind of model.
    """
    config, tensors, weights = hf_folder.check(folder, path)
    settings = hf_folder.settings_file(folder)
    check_architecture(str(config.get("model_type")), "image-classifier", settings)
    read(folder)
    n_bytes = 4 * sum(tensor.n_numbers for tensor in tensors.values())
    own = [] if config["model_type"] == hf_checks.TIMM else [folder / PROCESSOR]
    files = [settings, *own, *weights]
    return files, hf_checks.number_of_classes(config, settings), n_bytes


def read(folder: Path) -> Processor:
    """Return the processor of a folder; a `UserError` names what is missing or not supported."""
    config = hf_folder.read_config(folder)
    if config.get("model_type") == hf_checks.TIMM:
        return _of_timm(config, folder / "config.json")
    file = folder / PROCESSOR
    if not os.path.isfile(file):
        raise UserError(
            f"model.path = {folder}: no {PROCESSOR}, which says how pixels become numbers; "
            "AutoImageProcessor.from_pretrained(...).save_pretrained(...) writes it"
        )
    given = hf_checks.read_settings(folder, PROCESSOR)
    kind = _kind(given, config)
    if kind.startswith("pplcnet"):
        raise UserError(
            f"{file}: the processor of PP-LCNet is not supported, since no key states that it "
            "swaps red and blue; give the network by model.factory"
        )
    is_mobile = kind.startswith("mobilevit")
    flipped = bool(given.get("do_flip_channel_order", is_mobile))
    if kind.startswith("efficientnet"):  # its default
        given = {"include_top": True, **given}
    unknown = [
        key
        for key, value in given.items()
        if value is True
        and (key.startswith("do_") or key in ("rescale_offset", "include_top"))
        and key not in (*KNOWN_STEPS, "do_flip_channel_order")
    ]
    if unknown:
        raise UserError(f"{file}: {unknown[0]} is not supported")
    size = _size(given, config, file)
    rescales = given.get("do_rescale", True)
    scale = 255 * _number(given.get("rescale_factor", 1 / 255), "rescale_factor", file)
    mean: tuple[float, ...] = (0.0,)
    std: tuple[float, ...] = (1.0,)
    # MobileViT's processor never normalizes, whatever its file says
    if given.get("do_normalize", True) and not is_mobile:
        mean, std = (_numbers(given.get(f"image_{key}"), key, file) for key in ("mean", "std"))
    channels = config.get("num_channels", 3)
    if channels not in (1, 3) or any(len(row) not in (1, channels) for row in (mean, std)):
        raise UserError(f"{file}: image_mean and image_std do not fit {channels} channels")
    how = RESAMPLING.get(given.get("resample", 2), "") if size else ""
    scale = scale if rescales else 255.0
    return Processor(size, channels, scale, mean, std, flipped, how)


def _kind(given: dict[str, Any], config: dict[str, Any]) -> str:
    """Return the name of a processor, or of its model if none is given, in small letters."""
    names = (given.get("image_processor_type"), given.get("feature_extractor_type"))
    name = next(filter(None, names), config.get("model_type"))
    return str(name).lower().replace("_", "")


def _of_timm(config: dict[str, Any], file: Path) -> Processor:
    """Return the processor of a folder of timm, which stands in its config.json."""
    match config.get("pretrained_cfg"):
        case {
            "input_size": [int(channels), int(), int()] as size,
            "mean": mean,
            "std": std,
            **rest,
        }:
            name = str(rest.get("interpolation", "bicubic"))
        case _:
            raise UserError(f"{file}: pretrained_cfg lacks a usable input_size, mean or std")
    if channels not in (1, 3) or min(size) < 1:
        raise UserError(f"{file}: the input_size {size} is not 1 or 3 channels, height and width")
    means, stds = _numbers(mean, "mean", file), _numbers(std, "std", file)
    how = {"nearest": "nearest-exact", "bilinear": "bilinear", "bicubic": "bicubic"}.get(name, "")
    return Processor((size[1], size[2]), channels, 1.0, means, stds, False, how)


def _size(given: dict[str, Any], config: dict[str, Any], file: Path) -> tuple[int, int] | None:
    """Return height and width of what the network receives; None if it takes any."""
    crops = given.get("do_center_crop", False) and given.get("crop_size") is not None
    crops = crops and not _kind(given, config).startswith("perceiver")  # it crops, then resizes
    resizes = given.get("do_resize", True) and given.get("size") is not None
    size = given["crop_size"] if crops else given["size"] if resizes else config.get("image_size")
    match size:
        case None:
            return None
        case int():
            found = size, size
        case [int(height), int(width)]:
            found = height, width
        case {"height": int(height), "width": int(width)}:
            found = height, width
        case {"shortest_edge": int(edge)}:
            found = edge, edge
        case _:
            raise UserError(f"{file}: the size {size} is not understood")
    if min(found) < 1:
        raise UserError(f"{file}: the size {size} is not positive")
    return found


def _numbers(given: Any, key: str, file: Path) -> tuple[float, ...]:
    if given is None:
        raise UserError(f"{file}: do_normalize needs image_{key}, which is not there")
    several = given if isinstance(given, list) else [given]
    return tuple(_number(one, f"image_{key}", file) for one in several)


def _number(given: Any, key: str, file: Path) -> float:
    if type(given) not in (int, float):
        raise UserError(f"{file}: {key} = {given!r} is not a number")
    return float(given)
