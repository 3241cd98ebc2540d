"""Rules that score inputs: a function from inputs [n, D] to scores [n] in [0, 1]."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from omniinput_hpc.estimators import EstimateError

Rule = Callable[[NDArray[np.int64]], NDArray[np.float64]]


def load_rule(name: str, option: str = "--rule") -> Rule:
    """Import a rule by its name ``module:function``; the current directory is importable.

    Returns
    -------
    Rule
        Checked at every call: n scores, finite, in [0, 1].

    Raises
    ------
    EstimateError
        No such module or function, or, at a call, scores of the wrong shape or range.
    """
    function = load_function(name, option)

    def rule(x: NDArray[np.int64]) -> NDArray[np.float64]:
        return check_scores(function(x), len(x), name)

    return rule


def load_function(name: str, option: str) -> Callable[..., Any]:
    """Import a function by its name ``module:function``; the current directory is importable.

    Parameters
    ----------
    name : as given
    option : which names it, for complaints

    Raises
    ------
    EstimateError
        No such module or function.
    """
    module_name, colon, function_name = name.partition(":")
    if not (module_name and colon and function_name):
        raise EstimateError(f'{option} {name}: expected "module:function"')
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)
    try:
        module = importlib.import_module(module_name)
    except ImportError as error:
        raise EstimateError(f"{option} {name}: cannot import {module_name}: {error}") from error
    function: Callable[..., Any] | None = getattr(module, function_name, None)
    if not callable(function):
        raise EstimateError(f"{option} {name}: {module_name} has no function {function_name}")
    return function


def check_scores(scores: object, n: int, name: str) -> NDArray[np.float64]:
    """Return the scores as float64 [n], or raise a plain EstimateError."""
    try:
        r = np.asarray(scores, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise EstimateError(f"rule {name}: its scores are not numbers: {error}") from error
    if r.shape != (n,):
        raise EstimateError(f"rule {name}: expected {n} scores of shape ({n},), got {r.shape}")
    wrong = ~((r >= 0.0) & (r <= 1.0))
    if wrong.any():
        raise EstimateError(f"rule {name}: scores must lie in [0, 1], got {r[wrong][0]:g}")
    return r
