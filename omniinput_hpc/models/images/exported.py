"""Programs of ``torch.export`` (.pt2), loaded only where nothing in them runs while loading.

`torch.export.load` unpickles what an archive marks as pickled, falls back to full unpickling for
sample inputs, runs compiled libraries, evaluates the text of symbolic expressions and of guards,
and calls whatever function of torch a node names. So the archive is looked through first, as the
zip file that it is, and refused if it holds any of that; guards are left out.
"""

from __future__ import annotations

import io
import json
import re
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch

from omniinput_hpc.errors import UserError
from omniinput_hpc.text import first_line

# Sizes are sums and products of symbols and numbers; a text with a dot, a dunder, or a quote
# elsewhere than around a symbol's name is none.
_HARMLESS = re.compile(
    r"(?:Symbol\('[su]\d+'|(?:positive|nonnegative|integer|real|zero)=(?:True|False)|[su]\d+|\d+"
    r"|Integer|Rational|Add|Mul|Pow|Max|Min|Mod|FloorDiv|CeilDiv|Eq|Ne|Ge|Le|Gt|Lt|[-+*(),<>= ])*"
)
# How torch 2.9 and later names what it loads as plain bytes or text.
_KNOWN = re.compile(
    r"data/(weights/(weight_\d+|[^/]+_config\.json)|constants/(tensor_\d+|[^/]+_config\.json)"
    r"|sample_inputs/[^/]+\.pt)|models/[^/]+\.json|archive_format|archive_version|byteorder"
    r"|\.data/(version|serialization_id)|version"
)
_OPERATOR = re.compile(
    r"torch\.ops\.aten\.\w+\.\w+|torch\.sym_\w+|torch\._check"
    r"|_operator\.(add|sub|mul|floordiv|truediv|mod|pow|neg|getitem|eq|ne|lt|le|gt|ge)"
)


def load(path: Path, device: str) -> torch.nn.Module:
    """Return an exported program as a module that takes float32 [W, channels, h, w].

    Raises
    ------
    UserError
        The file is no such program, or would need unpickling or running code of its own.
    """
    _look_through(path)
    try:
        module = torch.export.load(path).module(check_guards=False)
    except (RuntimeError, ValueError, KeyError, AssertionError, OSError, TypeError) as error:
        raise UserError(
            f"model.path = {path}: torch.export cannot load it: {first_line(error)}"
        ) from None
    for name, tensor in [*module.named_parameters(), *module.named_buffers()]:
        if tensor.is_floating_point() and not bool(tensor.isfinite().all()):
            raise UserError(f"{path}: weights {name} hold numbers that are not finite (NaN)")
    return module.requires_grad_(False).to(device)


def _look_through(path: Path) -> None:
    """Refuse an archive that holds anything that loading would run."""
    try:
        with zipfile.ZipFile(path) as archive:
            for name in archive.namelist():
                _check(path, name.partition("/")[2], archive.read(name))
    except (zipfile.BadZipFile, json.JSONDecodeError, UnicodeDecodeError, OSError) as error:
        raise UserError(f"model.path = {path}: not a torch.export program: {error}") from None


def _check(path: Path, name: str, content: bytes) -> None:
    """Check one file of the archive; its name is the part below the archive's own folder."""
    if name.startswith("data/aotinductor"):
        raise UserError(f"model.path = {path}: holds compiled code, which is never run")
    if not _KNOWN.fullmatch(name) or not _plain(name, content):
        raise UserError(
            f"model.path = {path}: {name or 'it'} would need unpickling, which is never done; "
            "export the program again with this torch, without objects of your own"
        )
    if name.startswith("models/"):
        program = json.loads(content)
        for text in _texts(program, "expr_str"):
            if not _HARMLESS.fullmatch(text):
                raise UserError(f"model.path = {path}: odd size expression {text[:80]!r}")
        for text in _texts(program, "target"):
            if not _OPERATOR.fullmatch(text):
                raise UserError(
                    f"model.path = {path}: calls {text[:80]!r}; only torch's own tensor operators "
                    "(torch.ops.aten) are run"
                )


def _plain(name: str, content: bytes) -> bool:
    """Return whether a file of the archive is loaded without unpickling objects."""
    if name.endswith("_config.json"):
        payloads = json.loads(content).get("config", {})
        return not any(payload.get("use_pickle", True) for payload in payloads.values())
    if name.startswith("data/sample_inputs/") and content:
        try:
            torch.load(io.BytesIO(content), weights_only=True)
        # A stranger's bytes may raise anything here; torch.export would then unpickle them in full,
        # so that whatever it is the answer is no, and the file is refused.
        except Exception:
            return False
    return True


def _texts(node: Any, key: str) -> Iterator[str]:
    """Yield the texts of a key at any depth."""
    if isinstance(node, dict):
        for name, value in node.items():
            if name == key and isinstance(value, str):
                yield value
            yield from _texts(value, key)
    elif isinstance(node, list):
        for value in node:
            yield from _texts(value, key)
