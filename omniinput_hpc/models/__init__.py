"""Models: one file a family; here the protocol and the table of kinds.

This package imports no torch by itself: a family's module is imported when its model is built, so
that a bad input is found in a second.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, Protocol

from omniinput_hpc.config import Config

if TYPE_CHECKING:
    import torch

_FAMILIES = {
    "causal-lm": "omniinput_hpc.models.language.causal_lm",
    "image-classifier": "omniinput_hpc.models.images.classifier",
    "python": "omniinput_hpc.models.custom",
    "sequence-classifier": "omniinput_hpc.models.language.sequence_classifier",
}
_PREFLIGHTS = {
    "causal-lm": "omniinput_hpc.models.language.hf_folder",
    "image-classifier": "omniinput_hpc.models.images.files",
    "python": "omniinput_hpc.models.custom",
    "sequence-classifier": "omniinput_hpc.models.language.hf_folder",
}
_CLOSE = {"float32": 1e-3, "float16": 3e-3, "bfloat16": 2e-2}


class Model(Protocol):
    """What a kernel may ask of a model; a model of one's own needs no more than this.

    Optional, which some kernels need. Inputs x are int64 [W, D]; W is the same in all calls.

    ``output_and_gradient(x) -> (z, g)``
        g = dz / d one_hot(x), float32 [W, D, n_values].
    ``output_and_factors(x) -> (z, e, rest)`` with ``embedding``, ``target_rows(rest, site)``
        The same gradient without building it: ``g[w, i, v] = e[w, i] @ embedding[v] + t[w, i, v]``
        with e float32 [W, D, E], embedding float32 [n_values, E]. ``target_rows(rest, site)``
        returns t of one site a walker, site int64 [W], as float32 [W, n_values]; t is 0 where a
        model is no language model. `rest` is a tuple of tensors whose first axis is W, so that
        the rest of two inputs can be mixed by walkers (``torch.where``). `embedding` is None
        where a model cannot be factored: then use ``output_and_gradient``.
    ``conditional_logits(x) -> (z, l)`` with ``predicted_from``
        l[w, i, v] = log-weight of value v at site i given the sites before it, float32
        [W, D, n_values]; z = -mean over i >= predicted_from of l[w, i, x_i]. Not normalized where
        only some tokens are allowed.
    ``begin(x) -> s``, ``extend(s, values) -> s``, ``fork(s) -> s`` (with ``conditional_logits``)
        Cached decoding: ``begin`` evaluates the first t sites, int64 [n, t], t = 0 allowed;
        ``extend`` appends one value each, int64 [n], and uses its argument up; ``fork`` returns
        an independent copy. ``s.log_p``, float32 [n, n_values], is row t of l (uniform, -ln V,
        where site t is not predicted).
    ``extend_rows(s, values) -> l`` (beside ``extend``)
        Appends k values at once, int64 [n, k], and returns the k rows that follow them, float32
        [n, k, n_values]; uses s up.
    ``track(W) -> Track``
        Room for W inputs that are evaluated once, and then only from the first changed site on
        (see `models.language.kv_cache`), shared by all who ask for as many: its version
        tells whose inputs it keeps. The attribute is None where a model has no such thing.
    ``render(x)``; ``note(x) -> list[str]``
        What a person sees, and a remark on each, "" where there is none.

    Attributes
    ----------
    n_values : int, values per site
    n_sites : int, D
    """

    n_values: int
    n_sites: int

    def output(self, x: torch.Tensor) -> torch.Tensor:
        """Return z, float32 [W], of inputs x, int64 [W, D]."""
        ...

    def render(self, x: torch.Tensor) -> list[Any]:
        """Return what a person sees of inputs x: strings, or uint8 images."""
        ...


def closeness(config: Config) -> float:
    """Return by how much an output may differ on another machine, or evaluated in other pieces.

    By the type of the weights, in units of z.
    """
    return _CLOSE[getattr(config.model, "dtype", "float32")]


def preflight(config: Config) -> dict[str, Any]:
    """Check the model's files without importing torch, and take its fingerprint.

    Returns
    -------
    dict with "fingerprint" (str), and what a plan can be told of the model before it is built:
    "n_values", "n_sites", "bytes" (None where it must be built to know), and "folder", where a
    language model's files are on this machine

    Raises
    ------
    UserError
        Files are missing or do not fit the input file.
    """
    module = import_module(_PREFLIGHTS[config.model.kind])
    return dict(module.preflight(config.model))


def build(config: Config, device: str, folder: str | None = None) -> Model:
    """Build the model on a device; `folder` is what `preflight` found, where it did.

    Raises
    ------
    UserError
        It cannot be built from what the input file says.
    """
    module = import_module(_FAMILIES[config.model.kind])
    options = config.model
    if folder is not None:
        options = options.model_copy(update={"path": folder})
    model: Model = module.build(options, device)
    return model
