"""``kind = "python"``: an object made by the user's own function, ``module:function``.

No torch before a model is built: the user's module brings its own.
"""

from __future__ import annotations

import json
import sys
from typing import Any

import numpy as np

from omniinput_hpc import plugins
from omniinput_hpc.config import PythonModel
from omniinput_hpc.errors import UserError
from omniinput_hpc.models.display import Display, Values, values_as_text
from omniinput_hpc.models.protocol import offers_of

KEY = "model.factory ="


def preflight(options: PythonModel) -> dict[str, Any]:
    """Check that the factory's module is there; the rest is known once the model is built."""
    plugins.check_module(options.factory, KEY)
    text = json.dumps(options.options, sort_keys=True, default=str)
    unknown = dict.fromkeys(("n_values", "n_sites", "bytes"))
    return {"fingerprint": f"python:{options.factory}:{text}", **unknown}


def build(options: PythonModel, device: str) -> Any:
    """Call the user's factory; a `UserError` if there is none or it does not return a model."""
    function = plugins.load_function(options.factory, KEY)
    try:
        model = plugins.call(options.factory, KEY, "model.options", options.options, device=device)
    except UserError as error:
        raise UserError(f"{error}{_network_hint(function)}") from None
    where = f"{KEY} {options.factory}"
    for attribute, least in (("n_values", 2), ("n_sites", 1)):
        value = getattr(model, attribute, None)
        if not isinstance(value, int) or value < least:
            raise UserError(
                f"{where}: the model's {attribute} must be a whole number of at least {least}, "
                f"found {value!r}{_network_hint(model)}"
            )
    if not callable(getattr(model, "output", None)):
        raise UserError(f"{where}: the model has no method output(x)")
    return model


def _network_hint(found: object) -> str:
    """Return where a bare torch network belongs, for the end of a message; "" for all else."""
    nn = sys.modules.get("torch.nn")  # a network's own module has imported it
    network: type | None = getattr(nn, "Module", None)
    kind = found if isinstance(found, type) else type(found)
    if network is None or not issubclass(kind, network):
        return ""
    return (
        "; a torch network for images goes by the file of its weights: init WEIGHTS.safetensors "
        "--kind image-classifier --set model.factory=module:function, which returns the network "
        "(docs/tutorial.md, section 7)"
    )


def display(options: PythonModel) -> Display:
    """Build the model and show inputs by its ``render``, or else their values."""
    preflight(options)
    model = build(options, "cpu")
    render = offers_of(model).render
    if render is None:
        note = f"{options.factory} has no render: values shown"
        return Display("text", values_as_text, None, note)
    import torch

    def show(x_nd: Values) -> list[Any]:
        return list(render(torch.from_numpy(x_nd.astype(np.int64))))

    probe = show(np.zeros((1, model.n_sites), dtype=np.int64))
    note = f"by the render of {options.factory}, which is imported (and torch with it)"
    return Display("text" if isinstance(probe[0], str) else "image", show, None, note)
