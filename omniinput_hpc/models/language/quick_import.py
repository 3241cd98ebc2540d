"""Import transformers without torch's compiler, its tensor parallelism and scipy's optimizers.

No run uses them, and they take almost half of the time of a start.
"""

from __future__ import annotations

import functools
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import import_module
from types import ModuleType
from typing import Any

_COMPILER, _INDEXING = "torch._dynamo", "torch._dynamo._trace_wrapped_higher_order_op"
_STAND_INS = {
    _COMPILER: ("disable", "allow_in_graph", "assume_constant_result"),
    _INDEXING: ("TransformGetItemToIndex",),
    "scipy.optimize": ("linear_sum_assignment",),
}
"""Modules, and what transformers takes from them while it is imported."""


def transformers() -> None:
    """Import what all models of transformers need, unless it has been imported.

    If this fails with some release, transformers is imported in the usual way later.
    """
    if any(name in sys.modules for name in ("transformers", _COMPILER)):
        return
    os.environ["HF_HUB_OFFLINE"] = "1"  # read when transformers is imported
    import_module("torch")  # whole, before any of its parts is left out
    try:
        _without_parallelism(import_module("transformers.utils.import_utils"))
        with _left_out():
            import_module("transformers.modeling_utils")
            import_module("transformers.masking_utils")
            _without_memory()
    except Exception:  # of any module of theirs; if it is a real one, the usual import raises it
        for name in [name for name in sys.modules if name.partition(".")[0] == "transformers"]:
            del sys.modules[name]


def _without_parallelism(utils: Any) -> None:
    """Let transformers ask once whether torch can work on several processes; it keeps the answer.

    A rank has its model for itself.
    """
    distributed = import_module("torch.distributed")
    known, distributed.is_available = distributed.is_available, lambda: False  # type: ignore[attr-defined]
    try:
        utils.is_torch_distributed_available()
    finally:
        distributed.is_available = known  # type: ignore[attr-defined]


def _without_memory() -> None:
    """Call what a model calls while it is built without memory: torch asks its compiler once."""
    torch = import_module("torch")
    with torch.device("meta"):
        torch.nn.Embedding(1, 1)
        torch.ones(1, 1).tril()
        1.0 / 2.0 ** (torch.ones(1) / 2)


@contextmanager
def _left_out() -> Iterator[None]:
    """Let small modules stand for large ones while the block imports others."""
    modules = {name: _StandIn(name) for name in _STAND_INS if name not in sys.modules}
    sys.modules.update(modules)
    try:
        yield
    finally:
        for name, module in modules.items():
            if sys.modules.get(name) is module:
                del sys.modules[name]


class _StandIn(ModuleType):
    """Stands for a module; what others take from it imports the module when it is called."""

    def __getattr__(self, name: str) -> Callable[..., Any]:
        if name not in _STAND_INS[self.__name__]:
            raise AttributeError(f"{self.__name__} is left out, and with it {name}")
        if self.__name__ == _COMPILER:
            return _disabled if name == "disable" else _as_it_is

        def call(*args: Any, **kwargs: Any) -> Any:
            return getattr(import_module(self.__name__), name)(*args, **kwargs)

        return call


def _as_it_is(function: Any = None, *_: Any, **__: Any) -> Any:
    """Stand for decorators that matter only to functions that are compiled."""
    return (lambda inner: inner) if function is None else function


def _disabled(function: Any = None, *args: Any, **kwargs: Any) -> Any:
    """Stand for the decorator that keeps the compiler, if it is loaded later, off a function."""
    if function is None:
        return lambda inner: _disabled(inner, *args, **kwargs)
    found: list[Any] = []

    @functools.wraps(function)
    def call(*arguments: Any, **more: Any) -> Any:
        compiler = sys.modules.get(_COMPILER)
        if compiler is None or isinstance(compiler, _StandIn):
            return function(*arguments, **more)
        if not found:
            found.append(compiler.disable(function, *args, **kwargs))
        return found[0](*arguments, **more)

    return call
