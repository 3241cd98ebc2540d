"""Make the table ``[model]`` of an input file from a user's name of a model, without torch."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from omniinput_hpc.errors import UserError
from omniinput_hpc.models.images.files import DESCRIPTION
from omniinput_hpc.models.language import hf_checks, hf_folder
from omniinput_hpc.models.language.gguf_file import SUFFIX
from omniinput_hpc.models.potts_file import ENDINGS
from omniinput_hpc.plugins import split_name

LENGTH = 25
"""Default number of tokens of an input, unless the model has fewer positions."""
AMINO_ACIDS = "ACDEFGHIKLMNPQRSTVWY"
KINDS = ("causal-lm", "masked-lm", "sequence-classifier", "image-classifier", "potts", "python")


def of(
    model: str, kind: str | None, length: int | None, option: str = "MODEL", own: bool = False
) -> dict[str, Any]:
    """Return the table ``[model]`` for a folder, a file, a name on the hub, or a module:function.

    kind : given by the user, or None to detect it from the model's files
    length : tokens of an input, or None for 25, or fewer if the model has fewer positions
    option : that gives the model, for messages
    own : whether a function of the user's makes the network that a file of weights is for

    Raises a UserError if `model` is none of these, or if its kind requires more keys.
    """
    own = own and Path(model).suffix == ".safetensors"
    kind = kind or ("image-classifier" if own else _kind_of(model, option))
    if kind == "python":
        _no_length(length, kind)
        return {"kind": kind, "factory": model}
    if kind == "potts":
        _no_length(length, kind)
        return {"kind": kind, "path": model}
    if kind == "image-classifier":
        _no_length(length, kind)
        if own:
            return {"kind": kind, "path": model, "target": "log-softmax", "label": "any"}
        return {"kind": kind, "path": model, "target": _target(Path(model).expanduser())}
    folder = hf_folder.resolve(model, option)
    config = hf_folder.read_config(folder)
    table = {"kind": kind, "path": model, "length": length or _default_length(config, kind)}
    if kind == "sequence-classifier":
        classes = hf_checks.number_of_classes(config, hf_folder.settings_file(folder))
        table |= {"target": 1 if classes == 2 else 0, "output": "logit"}
    if kind == "masked-lm":
        of_proteins = config.get("model_type") == "esm"
        table["tokens"] = list(AMINO_ACIDS) if of_proteins else "no-special"
    return table


def name_of(model: str) -> str:
    """Return a name for files about a model: the last part of its folder or of its module."""
    last = model.partition(":")[0].rpartition(".")[2] if _is_function(model) else Path(model).name
    for ending in (*ENDINGS, ".safetensors"):
        last = last.removesuffix(ending)
    kept = "".join(c if c.isalnum() or c in "-_." else "-" for c in last).strip("-.")
    return kept or "my"


def default_side(table: dict[str, Any], has_conditionals: bool) -> str:
    """Return the side of z on which a model is confident: low for a loss, otherwise high."""
    loss = table["kind"] in ("causal-lm", "masked-lm", "potts") or (
        table["kind"] == "python" and has_conditionals
    )
    flipped = table.get("sign", 1) == -1
    return "low" if loss != flipped else "high"


def _kind_of(model: str, option: str) -> str:
    path = Path(model).expanduser()
    if _is_function(model) and not path.exists():
        return "python"
    if path.is_file() and path.suffix in ENDINGS:
        return "potts"
    if path.is_file() and path.suffix != SUFFIX:
        hint = (
            "give --set model.factory=module:function, model.shape=[height, width] and "
            "model.n_values"
            if path.suffix == ".safetensors"
            else "give a folder, a name on the hub, or module:function; or --kind potts"
        )
        raise UserError(f"{model} is a file: {hint}")
    if os.path.isdir(path) and (path / DESCRIPTION).is_file():
        return "image-classifier"
    config = hf_folder.read_config(hf_folder.resolve(model, option))
    names = config.get("architectures")
    first = str(names[0]) if isinstance(names, list) and names else ""
    if first.endswith("ForImageClassification") or config.get("model_type") == hf_checks.TIMM:
        return "image-classifier"
    if first.endswith("ForMaskedLM"):
        return "masked-lm"
    return "sequence-classifier" if first.endswith("ForSequenceClassification") else "causal-lm"


def _is_function(model: str) -> bool:
    try:
        split_name(model)
    except ValueError:
        return False
    return True


def _target(folder: Path) -> str:
    """Return the target of an image network: log-likelihood if it is energy-based, else logit."""
    if not (folder / DESCRIPTION).is_file():  # a folder of the hub, or a user's factory
        return "logit"
    training = hf_checks.read_settings(folder, DESCRIPTION).get("training")
    return "log-likelihood" if training == "energy" else "logit"


def _no_length(length: int | None, kind: str) -> None:
    if length is not None:
        raise UserError(f"--length is for texts; a model of kind {kind} fixes its number of sites")


def _default_length(config: dict[str, Any], kind: str) -> int:
    positions = config.get("n_positions", config.get("max_position_embeddings"))
    if isinstance(positions, int) and positions < LENGTH:
        return max(positions, 2 if kind == "causal-lm" else 3)
    return LENGTH
