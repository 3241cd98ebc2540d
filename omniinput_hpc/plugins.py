"""Load a user's own functions, named ``module:function``, also from the current directory.

Their code runs in this process. `own_surroundings` restores the state that the program relies on.
`collect_rarely` makes imports faster, also those of libraries.
"""

from __future__ import annotations

import atexit
import gc
import hashlib
import importlib
import importlib.util
import inspect
import logging
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.machinery import ModuleSpec
from pathlib import Path
from typing import Any

from omniinput_hpc.errors import UserError

_SIGNALS = (signal.SIGTERM, signal.SIGUSR1, signal.SIGINT)
"""Signals that ask a run to stop (see `parallel.signals`)."""
_log = logging.getLogger("omniinput_hpc")
_USUAL, _RARE = gc.get_threshold(), 500_000


def collect_rarely() -> None:
    """Collect garbage less often until `collect_as_usual` is called, and not at the process's end.

    Imports of torch and transformers make a million objects that stay. Collections look at all of
    them again and again, for a fifth of the time of an import.
    """
    gc.set_threshold(_RARE, *_USUAL[1:])
    atexit.register(gc.freeze)


def keep_imports() -> None:
    """Let collections skip what has been made so far: a quarter of a second each time.

    Like `collect_as_usual`, it does nothing unless `collect_rarely` was called.
    """
    if gc.get_threshold()[0] == _RARE:
        gc.freeze()


def collect_as_usual() -> None:
    """Undo the first effect of `collect_rarely`: garbage of a run may hold large tensors."""
    if gc.get_threshold()[0] == _RARE:  # else it is the user's own setting, in a notebook
        gc.set_threshold(*_USUAL)


@contextmanager
def own_surroundings() -> Iterator[None]:
    """Restore the state that the program relies on, whatever the user's code in the block does.

    That is the working directory, to which paths are relative; the handlers and the mask of the
    signals that stop a run; and the settings of the program's log.
    """
    # The last collection closes files that this code left open.
    atexit.unregister(gc.freeze)
    atexit.unregister(gc.unfreeze)
    atexit.register(gc.unfreeze)
    folder, disabled = os.getcwd(), _log.manager.disable
    about_log = (_log.disabled, _log.level, _log.propagate, list(_log.handlers))
    handlers = {number: signal.getsignal(number) for number in _SIGNALS}
    blocked = signal.pthread_sigmask(signal.SIG_BLOCK, ())
    try:
        yield
    finally:
        if os.getcwd() != folder:
            os.chdir(folder)
        if threading.current_thread() is threading.main_thread():
            for number, handler in handlers.items():
                if handler is not None and signal.getsignal(number) is not handler:
                    signal.signal(number, handler)
        if signal.pthread_sigmask(signal.SIG_BLOCK, ()) != blocked:
            signal.pthread_sigmask(signal.SIG_SETMASK, blocked)
        if (_log.manager.disable, _log.disabled, _log.level) != (disabled, *about_log[:2]):
            logging.disable(disabled)
            _log.setLevel(about_log[1])  # also clears the logger's cache of levels
        _log.disabled, _, _log.propagate, _log.handlers = about_log


def split_name(name: str) -> tuple[str, str]:
    """Return module and function of ``module:function``; raise a ValueError for other names."""
    module_name, colon, function_name = name.partition(":")
    names = [*module_name.split("."), function_name]
    if not (colon and all(map(str.isidentifier, names))):
        raise ValueError('expected "module:function"')
    return module_name, function_name


def load_function(name: str, key: str) -> Callable[..., Any]:
    """Import a function.

    Parameters
    ----------
    name : ``module:function``
    key : the option or key that named it, for messages: ``--rule``, ``model.factory =``

    Raises
    ------
    UserError
        The name has another form, the module or function is missing, or the import calls sys.exit.
    """
    module_name, function_name = _split(name, key)
    _make_current_directory_importable()
    try:
        with own_surroundings():
            module = importlib.import_module(module_name)
    except ImportError as error:
        raise UserError(f"{key} {name}: cannot import {module_name}: {error}") from error
    except SystemExit:
        raise UserError(
            f"{key} {name}: importing {module_name} ends the program (sys.exit); move the code "
            'that runs as a script under if __name__ == "__main__"'
        ) from None
    function: Callable[..., Any] | None = getattr(module, function_name, None)
    if not callable(function):
        raise UserError(f"{key} {name}: {module_name} has no function {function_name}")
    return function


def reads_texts(function: Callable[..., object]) -> bool:
    """Return whether a function asks for the texts of inputs, by a first argument ``texts``."""
    try:
        return next(iter(inspect.signature(function).parameters), "") == "texts"
    except (TypeError, ValueError):  # some functions written in C have no signature
        return False


def call(name: str, key: str, options_key: str, options: dict[str, Any], **more: Any) -> Any:
    """Import a function and call it with keyword arguments.

    Parameters
    ----------
    name, key : as for `load_function`
    options_key : the key of `options`, for messages
    more : further keyword arguments

    Raises
    ------
    UserError
        As `load_function`; or the function does not take these arguments.
    """
    function = load_function(name, key)
    try:
        inspect.signature(function).bind(**more, **options)
    except TypeError as error:
        first = "".join(f"{word} and " for word in more)
        raise UserError(
            f"{key} {name}: the function does not take {first}the keys of {options_key}: {error}"
        ) from None
    except ValueError:
        pass  # a callable without a readable signature
    with own_surroundings():
        return function(**more, **options)


def check_module(name: str, key: str) -> None:
    """Raise a UserError if the module of ``module:function`` is not found, without importing it."""
    module_name, _ = _split(name, key)
    if _find(module_name) is None:
        raise UserError(
            f"{key} {name}: no module {module_name} in the current directory or among the "
            "installed packages"
        )


def source_of(name: str) -> str:
    """Return the name and a hash of the file with ``module:function``; "" if there is no file.

    Only the packages that contain the module are imported. The hash covers only this file, not the
    modules that it imports.
    """
    spec = _find(split_name(name)[0])
    if spec is None or not spec.has_location or spec.origin is None:
        return ""
    path = Path(spec.origin)
    if not os.path.isfile(path):
        return ""
    return f"{path.name} (sha256 {hashlib.sha256(path.read_bytes()).hexdigest()[:16]})"


def _find(module_name: str) -> ModuleSpec | None:
    _make_current_directory_importable()
    try:
        with own_surroundings():  # this imports the packages that contain it
            return importlib.util.find_spec(module_name)
    except (ImportError, ValueError):
        return None


def _split(name: str, key: str) -> tuple[str, str]:
    try:
        return split_name(name)
    except ValueError as error:
        raise UserError(f"{key} {name}: {error}") from None


def _make_current_directory_importable() -> None:
    if "" not in sys.path:
        sys.path.insert(0, "")
