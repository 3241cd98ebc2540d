"""What the report says of a run: settings, diagnostics, density, curves, inputs, tables."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from omniinput_hpc import figures, score_figures
from omniinput_hpc.annotation.join import Joined
from omniinput_hpc.annotation.tasks import key_path, read_key, read_tasks
from omniinput_hpc.estimators.density import Density
from omniinput_hpc.estimators.precision_recall import Curve
from omniinput_hpc.estimators.score_tables import agreement_lines
from omniinput_hpc.estimators.scored import ScoredCurve
from omniinput_hpc.estimators.tables import (
    curve_columns,
    density_columns,
    describe_curve,
    describe_density,
    describe_run,
    summarize_curve,
    summarize_density,
    table_text,
)
from omniinput_hpc.mask import mask
from omniinput_hpc.report.page import data_link, fold, lines, table, text
from omniinput_hpc.report.pictures import inline_svg
from omniinput_hpc.run_reader import RunReader

MOST_SHOWN = 8  # inputs a bin


@dataclass(frozen=True)
class Content:
    """What was estimated of a run.

    Attributes
    ----------
    density : Density; curve_density : in the curve's bins
    curve : Curve or None, `by` whose scores
    joined, result : of annotators' scores, or None
    tasks : the task file whose inputs are shown, or None
    """

    density: Density
    curve_density: Density
    curve: Curve | None
    by: str
    side: str
    joined: Joined | None
    result: ScoredCurve | None
    tasks: Path | None


def section(run: RunReader, content: Content, masked: bool) -> str:
    """Return the part of the page about one run."""
    source, stem = describe_run(run), run.path.stem
    parts = [f"<h2>{text(run.path.name)}</h2>\n<p class='soft'>{text(source)}</p>\n"]
    verdict = content.density.verdict
    said = ["The run has converged: errors from lanes and from blocks of rounds agree."]
    said = said if verdict.converged else [f"Not converged: {r}." for r in verdict.reasons]
    parts.append(lines(said, "good" if verdict.converged else "bad"))
    parts.append(fold("Settings", f"<pre>{text(run.config_toml)}</pre>"))
    parts += ["<h3>Diagnostics</h3>\n", diagnostics(run, content.density)]
    parts += ["<h3>Output distribution</h3>\n", lines(summarize_density(content.density)[:-1])]
    label = figures.z_label(run.config)
    parts.append(
        inline_svg(
            lambda: figures.density_figure(content.density, label),
            f"Number of inputs per bin of the output, and its standard error: {stem}",
            f"{stem} density",
        )
    )
    parts += _curves(content, label, stem) + _inputs(content, run, masked)
    parts.append(_downloads(content, source, stem))
    return "".join(parts)


def diagnostics(run: RunReader, density: Density) -> str:
    """Return the table of rungs: acceptance, swaps, R-hat, autocorrelation, moves outside."""
    swaps_k2 = run.swaps_k2()
    with np.errstate(invalid="ignore", divide="ignore"):
        swapped = np.append(swaps_k2[:, 1] / swaps_k2[:, 0], np.nan)
        outside = density.outside_k2.sum(axis=1) / (density.n_k + density.outside_k2.sum(axis=1))
    columns = (density.beta_k, swapped, density.verdict.rhat_k, density.verdict.tau_k, outside)
    names = ("beta", "swaps with the next", "R-hat", "autocorrelation (rounds)", "outside the bins")
    rows = [[number(value) for value in row] for row in zip(*columns, strict=True)]
    return table(names, rows)


def number(value: float) -> str:
    """Return a number in few digits, a dash where it is not known."""
    return "\N{EN DASH}" if not np.isfinite(value) else f"{value:.4g}"


def _curves(content: Content, label: str, stem: str) -> list[str]:
    curve = content.curve
    if curve is None:
        note = "Give --rule or --scores for precision and recall."
        return [f"<h3>Precision and recall</h3>\n<p class='soft'>{note}</p>\n"]
    density = content.curve_density
    drawings = {
        "Precision over log recall with its 95% band": lambda: figures.curve_figure(density, curve),
        "Mean score per bin": lambda: score_figures.r_figure(density, curve, label),
        "Right and wrong inputs accepted": lambda: score_figures.roc_figure(density, curve),
    }
    joined, result = content.joined, content.result
    said = summarize_curve(density, curve)[:-1]
    if joined is not None and result is not None:
        said += agreement_lines(
            joined.scored, joined.first_ar, joined.second_ar, joined.given_ag, joined.gold_g
        )
        drawings["Mean score per annotator"] = lambda: score_figures.annotators_figure(
            joined.scored, result.used_b, label
        )
    pictures = [inline_svg(make, f"{name}: {stem}", stem + name) for name, make in drawings.items()]
    return [
        f"<h3>Precision and recall</h3>\n<p class='soft'>Scores: {text(content.by)}</p>\n",
        lines([line for line in said if not line.startswith(("converged", "not converged"))]),
        '<div class="figures">', *pictures, "</div>\n",
    ]  # fmt: skip


def _inputs(content: Content, run: RunReader, masked: bool) -> list[str]:
    """Return the inputs of the task file by bin, with what they are and their mean score."""
    parts = ["<h3>Representative inputs</h3>\n"]
    if content.tasks is None:
        note = f"There is no {run.path.stem}.tasks.jsonl beside the run; --tasks names another."
        return [*parts, f"<p class='soft'>{text(note)}</p>\n"]
    tasks = read_tasks(content.tasks)
    key = read_key(key_path(content.tasks), tasks.tasks_id)
    shown, by_bin = {task.id: task for task in tasks.tasks}, defaultdict(list)
    for item in key.items:
        if item.run is None or item.repeats is not None or item.bin_lower is None:
            continue
        if key.runs[item.run].model_fingerprint == run.fingerprint:
            by_bin[item.bin_lower].append(item)
    if masked:
        parts.append(
            "<p class='soft'>E-mail addresses, phone numbers and street addresses are masked "
            "where they are written in a usual way.</p>\n"
        )
    for lower in sorted(by_bin, reverse=content.side == "high"):
        items = by_bin[lower]
        cards = []
        for item in items[:MOST_SHOWN]:
            task = shown[item.id]
            words = mask(task.text or "") if masked else task.text or ""
            picture = f'<img alt="input with output {item.z:.4g}" src="{text(task.png)}">'
            what = picture if task.png else f'<div class="text" dir="auto">{text(words)}</div>'
            cards.append(f'<li>{what}<span class="soft">z = {item.z:.4g}</span></li>\n')
        title = f"z from {lower:.6g} to {lower + key.width:.6g}: {len(items)} inputs"
        listed = f'<ul class="inputs">{"".join(cards)}</ul>'
        parts.append(f"<h4>{text(title)}</h4>\n{listed}\n")
    return parts


def _downloads(content: Content, source: str, stem: str) -> str:
    header = describe_density(content.density, source)
    files = {f"{stem}.density.csv": table_text(header, density_columns(content.density))}
    if content.curve is not None:
        first = describe_curve(content.curve, content.side, content.by)
        columns = curve_columns(content.curve)
        files[f"{stem}.pr.csv"] = table_text([*first, *header], columns)
    links = ", ".join(data_link(name, text_) for name, text_ in files.items())
    return f'<p class="screen">Tables to save: {links}</p>\n'
