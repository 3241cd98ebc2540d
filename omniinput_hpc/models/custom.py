"""``kind = "python"``: a model made by the user's own function, ``module:function``.

torch is not imported before a model is built; the user's module imports it.
"""

from __future__ import annotations

import json
import operator
import os
import sys
from collections.abc import Callable
from contextlib import nullcontext
from functools import wraps
from typing import Any

import numpy as np

from omniinput_hpc import plugins
from omniinput_hpc.config import PythonModel
from omniinput_hpc.errors import UserError
from omniinput_hpc.models.display import Display, Values, values_as_text
from omniinput_hpc.models.protocol import offers_of

KEY = "model.factory ="
GRADIENTS = {"output_and_gradient", "output_and_factors"}
EVALUATIONS = GRADIENTS | {
    "change", "conditional_logits", "target_rows", "begin", "extend", "branch", "select",
}  # fmt: skip
"""Methods that are called with tensors, in addition to ``output`` (see `protocol.Offers`)."""


def preflight(options: PythonModel) -> dict[str, Any]:
    """Check that the factory's module exists; the rest is known only when the model is built."""
    plugins.check_module(options.factory, KEY)
    text = json.dumps(options.options, sort_keys=True, default=str)
    unknown = dict.fromkeys(("n_values", "n_sites", "bytes"))
    return {"fingerprint": f"python:{options.factory}:{text}", **unknown}


def build(options: PythonModel, device: str) -> Any:
    """Call the user's factory; a `UserError` if it is missing or does not return a model."""
    function = plugins.load_function(options.factory, KEY)
    try:
        model = plugins.call(options.factory, KEY, "model.options", options.options, device=device)
    except UserError as error:
        raise UserError(f"{error}{_network_hint(function)}") from None
    where = f"{KEY} {options.factory}"
    sizes = {}
    for attribute, least in (("n_values", 2), ("n_sites", 1)):
        value: Any = getattr(model, attribute, None)
        try:
            sizes[attribute] = least - 1 if isinstance(value, bool) else operator.index(value)
        except TypeError:
            sizes[attribute] = least - 1
        if sizes[attribute] < least:
            raise UserError(
                f"{where}: the model's {attribute} must be a whole number of at least {least}, "
                f"found {value!r}{_network_hint(model)}"
            )
    if not callable(getattr(model, "output", None)):
        raise UserError(f"{where}: the model has no method output(x)")
    return OwnModel(model, **sizes)


class OwnModel:
    """A user's model as the program calls it: without gradients, except to compute one.

    Changes that a method makes to the process are undone: all of them after the method's first call
    (see `plugins.own_surroundings`), the working directory after every call. All other attributes
    are those of the user's object, except `base`, which the program reads of its own models.
    """

    def __init__(self, model: Any, n_values: int, n_sites: int) -> None:
        self._own, self.n_values, self.n_sites = model, n_values, n_sites
        self.output = self._called("output")

    def __getattr__(self, name: str) -> Any:
        if name in ("_own", "base"):  # the first is not set while the object is copied
            raise AttributeError(name)
        called = name in EVALUATIONS and callable(getattr(self._own, name))
        return self._called(name) if called else getattr(self._own, name)

    def _called(self, name: str) -> Callable[..., Any]:
        return guarded(getattr(self._own, name), name in GRADIENTS)


def guarded(function: Callable[..., Any], with_gradient: bool = False) -> Callable[..., Any]:
    """Wrap a user's function: gradients are on or off, whatever the user's code has set.

    It undoes changes to the process as `OwnModel` does.
    """
    import torch

    folder, called = os.getcwd(), False

    @wraps(function)
    def call(*arguments: Any) -> Any:
        nonlocal called
        # Only at the first call, where libraries set themselves up: restoring everything takes as
        # long as a small model.
        kept = nullcontext() if called else plugins.own_surroundings()
        called = True
        with kept, torch.set_grad_enabled(with_gradient):
            found = function(*arguments)
        if os.getcwd() != folder:
            os.chdir(folder)
        return _detached(found)

    return call


def _detached(found: Any) -> Any:
    """Return tensors, or tuples of them, detached from autograd."""
    import torch

    if isinstance(found, torch.Tensor):
        return found.detach()
    if type(found) is tuple:
        return tuple(map(_detached, found))
    return found


def _network_hint(found: object) -> str:
    """Return how to use a bare torch network, as the end of a message; "" for other objects."""
    nn = sys.modules.get("torch.nn")  # imported already if there is a network
    network: type | None = getattr(nn, "Module", None)
    kind = found if isinstance(found, type) else type(found)
    if network is None or not issubclass(kind, network):
        return ""
    return (
        "; for a torch network of images, give init its weights: init WEIGHTS.safetensors "
        "--set model.factory=module:function; the function returns the network "
        "(docs/tutorial.md, section 7)"
    )


def display(options: PythonModel) -> Display:
    """Build the model and show inputs by its ``render``, or as values without one."""
    preflight(options)
    model = build(options, "cpu")
    render = offers_of(model).render
    if render is None:
        note = f"{options.factory} has no render method: values are shown"
        return Display("text", values_as_text, None, note)
    import torch

    def show(x_nd: Values) -> list[Any]:
        return list(render(torch.from_numpy(x_nd.astype(np.int64))))

    probe = show(np.zeros((1, model.n_sites), dtype=np.int64))
    note = f"shown by the render method of {options.factory}, which is imported together with torch"
    return Display("text" if isinstance(probe[0], str) else "image", show, None, note)
