"""The first part of a report on several runs: their comparison, in words and figures."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from markupsafe import Markup

from omniinput_hpc.errors import UserError
from omniinput_hpc.estimators import EstimateError
from omniinput_hpc.plots.overlay import Overlaid, overlay_figure
from omniinput_hpc.report.content import Content
from omniinput_hpc.report.page import Drawing, drawing, render
from omniinput_hpc.report.sections import DASH, rounds_of
from omniinput_hpc.results import comparison
from omniinput_hpc.results.aupr import aupr_digits, interval_words
from omniinput_hpc.results.run_groups import require_one_space
from omniinput_hpc.runfile.reader import RunReader
from omniinput_hpc.text import range_words


def compared(
    names: Sequence[str], runs: Sequence[RunReader], contents: Sequence[Content]
) -> Markup:
    """Return the part: first the verdicts, then figures and a table."""
    lines, figures = _judged(names, runs, contents)
    models = [
        Overlaid(name, content.density.label, content.density.estimate, [], {})
        for name, content in zip(names, contents, strict=True)
    ]
    density = models[0].density
    amount = density.words.per_bin(density.absolute).capitalize()
    if len({(model.density.measure, model.density.absolute) for model in models}) == 1:
        figures = [drawing(
            lambda: overlay_figure(models), f"{amount} per output, all runs", "all densities",
            all(content.density.converged for content in contents),
        ), *figures]  # fmt: skip
    return render(
        "compared.html", lines=lines, figures=figures,
        names=("run", "rounds", "converged", "side", "AUPR", "95% interval", "over recall"),
        rows=[_row(*one) for one in zip(names, runs, contents, strict=True)],
        links=[f"#run{number}" for number in range(len(runs))],
    )  # fmt: skip


def _row(name: str, run: RunReader, content: Content) -> list[str]:
    found, side, aupr, interval, over = content.found, DASH, DASH, DASH, DASH
    if found is not None and np.isfinite(found.curve.aupr):
        curve = found.curve
        aupr, interval = f"{curve.aupr:.{aupr_digits(curve)}f}", interval_words(curve)
        over, side = range_words(curve.aupr_range), curve.side
    converged = "yes" if content.density.converged else "no"
    return [name, rounds_of(run), converged, side, aupr, interval, over]


def _judged(
    names: Sequence[str], runs: Sequence[RunReader], contents: Sequence[Content]
) -> tuple[list[str], list[Drawing]]:
    """Return the lines and figures of `omniinput compare`, or why these runs are not compared.

    The verdicts, which are the last lines of a comparison, come first.
    """
    densities = [content.density.estimate for content in contents]
    curves = [content.found for content in contents if content.found is not None]
    one_model = len({run.fingerprint for run in runs}) == 1
    try:
        require_one_space(runs)
        groups = [[run] for run in runs]
        if one_model:
            two = comparison.compare_two_samplers(groups, densities, names)
            caption = "Two runs of one model, and their difference"
            lines = two.summary()
            return [*lines[-1:], *lines[:-1]], [drawing(two.figure, caption, "samplers")]
        if len(curves) < len(runs):
            return ["Give --rule, --scores or --bank to compare precision and recall."], []
        ends = contents[0].options.curve.recall_range
        several = comparison.compare_with_first(groups, densities, names, curves, None, ends)
        caption = "Precision over log recall on one scale, and the ratio of the areas"
        lines, n = several.summary(), len(several.found)
        return [*lines[-n:], *lines[:-n]], [drawing(several.figure, caption, "models")]
    except (UserError, EstimateError) as error:
        return [f"These runs cannot be compared: {error}."], []
