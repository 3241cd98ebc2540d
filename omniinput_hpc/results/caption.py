"""The text about its runs that a figure carries: model, space, rounds, remarks, verdict."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from omniinput_hpc.annotation.display import DescribedRun
from omniinput_hpc.estimators.density.density import Density
from omniinput_hpc.plots import look
from omniinput_hpc.plots.style import Caption


def caption_of(
    runs: Sequence[DescribedRun], densities: Sequence[Density] = (), about: str = ""
) -> Caption:
    """Return the caption of a figure of some runs and of the densities that it shows.

    `about` is the last line of the title, for instance a curve's side and rule. The user's own
    title replaces all lines.
    """
    noisy = any(run.config.noisy for run in runs)
    remarks = ["model.noise = true: the output is not a function of the input"] * noisy
    trusted = max((density.trusted_below for density in densities), default=-np.inf)
    if trusted > -np.inf:
        remarks.append(f"outputs below z = {trusted:.3g} have not equilibrated but are counted")
    converged = all(density.verdict.converged for density in densities)
    given = look.current().title
    titles = [*map(title_of, runs), *filter(None, [about])] if given is None else [given]
    return Caption("\n".join(titles), "; ".join(remarks), converged)


def title_of(run: DescribedRun) -> str:
    """Return a run's label or file name, its model, space and rounds on one line."""
    whose = " ".join(filter(None, [run.config.model.kind, Path(run.config.model_name).name]))
    label = look.current().label_of.get(str(run.path), Path(run.path).stem)
    decades = run.n_sites * np.log10(run.n_values)
    rounds = (
        f"{run.rounds}"
        if run.rounds == run.rounds_planned
        else (f"{run.rounds} of {run.rounds_planned}")
    )
    return (
        f"{label}: {whose}, {run.n_sites} sites of {run.n_values:,} values "
        f"(10^{decades:.1f} inputs), {rounds} rounds"
    )
