"""A run's section of the report: summary, density, curves, inputs, settings, diagnostics."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from typing import Any

import numpy as np
from markupsafe import Markup

from omniinput_hpc.config import Config
from omniinput_hpc.estimators.density.density import Density
from omniinput_hpc.estimators.density.wide_bins import for_picture
from omniinput_hpc.estimators.errors.diagnosis import Diagnosis
from omniinput_hpc.estimators.precision_recall.curves import Side
from omniinput_hpc.report.content import Content
from omniinput_hpc.report.marks import curve_marks, density_marks
from omniinput_hpc.report.page import Drawing, drawing, render
from omniinput_hpc.report.summary import answer, model_line, question
from omniinput_hpc.results import tables
from omniinput_hpc.results.aupr import aupr_line, scale_lines
from omniinput_hpc.results.curves import confident_side
from omniinput_hpc.results.density import CHECKS, DensityResult, check_rows
from omniinput_hpc.results.diagnosis import ladder_line
from omniinput_hpc.results.representatives import (
    Representative,
    Representatives,
    RepresentativesResult,
)
from omniinput_hpc.results.rules import rule_words
from omniinput_hpc.results.scores import AnnotatorsResult, agreement_lines
from omniinput_hpc.runfile.reader import RunReader
from omniinput_hpc.text import shown_path

DASH = "\N{EN DASH}"
FIRST = 5
"""Inputs shown first, those that the model is most confident about."""
SHOWN_ELSEWHERE = ("config", "format", "model_fingerprint")


def section(run: RunReader, content: Content, number: int, name: str) -> Markup:
    """Return the section on the `number`-th run; `name` distinguishes it from the others."""
    density, words = content.density.estimate, content.density.estimate.words
    drawn = for_picture(density)
    width = np.diff(drawn.edges).max()
    verdict, converged = density.verdict, density.verdict.converged
    said = [f"Not converged: {reason}." for reason in verdict.reasons]
    if converged:
        untested = sum(not np.isfinite(check.value) for check in verdict.checks)
        more = (
            f" ({untested} more {'do' if untested > 1 else 'does'} not apply)" if untested else ""
        )
        said = [f"Converged: {len(verdict.checks) - untested} checks passed{more}."]
    side = confident_side(run, content.options.curve.side).end
    first = _most_confident(content.inputs, side)
    ends = list(zip(("Lowest", "Highest"), content.ends, strict=True))
    return render(
        "section.html",
        number=number,
        title=run.path.name,
        run_path=shown_path(run.path),
        kind=content.inputs.kind,
        titled=not content.options.one_run,
        converged=converged,
        model=model_line(run, content),
        question=question(content),
        answer=answer(run, content),
        inputs_figure=_inputs_figure(run, content, drawn, side, number),
        first=first,
        first_title=_title_of(content.inputs, first),
        any_class=getattr(run.config.model, "label", None) == "any",
        own=content.own,
        cut=content.own is not None and run.config.constraint != "space.end",
        verdict=said,
        why=_why(verdict.reasons),
        unfinished=rounds_of(run) if run.rounds < run.rounds_planned else "",
        settings=_settings(run),
        config=run.config_toml,
        environment=[(k, v) for k, v in run.texts.items() if k not in SHOWN_ELSEWHERE],
        checks={"names": CHECKS, "rows": check_rows(verdict.checks)},
        rungs=_rungs(content.diagnosis.found, run.config),
        mixing=_mixing(content.diagnosis.found, density),
        advice=content.diagnosis.advice,
        density=content.density.numbers() + content.density.more(),
        density_figure=drawing(
            DensityResult([run], [drawn]).figure,
            f"{words.per_bin(density.absolute).capitalize()} per bin of the output "
            f"({width:.4g} wide), and its standard error: {name}",
            f"{number} density",
            converged,
            density_marks(drawn, upright=False),
        ),
        curve=_curve(content, name, number),
        inputs=content.inputs,
        ends=ends if side == "low" else ends[::-1],
        side=side,
        masked=content.options.masked,
        files=_files(content, name),
    )


def _why(reasons: Sequence[str]) -> str:
    """Return the first reason, and how many more there are."""
    more = f" ({len(reasons) - 1} more under Convergence)" if len(reasons) > 1 else ""
    return f"{reasons[0]}{more}" if reasons else ""


def _inputs_figure(
    run: RunReader, content: Content, density: Density, side: Side, number: int
) -> Drawing:
    """Return the density with an input of each bin beside it."""
    shown = RepresentativesResult([run], [density], [content.inputs], side, with_values=False)
    return drawing(
        shown.density_figure,
        f"{density.words.per_bin(density.absolute).capitalize()} per output, and inputs beside "
        "their output",
        f"{number} inputs",
        density.verdict.converged,
        density_marks(density, upright=True),
    )


def _most_confident(inputs: Representatives, side: Side) -> list[Representative]:
    """Return the inputs shown that the model is most confident about."""
    sign = 1.0 if side == "low" else -1.0
    return sorted(inputs.items, key=lambda item: sign * item.z)[:FIRST]


def _title_of(inputs: Representatives, first: Sequence[Representative]) -> str:
    """Return the title of the inputs shown first, with the range of their outputs."""
    if not first:
        return "No inputs to show"
    low, high = sorted((first[0], first[-1]), key=lambda item: item.z)
    return f"Some inputs with z from {inputs.z_text(low)} to {inputs.z_text(high)}"


def _settings(run: RunReader) -> list[tuple[str, str]]:
    config, seed = run.config, run.config.seed
    return [
        ("model", f"{config.model.kind} {config.model_name}".strip()),
        ("model's fingerprint", run.fingerprint),
        ("input space", f"{run.n_sites} sites of {run.n_values:,} values"),
        *([("law of inputs", config.law_name)] if config.law else []),
        ("method", config.sampler.method),
        *([] if config.sampler.method == "ancestral" else [("kernel", config.kernel.name)]),
        ("rungs, walkers per rung", f"{len(run.beta_k)}, {run.walkers}"),
        ("rounds", rounds_of(run)),
        ("moves per walker and round", f"{(run.moves_per_round or 0) // run.walkers:,}"),
        ("recorded samples", f"{run.rounds * len(run.beta_k) * run.samples_per_round:,}"),
        ("bins", f"{len(run.edges) - 1}, {run.edges[0]:g} to {run.edges[-1]:g}"),
        ("seed", DASH if seed is None else str(seed)),
    ]


def rounds_of(run: RunReader) -> str:
    """Return the number of rounds, committed and planned, in words."""
    unfinished = "" if run.rounds == run.rounds_planned else ", not finished"
    return f"{run.rounds} of {run.rounds_planned}{unfinished}"


def _rungs(d: Diagnosis, config: Config) -> dict[str, Sequence[Any]]:
    """Return the table of rungs: outputs, effective samples, R-hat, swaps, moves; and their weight.

    Runs of draws have neither swaps nor moves.
    """
    chains, swapped_k = not d.drawn_k.all(), np.append(d.swapped_k, np.nan)
    names = ["rung", "beta", "mean z", "sd of z", "effective samples", "R-hat"]
    if chains:
        names += ["swaps with next", *(f"accepted: {name}" for name in d.part_names)]
    rows = []
    for k, beta in enumerate(d.beta_k):
        row = [str(k), "flat" if np.isnan(beta) else f"{beta:.5g}"]
        row += map(_number, (d.z_mean_k[k], d.z_std_k[k], d.ess_k[k]))
        row.append(f"{d.rhat_k[k]:.3f}" if np.isfinite(d.rhat_k[k]) else DASH)
        shares = [swapped_k[k], *d.accepted_kn[k]] if chains else []
        rows.append([*row, *map(_share, shares)])
    return {"about": _weight(config), "names": names, "rows": rows}


def _weight(config: Config) -> str:
    """Return with which weight the rows of the table of rungs sample inputs."""
    if config.sampler.method == "ancestral":
        return (
            "A row per rung: it draws inputs value by value from p^b, with p the model's "
            "probability of a value and b = beta / m, m the number of predicted sites. This is the "
            "weight exp(-beta z) only at b = 0 and b = 1."
        )
    if config.sampler.method == "annealed":
        return (
            "A row per rung, a temperature: its populations, each walker with its weight, "
            "represent inputs with weight exp(-beta z). The walkers alone do not."
        )
    said = []
    if config.ladder is not None:
        exponent = "-beta z" + ("" if config.ladder.lambdas is None else " - lambda y")
        exponent += "" if config.ladder.kappa is None else " - kappa (z - z0)^2 / 2"
        weight = f"exp({exponent})" if config.law is None else f"q(x) exp({exponent}), q the law"
        said = [f"A row per rung, a temperature: it samples inputs with weight {weight}."]
    if config.sampler.method == "wang-landau":
        said.append("A rung named flat samples all outputs in its bins equally often.")
    return " ".join(said)


def _mixing(d: Diagnosis, density: Density) -> list[str]:
    """Return how well walkers mix along the ladder, and how many moves fell outside the bins."""
    said = []
    if np.isfinite(d.barrier):
        said.append(
            f"{ladder_line(d)}. {d.trips_v.sum()} round trips by "
            f"{np.count_nonzero(d.trips_v)} of {len(d.trips_v)} walkers."
        )
    return [*said, f"Moves outside the bins: {density.outside_k2.sum():,}."]


def _number(value: float) -> str:
    if not np.isfinite(value):
        return DASH
    return f"{value:,.0f}" if abs(value) >= 10_000 else f"{value:.4g}"


def _share(value: float) -> str:
    return DASH if not np.isfinite(value) else f"{value:.1%}"


def _curve(content: Content, name: str, number: int) -> dict[str, Any] | None:
    """Return the lines and figures of the curve; None without a rule or scores."""
    found = content.found
    if found is None:
        return None
    precision = "Precision over log recall with its 95% band"
    figures = {"Mean score per bin": found.r_figure}
    if np.isfinite(found.curve.log_recall_t[-1]):  # some input is right
        roc = {"Right against wrong inputs accepted (unnormalized ROC)": found.roc_figure}
        figures = {precision: found.figure} | figures | roc
    said = found.numbers()
    if found.joined is not None and found.scored is not None:
        annotators = AnnotatorsResult(found.runs, found.densities, found.joined, found.scored)
        said += agreement_lines(found.joined)
        if len(found.joined.scored.annotators) > 1:  # else the figure of all says the same
            figures["Mean score per annotator"] = annotators.figure
    marks = curve_marks(found.density, found.curve)
    drawn = [
        drawing(
            make, f"{what}: {name}", f"{number} {what}", found.converged,
            marks if what == precision else None,
        )
        for what, make in figures.items()
    ]  # fmt: skip
    lines = [
        aupr_line(found.curve, found.density),
        *scale_lines(found.density, found.curve),
        *found.reach_lines(),
    ]
    more = [line for line in [*found.side_lines(), *said] if line not in lines]
    by = found.by if found.joined else rule_words(found.by)
    return {"by": by, "lines": lines, "more": more, "figures": drawn}


def _files(content: Content, name: str) -> list[dict[str, str]]:
    """Return the tables that the page carries as downloads."""
    density, found, options = content.density, content.found, content.options
    files = {"density": tables.table_text(density.table())}
    if found is not None:
        files["pr"] = tables.table_text(found.table())
    files["representatives"] = tables.table_text(content.inputs.columns(not options.masked))
    return [
        {"name": f"{name}.{what}.csv", "base64": base64.b64encode(text.encode()).decode("ascii")}
        for what, text in files.items()
    ]
