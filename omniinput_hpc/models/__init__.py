"""Models, which map an input x to its output z.

`protocol` defines the interface of a model; `table` lists the kinds. Importing this package does
not import torch: the module of a kind is imported when its model is built, so that errors in the
input file are reported within a second.
"""

from omniinput_hpc.models.protocol import Model, Offers, law_of, offers_of, space_of
from omniinput_hpc.models.table import (
    KINDS,
    about_tokens,
    build,
    closeness,
    display,
    import_builder,
    on_lattice,
    pending_fingerprint,
    preflight,
    rounding,
    same_outputs,
    with_side,
    z_label,
)

__all__ = [
    "KINDS",
    "Model",
    "Offers",
    "about_tokens",
    "build",
    "closeness",
    "display",
    "import_builder",
    "law_of",
    "offers_of",
    "on_lattice",
    "pending_fingerprint",
    "preflight",
    "rounding",
    "same_outputs",
    "space_of",
    "with_side",
    "z_label",
]
