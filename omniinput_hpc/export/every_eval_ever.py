"""Results as a record of the schema Every Eval Ever (arXiv 2606.14516), version 0.3.0."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import scipy

from omniinput_hpc.estimators.density.density import Density
from omniinput_hpc.results.aupr import interval_words
from omniinput_hpc.results.curve import CurveResult
from omniinput_hpc.results.record import LEVEL
from omniinput_hpc.runfile.reader import RunReader
from omniinput_hpc.text import LN10, __version__

SCHEMA_VERSION = "0.3.0"
UNBOUNDED = "-Infinity"
"""The schema's word for a metric without a lowest score."""


@dataclass(frozen=True)
class Source:
    """What a run file does not know: the model's public id, and who evaluated it."""

    model_id: str
    organization: str


def record_of(
    run: RunReader, density: Density, curve: CurveResult | None, source: Source
) -> dict[str, Any]:
    """Return the record: the verdict, log10 numbers, and with a curve the AUPR.

    A number that is not known is left out, since the schema has no place for it.
    """
    results = [_converged(density), *_inside(density), *(_of_curve(curve) if curve else [])]
    shared = {
        "evaluation_name": f"whole input space of {source.model_id}",
        "source_data": _space(run, density),
        "generation_config": {"additional_details": _settings(run)},
    }
    written = str(int(time.time()))
    return {
        "schema_version": SCHEMA_VERSION,
        "evaluation_id": f"omniinput/{source.model_id}/{written}",
        **({"evaluation_timestamp": run.created} if run.created else {}),
        "retrieved_timestamp": written,
        "source_metadata": {
            "source_name": "omniinput_hpc", "source_type": "evaluation_run",
            "source_organization_name": source.organization, "evaluator_relationship": "other",
        },
        "eval_library": {"name": "omniinput_hpc", "version": __version__},
        "model_info": {
            "name": Path(source.model_id).name,
            "id": source.model_id,
            "additional_details": {
                "deployment_type": "self_deployed", "model_availability": "unknown",
                "kind": run.config.model.kind, "fingerprint": run.fingerprint,
            },
        },
        "evaluation_results": [shared | result for result in results],
    }  # fmt: skip


def _space(run: RunReader, density: Density) -> dict[str, Any]:
    """Return what the schema calls the dataset: the space of all inputs."""
    name = f"all inputs of {run.n_sites} sites of {run.n_values} values"
    details = {"measure": density.measure, "law": run.config.law_name or "uniform"}
    if run.config.constrained:
        name = f"the inputs that {run.config.constraint} allows, of {name}"
    return {"dataset_name": name, "source_type": "other", "additional_details": details}


def _settings(run: RunReader) -> dict[str, str]:
    """Return how the run sampled; the schema takes only texts."""
    return {
        "input_file": run.config_toml, "rounds": f"{run.rounds} of {run.rounds_planned}",
        "rungs": str(len(run.beta_k)), "walkers_per_rung": str(run.walkers),
    }  # fmt: skip


def _result(
    name: str, score: float, ends: tuple[float | str, float], words: str, **metric: Any
) -> dict[str, Any]:
    """Return a result: its metric, whose scores lie between `ends`, and the score."""
    config = {
        "metric_id": f"omniinput.{name}", "metric_kind": name, "metric_name": words,
        "lower_is_better": False, "score_type": "continuous", "min_score": ends[0],
        "max_score": ends[1],
    }  # fmt: skip
    id_ = f"omniinput.{name}"
    details: dict[str, Any] = {"score": float(score)}
    return {"evaluation_result_id": id_, "metric_config": config | metric, "score_details": details}


def _interval(low: float, high: float) -> dict[str, Any]:
    """Return a 95 % interval for the uncertainty of a result; {} if an end is not known."""
    if not (math.isfinite(low) and math.isfinite(high)):
        return {}
    ends = {"lower": float(low), "upper": float(high), "confidence_level": LEVEL}
    return {"confidence_interval": ends}


def _converged(density: Density) -> dict[str, Any]:
    """Return the verdict: 1 if the errors can be relied on, else 0 with the reasons."""
    verdict, words = density.verdict, "converged: whether the errors can be relied on"
    result = _result("converged", verdict.converged, (0.0, 1.0), words, score_type="binary")
    reasons = {f"reason {n}": reason for n, reason in enumerate(verdict.reasons, 1)}
    result["score_details"]["details"] = reasons
    return result


def _inside(density: Density) -> list[dict[str, Any]]:
    """Return log10 of what lies inside the bins; none of a relative density."""
    if not density.absolute:
        return []
    words = density.words
    score, whole = scipy.special.logsumexp(density.log_g_b) / LN10, density.log_measure / LN10
    name, said = f"log10_{words.number}_inside", f"log10 of the {words.number} inside the bins"
    return [_result(name, score, (UNBOUNDED, whole), said, metric_unit="decades")]


def _of_curve(found: CurveResult) -> list[dict[str, Any]]:
    """Return the AUPR, and log10 of the right inputs that the curve counts."""
    curve, density, results = found.curve, found.density, []
    details = {
        "scores_by": found.by, "side": str(found.confident),
        "interval": f"95 %: {interval_words(curve, 6)}",
    }  # fmt: skip
    if lines := found.left_out_lines():
        details["not_counted"] = "; ".join(lines)
    if math.isfinite(curve.aupr):
        over = {
            "ln_recall_low": curve.aupr_range[0], "ln_recall_high": curve.aupr_range[1],
            "fewest_inputs": found.fewest[0], "fewest_lanes": found.fewest[1],
        }  # fmt: skip
        aupr = _result(
            "aupr", curve.aupr, (0.0, 1.0), "AUPR: mean precision over ln recall of all inputs",
            metric_unit="proportion", metric_parameters=over, additional_details=details,
        )  # fmt: skip
        error = float(curve.aupr_error)
        known = {"standard_error": {"value": error}} if math.isfinite(error) else {}
        known |= _interval(curve.aupr_low, curve.aupr_high)
        aupr["score_details"]["uncertainty"] = known
        results.append(aupr)
    low, last, high = (
        trace.log_recall_t[-1] / LN10 for trace in (curve.bands.low, curve, curve.bands.high)
    )
    if density.absolute and math.isfinite(last):
        number = density.words.number
        right = _result(
            f"log10_{number}_right", last, (UNBOUNDED, density.log_measure / LN10),
            f"log10 of the {number} of right inputs up to the curve's far end",
            metric_unit="decades",
        )  # fmt: skip
        right["score_details"]["uncertainty"] = _interval(low, high)
        results.append(right)
    return results
