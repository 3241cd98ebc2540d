"""Find out which architectures transformers supports, without importing it (which takes seconds).

Its tables of names are dictionaries in one of its files. If they are not found there, nothing is
checked here, and transformers itself refuses an unknown architecture.
"""

from __future__ import annotations

import ast
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path

from omniinput_hpc.errors import UserError

_TABLES = {
    "causal-lm": ("MODEL_FOR_CAUSAL_LM_MAPPING_NAMES", "a causal language model"),
    "image-classifier": (
        "MODEL_FOR_IMAGE_CLASSIFICATION_MAPPING_NAMES",
        "an image classifier",
    ),
    "masked-lm": ("MODEL_FOR_MASKED_LM_MAPPING_NAMES", "a masked language model"),
    "sequence-classifier": (
        "MODEL_FOR_SEQUENCE_CLASSIFICATION_MAPPING_NAMES",
        "a sequence classifier",
    ),
}
"""For each `model.kind`: transformers' table, and the task in words."""


def check_architecture(model_type: str, kind: str, file: Path) -> None:
    """Raise a `UserError` if transformers has no model of this type for a `model.kind`."""
    table, task = _TABLES[kind]
    known = _names(table)
    if known and model_type not in known:
        raise UserError(
            f'{file}: model_type is "{model_type}", which the installed transformers does not know '
            f"as {task}; is it another kind of model, or newer than this transformers?"
        )


def _names(table: str) -> set[str]:
    """Return the types in one of transformers' tables; none if its form is unknown."""
    found = find_spec("transformers")
    if found is None or found.origin is None:
        return set()
    try:
        file = Path(found.origin).parent / "models" / "auto" / "modeling_auto.py"
        body = ast.parse(file.read_bytes()).body
    except (OSError, SyntaxError):
        return set()
    for statement in body:
        match statement:
            case ast.Assign(targets=[ast.Name(id=name)], value=ast.Call(args=[pairs, *_])):
                if name == table:
                    with suppress(ValueError, TypeError):  # not a list of pairs of constants
                        return {model_type for model_type, _ in ast.literal_eval(pairs)}
    return set()
