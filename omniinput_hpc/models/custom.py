"""Models from outside: ``kind = "python"``, an object made by the user's own function.

The current directory is importable. No torch here: the user's module brings its own.
"""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import json
import sys
from typing import Any

from omniinput_hpc.config import PythonModel
from omniinput_hpc.errors import UserError


def preflight(options: PythonModel) -> dict[str, Any]:
    """See `omniinput_hpc.models.preflight`; the model itself is judged once it is built."""
    check_module(options.factory)
    text = json.dumps(options.options, sort_keys=True, default=str)
    return {
        "fingerprint": f"python:{options.factory}:{text}",
        "n_values": None,
        "n_sites": None,
        "bytes": None,
    }


def check_module(factory: str) -> None:
    """Check that the module of ``module:function`` can be found.

    Raises
    ------
    UserError
        It cannot.
    """
    module = factory.partition(":")[0]
    _make_importable()
    try:
        found = importlib.util.find_spec(module)
    except (ImportError, ValueError):
        found = None
    if found is None:
        raise UserError(
            f'model.factory = "{factory}": no module {module} in the current directory '
            "or among the installed packages"
        )


def build(options: PythonModel, device: str) -> Any:
    """Call the user's factory and check what it returns (see `omniinput_hpc.models.build`)."""
    _make_importable()
    module_name, _, name = options.factory.partition(":")
    where = f'model.factory = "{options.factory}"'
    module = importlib.import_module(module_name)
    factory = getattr(module, name, None)
    if not callable(factory):
        raise UserError(f"{where}: {module.__file__} has no function {name}")
    try:
        inspect.signature(factory).bind(device=device, **options.options)
    except TypeError as error:
        raise UserError(
            f"{where}: {name} does not take device and the keys of model.options: {error}"
        ) from None
    except ValueError:
        pass  # a callable without a signature to look at is simply called
    model = factory(device=device, **options.options)
    for attribute, least in (("n_values", 2), ("n_sites", 1)):
        value = getattr(model, attribute, None)
        if not isinstance(value, int) or value < least:
            raise UserError(
                f"{where}: the model's {attribute} must be a whole number of at least {least}, "
                f"found {value!r}"
            )
    if not callable(getattr(model, "output", None)):
        raise UserError(f"{where}: the model has no method output(x)")
    return model


def _make_importable() -> None:
    if "" not in sys.path:
        sys.path.insert(0, "")
