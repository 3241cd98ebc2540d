"""Checking a Hugging Face model folder from its files alone (no torch)."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

from omniinput_hpc.config import CausalLm
from omniinput_hpc.errors import UserError

_BLOCK = 1 << 22


def preflight(options: CausalLm) -> dict[str, Any]:
    """See `omniinput_hpc.models.preflight`."""
    folder = Path(options.path).expanduser()
    config = read_config(folder)
    weights = weight_files(folder)
    positions = config.get("n_positions", config.get("max_position_embeddings"))
    if isinstance(positions, int) and options.length > positions:
        raise UserError(
            f"model.length = {options.length} is beyond the {positions} positions of {folder}"
        )
    n_values = config.get("vocab_size")
    if not isinstance(n_values, int) or n_values < 2:
        raise UserError(f"{folder / 'config.json'} has no usable vocab_size")
    return {
        "fingerprint": fingerprint([folder / "config.json", *weights]),
        "n_values": n_values,
        "n_sites": options.length,
        "bytes": sum(file.stat().st_size for file in weights),
    }


def read_config(folder: Path) -> dict[str, Any]:
    """Return the parsed config.json of a model folder.

    Raises
    ------
    UserError
        The folder or the file is missing or broken, or wants code of its own.
    """
    if not folder.is_dir():
        raise UserError(
            f"model.path = {folder}: no such folder (it must hold config.json and *.safetensors)"
        )
    file = folder / "config.json"
    try:
        config = json.loads(file.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise UserError(f"model.path = {folder}: the folder has no config.json") from None
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise UserError(f"{file} is not valid JSON: {error}") from None
    except OSError as error:
        raise UserError(f"{file} cannot be read: {error.strerror}") from None
    if not isinstance(config, dict):
        raise UserError(f"{file} does not hold a table of settings")
    if "auto_map" in config:
        raise UserError(f"{folder} wants to run code of its own (auto_map), which is never done")
    return config


def weight_files(folder: Path) -> list[Path]:
    """Return the safetensors files of a model folder, sorted.

    Raises
    ------
    UserError
        There are none; weights that need unpickling are named as such.
    """
    weights = sorted(folder.glob("*.safetensors"))
    if weights:
        return weights
    pickled = [*folder.glob("*.bin"), *folder.glob("*.pt"), *folder.glob("*.pth")]
    if pickled:
        raise UserError(
            f"{folder} holds only pickled weights ({pickled[0].name}), which are never loaded; "
            "convert them with save_pretrained(..., safe_serialization=True)"
        )
    raise UserError(f"model.path = {folder}: weights not found (no *.safetensors)")


def fingerprint(files: list[Path]) -> str:
    """Return the SHA-256 over the names and contents of files, as "sha256:..."."""
    digest = hashlib.sha256()
    for file in files:
        digest.update(file.name.encode() + b"\0" + str(file.stat().st_size).encode() + b"\0")
        try:
            with file.open("rb") as stream:
                while block := stream.read(_BLOCK):
                    digest.update(block)
        except OSError as error:
            raise UserError(f"{file} cannot be read: {error.strerror}") from None
    return f"sha256:{digest.hexdigest()}"
