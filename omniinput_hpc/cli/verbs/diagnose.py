"""Diagnose how well a run mixes, and what to change: moves, swaps, round trips, R-hat.

Writes RUN.diagnose.csv and .png.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from omniinput_hpc.cli.scripts import add_figure_options, new_parser, new_record
from omniinput_hpc.estimators import EstimateError, FloatArray
from omniinput_hpc.estimators.density.density import density_of_run
from omniinput_hpc.estimators.errors.convergence import Check
from omniinput_hpc.plots import look
from omniinput_hpc.plots.diagnosis import diagnosis_figure
from omniinput_hpc.plots.style import caption_of, save_as, z_label
from omniinput_hpc.results import diagnosis
from omniinput_hpc.results.density import check_lines, populations_lines
from omniinput_hpc.results.record import Record
from omniinput_hpc.results.tables import describe_run
from omniinput_hpc.runfile.reader import RunReader, open_run


def main(arguments: list[str], program: str = "diagnose.py") -> None:
    """Read, diagnose, write, and print what to change."""
    parser = new_parser(program, __doc__, "runs/toy.h5")
    add_figure_options(parser)
    options = parser.parse_args(arguments)
    look.use([[options.run]], options.label, options.title, options.style)
    record = new_record(program, arguments, options, options.run)
    with open_run(options.run, options.on_damage) as run:
        record.add_run(run)
        checks, rhat_k = _checks(run, record)
        found = diagnosis.diagnose(run, rhat_k)
        source, label = describe_run(run), z_label(run.config)
        caption = caption_of([run])
        traces, paths_rv = diagnosis.lane_traces(run), diagnosis.walker_paths(run)
        constants = populations_lines(run.data)
    hints, columns = diagnosis.advice(found), diagnosis.columns(found)
    figure = diagnosis_figure(found, traces, paths_rv, label)
    files = record.add_results("diagnose", [source, *hints], columns, save_as(figure, caption))
    failed = [f"not converged: {check.reason}" for check in checks if not check.passed]
    hints = [*failed, *hints] or ["nothing stands out"]
    record.add_value("Lambda", found.barrier)
    record.add_value("rungs needed", found.rungs_needed if np.isfinite(found.barrier) else np.nan)
    record.add_value("round trips", int(found.trips_v.sum()))
    record.add_value("smallest effective sample size", float(np.min(found.ess_k)))
    record.add_value("largest R-hat", float(np.max(found.rhat_k)))
    if constants:
        constants.append("mean z, sd z, ESS and R-hat are of walkers, not of what they weigh")
    asked = check_lines(checks) if len(checks) > 1 else []
    record.notes = [source, *diagnosis.table(found), *constants, *asked, *hints]
    record.save()
    print("\n".join([*record.notes, *files]))


def _checks(run: RunReader, record: Record) -> tuple[Sequence[Check], FloatArray | None]:
    """Return the checks of the run's density, or why it has none, and R-hat per rung if known."""
    try:
        density = density_of_run(run.data)
    except EstimateError as error:
        return [Check("density", sentence=f"there is no density: {error}")], None
    record.add_density(density, run.path.stem)
    return density.verdict.checks, density.verdict.rhat_k
