"""Loading a user's own function by its name ``module:function``."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from omniinput_hpc.errors import UserError


def load_function(name: str, option: str) -> Callable[..., Any]:
    """Import a function by its name ``module:function``; the current directory is importable.

    Parameters
    ----------
    name : as given
    option : which names it, for complaints

    Raises
    ------
    UserError
        No such module or function.
    """
    module_name, colon, function_name = name.partition(":")
    if not (module_name and colon and function_name):
        raise UserError(f'{option} {name}: expected "module:function"')
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)
    try:
        module = importlib.import_module(module_name)
    except ImportError as error:
        raise UserError(f"{option} {name}: cannot import {module_name}: {error}") from error
    function: Callable[..., Any] | None = getattr(module, function_name, None)
    if not callable(function):
        raise UserError(f"{option} {name}: {module_name} has no function {function_name}")
    return function
