"""Kernels: one Markov transition per file. `build` makes the one that the input file names.

The table of kernels is `omniinput_hpc.config.kernels.KERNELS`, which does not import torch.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from importlib import import_module
from typing import Any

from omniinput_hpc.config import KernelTable
from omniinput_hpc.config import Mixture as MixtureOptions
from omniinput_hpc.config.kernels import DiscreteLangevin as DiscreteLangevinOptions
from omniinput_hpc.config.kernels import FromLaw as FromLawOptions
from omniinput_hpc.config.kernels import GibbsWithGradients as GibbsWithGradientsOptions
from omniinput_hpc.config.kernels import Metropolis as MetropolisOptions
from omniinput_hpc.errors import UserError
from omniinput_hpc.kernels.metropolis import reaches_every_input
from omniinput_hpc.kernels.mixture import Mixture
from omniinput_hpc.kernels.parts.device_rng import DeviceStream
from omniinput_hpc.kernels.state import Info, Kernel, Learner, SearchBudget, State, Target
from omniinput_hpc.models import Model, law_of

__all__ = ["DeviceStream", "Info", "Kernel", "Learner", "SearchBudget", "State", "Target", "build"]


def build(options: KernelTable, model: Model, n_walkers: int) -> Kernel:
    """Build the kernel that the input file names, for one rung.

    Raises a `UserError` if the kernel does not fit the model or can never reach some inputs.
    """
    parts = options.parts if isinstance(options, MixtureOptions) else [options]
    kernels = [_build_part(part, model, n_walkers) for part in parts]
    _check_reach(parts, model)
    _check_reach_inside(parts, model)
    if isinstance(options, MixtureOptions):
        return Mixture(kernels, [part.weight for part in options.parts], options.part_names)
    return kernels[0]


def _build_part(options: KernelTable, model: Model, n_walkers: int) -> Kernel:
    module, _, name = options.implementation.partition(":")
    make: Callable[[Any, Model, int], Kernel] = getattr(import_module(module), name)
    return make(options, model, n_walkers)


def _check_reach_inside(parts: Sequence[KernelTable], model: Model) -> None:
    """Raise a `UserError` if moves may not connect the prompts of a law, or a constrained space.

    A part that may propose any input connects all. So do changes of single sites if texts end, or
    if each site has its own list of values.
    """
    law, n = law_of(model), model.n_sites
    redraws = [part for part in parts if isinstance(part, FromLawOptions)]
    if getattr(law, "separate", False) and not redraws:
        raise UserError(
            'kernel: no move changes a prompt (law.prompt); leave [kernel] out, or add "from-law"'
        )
    inside = getattr(law, "automaton", None)
    if inside is None:
        return
    if inside.end is not None:
        if all(isinstance(part, MetropolisOptions) and part.sites > 1 for part in parts):
            raise UserError(
                "kernel.sites: texts that end are connected by changes of one site at a time; set "
                'kernel.sites = 1, or add a part "from-law" to a mixture'
            )
        return
    if inside.by_site and inside.is_canonical is None and any(map(_changes_single_sites, parts)):
        return
    if not any(p.weights.suffix > 0 and (p.suffix_lengths or [n, n])[1] == n for p in redraws):
        raise UserError(
            "kernel: the inputs that [space] leaves may not be connected by changes of some sites "
            'at a time; leave out [kernel], or add a part "from-law" with suffixes of all lengths'
        )


def _changes_single_sites(part: KernelTable) -> bool:
    """Return whether a part may change any one site to any of its values."""
    gradients = isinstance(part, GibbsWithGradientsOptions | DiscreteLangevinOptions)
    return gradients or (isinstance(part, MetropolisOptions) and part.sites == 1)


def _check_reach(parts: Sequence[KernelTable], model: Model) -> None:
    """Raise a `UserError` if the moves of all parts conserve a quantity, so inputs are missed."""
    sites = [part.sites for part in parts if isinstance(part, MetropolisOptions)]
    if len(sites) == len(parts) and not reaches_every_input(sites, model.n_values, model.n_sites):
        raise UserError(
            f"kernel.sites = {', '.join(map(str, sites))}: with {model.n_values} values per "
            "site, such moves flip an even number of sites, or all of them, and never reach half "
            "of the inputs; set kernel.sites = 1, or add a part to a mixture"
        )
