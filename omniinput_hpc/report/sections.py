"""What the report says of a run: settings, diagnostics, density, curves, inputs, tables."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from matplotlib.figure import Figure

from omniinput_hpc.estimators.density.density import Density
from omniinput_hpc.estimators.precision_recall.from_rule import Curve
from omniinput_hpc.plots.density import density_figure
from omniinput_hpc.plots.precision_recall import curve_figure, roc_figure
from omniinput_hpc.plots.scores import annotators_figure, r_figure
from omniinput_hpc.plots.style import LN10, z_label
from omniinput_hpc.report.content import Content
from omniinput_hpc.report.inputs import inputs_part
from omniinput_hpc.report.page import data_link, fold, lines, table, text
from omniinput_hpc.report.pictures import inline_svg
from omniinput_hpc.results.diagnosis import Diagnosis, advice
from omniinput_hpc.results.representatives import csv_text
from omniinput_hpc.results.score_tables import agreement_lines
from omniinput_hpc.results.tables import (
    curve_columns,
    density_columns,
    describe_curve,
    describe_density,
    describe_run,
    summarize_curve,
    summarize_density,
    table_text,
)
from omniinput_hpc.runfile.reader import RunReader

DASH = "\N{EN DASH}"
SAID_ELSEWHERE = ("config", "format", "model_fingerprint")


def section(run: RunReader, content: Content, number: int, name: str) -> str:
    """Return the part of the page about one run, the `number`-th, with its own name."""
    label = z_label(run.config)
    verdict = content.density.verdict
    said = ["Converged: errors from lanes and from blocks of rounds agree, and lanes do."]
    said = said if verdict.converged else [f"Not converged: {r}." for r in verdict.reasons]
    density_picture = inline_svg(
        lambda: density_figure(content.density, label),
        f"Number of inputs per bin of the output, and its standard error: {name}",
        f"{number} density",
    )
    parts = [
        f'<section id="run{number}">\n<h2>{text(run.path.name)}</h2>\n',
        lines(said, "good" if verdict.converged else "bad"),
        _settings(run),
        "<h3>Diagnostics</h3>\n",
        diagnostics(content.diagnosis, content.density),
        lines(advice(content.diagnosis), "bad"),
        "<h3>Output distribution</h3>\n",
        lines(_without_verdict(summarize_density(content.density))),
        density_picture,
        *_curves(content, label, name, number),
        "<h3>Representative inputs</h3>\n",
        inputs_part(content.inputs, content.side, content.masked),
        _downloads(content, describe_run(run), name),
        "</section>\n",
    ]
    return "".join(parts)


def overview(names: Sequence[str], runs: Sequence[tuple[str, Content]]) -> str:
    """Return the table of several runs, a row each, which leads to their parts.

    Parameters
    ----------
    names : of the runs
    runs : for each its rounds in words, and its content
    """
    rows, marks = [], []
    for number, (name, (rounds, content)) in enumerate(zip(names, runs, strict=True)):
        verdict, curve = content.density.verdict, content.curve
        known = curve is not None and np.isfinite(curve.aupr)
        marks.append(f'<a href="#run{number}">{text(name)}</a>')
        rows.append(
            [
                rounds,
                "yes" if verdict.converged else "no",
                f"{curve.aupr:.4f}" if curve is not None and known else DASH,
                f"{curve.aupr_low:.4f} to {curve.aupr_high:.4f}"
                if curve is not None and known
                else DASH,
            ]
        )
    head = ("run", "rounds", "converged", "AUPR", "95% interval")
    note = "Each AUPR is over its own curve's range: compare.py compares them over a common one."
    return table(head, rows, marks) + f"<p class='soft'>{note}</p>\n"


def _settings(run: RunReader) -> str:
    """Return the settings: the main ones as a table, the stored input file whole."""
    config = run.config
    model, kernel = config.get("model", {}), config.get("kernel", {})
    sampler = config.get("sampler", {})
    model_name = str(model.get("path") or model.get("factory") or "")
    rows = [
        ("model", f"{model.get('kind')} {model_name}".strip()),
        ("its fingerprint", run.fingerprint),
        ("input space", f"{run.n_sites} sites of {run.n_values:,} values"),
        ("method", str(sampler.get("method", "parallel-tempering"))),
        ("kernel", str(kernel.get("name", "metropolis"))),
        ("rungs, walkers each", f"{len(run.beta_k)}, {run.walkers}"),
        ("rounds", rounds_of(run)),
        ("moves a round, walker", f"{_moves(sampler):,}"),
        ("recorded samples", f"{run.rounds * len(run.beta_k) * run.samples_per_round:,}"),
        ("bins", f"{len(run.edges) - 1}, {run.edges[0]:g} to {run.edges[-1]:g}"),
        ("seed", str(config.get("run", {}).get("seed", DASH))),
    ]
    shown = table(("setting", ""), rows, kind="facts")
    made = [(name, words) for name, words in run.texts.items() if name not in SAID_ELSEWHERE]
    file = f"<pre>{text(run.config_toml)}</pre>"
    whole = fold("The whole input file, and what it ran on", file + table("", made, kind="facts"))
    return f"<h3>Settings</h3>\n{shown}{whole}"


def rounds_of(run: RunReader) -> str:
    """Return how far a run is."""
    unfinished = "" if run.rounds == run.rounds_planned else ", not finished"
    return f"{run.rounds} of {run.rounds_planned}{unfinished}"


def _moves(sampler: dict[str, object]) -> int:
    steps, exchanges = sampler.get("steps", 1), sampler.get("exchanges", 1)
    return steps * exchanges if isinstance(steps, int) and isinstance(exchanges, int) else 0


def diagnostics(d: Diagnosis, density: Density) -> str:
    """Return the table of rungs: outputs, effective samples, R-hat, swaps, moves."""
    outside_k = density.outside_k2.sum(axis=1)
    swapped_k = np.append(d.swapped_k, np.nan)
    names = ["rung", "beta", "mean z", "sd of z", "effective samples", "R-hat", "swaps with next"]
    names += [f"accepted: {name}" for name in d.part_names]
    rows = []
    for k, beta in enumerate(d.beta_k):
        values = [d.z_mean_k[k], d.z_std_k[k], d.ess_k[k]]
        row = [str(k), "flat" if np.isnan(beta) else f"{beta:.5g}", *map(_number, values)]
        row += [f"{d.rhat_k[k]:.3f}" if np.isfinite(d.rhat_k[k]) else DASH, _share(swapped_k[k])]
        rows.append([*row, *(_share(value) for value in d.accepted_kn[k])])
    found = table(names, rows)
    said = []
    if np.isfinite(d.barrier):
        said.append(
            f"Lambda = {d.barrier:.2f}: about {max(2, round(1 + 2 * d.barrier))} rungs are wanted "
            f"(1 + 2 Lambda), {len(d.beta_k)} are there. {d.trips_v.sum()} round trips by "
            f"{np.count_nonzero(d.trips_v)} of {len(d.trips_v)} walkers."
        )
    said.append(f"Moves outside the bins: {outside_k.sum():,}.")
    return found + lines(said)


def _number(value: float) -> str:
    if not np.isfinite(value):
        return DASH
    return f"{value:,.0f}" if abs(value) >= 10_000 else f"{value:.4g}"


def _share(value: float) -> str:
    return DASH if not np.isfinite(value) else f"{value:.1%}"


def _without_verdict(said: Sequence[str]) -> list[str]:
    return [line for line in said if not line.startswith(("converged:", "not converged:"))]


def _curves(content: Content, label: str, name: str, number: int) -> list[str]:
    curve, density = content.curve, content.curve_density
    if curve is None:
        note = "No scores of this model: --rule or --scores gives precision and recall."
        return [f"<h3>Precision and recall</h3>\n<p class='soft'>{note}</p>\n"]
    drawings: dict[str, Callable[[], Figure]] = {
        "Precision over log recall with its 95% band": lambda: curve_figure(density, curve),
        "Mean score per bin": lambda: r_figure(density, curve, label),
        "Right against wrong inputs accepted (unnormalized ROC)": lambda: roc_figure(
            density, curve
        ),
    }
    joined, result = content.joined, content.result
    said = _without_verdict(summarize_curve(density, curve, content.fewest))
    if joined is not None and result is not None:
        said += agreement_lines(
            joined.scored, joined.first_ar, joined.second_ar, joined.given_ag, joined.gold_g
        )
        drawings["Mean score per annotator"] = lambda: annotators_figure(
            joined.scored, result.used_b, label
        )
    said += [last_threshold(content.curve_density, curve)]
    pictures = [
        inline_svg(make, f"{what}: {name}", f"{number} {what}") for what, make in drawings.items()
    ]
    return [
        f"<h3>Precision and recall</h3>\n<p class='soft'>Scores: {text(content.by)}</p>\n",
        lines(said),
        '<div class="figures">', *pictures, "</div>\n",
    ]  # fmt: skip


def last_threshold(density: Density, curve: Curve) -> str:
    """Return how many right and wrong inputs the model accepts in all, in words."""
    low, high = curve.bands.low, curve.bands.high
    found = []
    for what, values, least, most in (
        ("right", curve.trace.log_recall_t, low.log_recall_t, high.log_recall_t),
        ("wrong", curve.trace.log_wrong_t, low.log_wrong_t, high.log_wrong_t),
    ):
        ends = np.array([values[-1], least[-1], most[-1]]) / LN10
        found.append(f"10^{ends[0]:.3f} {what} ones (10^{ends[1]:.3f} to 10^{ends[2]:.3f})")
    threshold, share = curve.threshold_t[-1], 1.0 - curve.precision_t[-1]
    if not density.absolute:
        return f"Up to the last threshold, z = {threshold:g}, {share:.2%} are wrong."
    return (
        f"Up to the last threshold, z = {threshold:g}, the model accepts {found[0]} and "
        f"{found[1]}; {share:.2%} are wrong (overconfident predictions)."
    )


def _downloads(content: Content, source: str, name: str) -> str:
    header = describe_density(content.density, source)
    files = {f"{name}.density.csv": table_text(header, density_columns(content.density))}
    if content.curve is not None:
        first = describe_curve(content.curve, content.side, content.by, content.fewest)
        columns = curve_columns(content.curve)
        files[f"{name}.pr.csv"] = table_text([*first, *header], columns)
    files[f"{name}.representatives.csv"] = csv_text(content.inputs, source, not content.masked)
    links = ", ".join(data_link(file, content) for file, content in files.items())
    return f'<p class="screen">Tables to save: {links}</p>\n'
