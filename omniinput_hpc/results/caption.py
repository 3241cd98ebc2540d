"""The text about its runs that a figure carries: model, space, rounds, remarks, verdict."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from omniinput_hpc.annotation.display import DescribedRun
from omniinput_hpc.estimators.density.density import Density
from omniinput_hpc.plots import look
from omniinput_hpc.plots.look import Caption

MANY = 4
"""Number of runs from which on those of one model share a line."""


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
    titles = [*_titles(runs), *filter(None, [about])] if given is None else [given]
    return Caption("\n".join(titles), "; ".join(remarks), converged)


def _titles(runs: Sequence[DescribedRun]) -> list[str]:
    """Return a line per run, or one for many runs of one model."""
    models = {model_words(run) for run in runs}
    if len(runs) < MANY or len(models) > 1:
        return [title_of(run) for run in runs]
    rounds = _rounds(sum(run.rounds for run in runs), sum(run.rounds_planned for run in runs))
    first, last = _label_of(runs[0]), _label_of(runs[-1])
    return [f"{len(runs)} runs, {first} to {last}: {model_words(runs[0])}, {rounds} in all"]


def title_of(run: DescribedRun) -> str:
    """Return a run's label or file name, its model, space and rounds on one line."""
    return f"{_label_of(run)}: {model_words(run)}, {_rounds(run.rounds, run.rounds_planned)}"


def _rounds(done: int, planned: int) -> str:
    return f"{done} rounds" if done == planned else f"{done} of {planned} rounds"


def _label_of(run: DescribedRun) -> str:
    return look.current().label_of.get(str(run.path), Path(run.path).stem)


def model_words(run: DescribedRun) -> str:
    """Return the model and the space of its inputs."""
    whose = " ".join(filter(None, [run.config.model.kind, Path(run.config.model_name).name]))
    decades = run.n_sites * np.log10(run.n_values)
    if run.config.constrained:
        decades = run.data.log_inputs / np.log(10)
    space = f"{run.n_sites} sites of {run.n_values:,} values (10^{decades:.1f} inputs)"
    law = run.config.law_name
    return f"{whose}, {space}" + (f", [law] {law}" if law else "")
