"""Scored inputs as a log of Inspect (inspect_ai): a sample per input, a score per annotator."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from omniinput_hpc.annotation.formats import inspect_score
from omniinput_hpc.annotation.scores import now
from omniinput_hpc.export.scored_inputs import ScoredInput
from omniinput_hpc.runfile.reader import RunReader
from omniinput_hpc.text import __version__


def write_log(path: Path, run: RunReader, inputs: Sequence[ScoredInput]) -> None:
    """Write the log by Inspect's own writer; raises ModuleNotFoundError without inspect_ai."""
    from inspect_ai.log import EvalLog, write_eval_log

    write_eval_log(EvalLog.model_validate(_log_of(run, inputs)), str(path))


def _log_of(run: RunReader, inputs: Sequence[ScoredInput]) -> dict[str, Any]:
    """Return the log as plain values, with the field names of Inspect's ``EvalLog``."""
    samples, key = [_sample(one) for one in inputs], inputs[0].key
    n, ids = len(samples), [sample["id"] for sample in samples]
    about = {
        "model_fingerprint": run.fingerprint, "sites": run.n_sites, "values": run.n_values,
        "bin_width": key.width, "draw_method": key.draw_method,
    }  # fmt: skip
    header = {
        "created": run.created or now(),
        "task": "omniinput",
        "task_display_name": "scored inputs of the whole input space",
        "model": run.config.model_name or run.config.model.kind,
        "dataset": {"name": run.path.name, "samples": n, "sample_ids": ids},
        "config": {"epochs": 1},
        "packages": {"omniinput_hpc": __version__},
        "metadata": about,
    }
    results = {"total_samples": n, "completed_samples": n}  # a mean over drawn inputs is no metric
    stats = dict.fromkeys(("started_at", "completed_at"), header["created"])  # else NaN days there
    return {
        "status": "success", "eval": header, "results": results, "stats": stats, "samples": samples,
    }  # fmt: skip


def _sample(one: ScoredInput) -> dict[str, Any]:
    """Return a sample: what people saw, their scores, and the input's place in the density."""
    task, item = one.task, one.item
    shown: Any = (task.prefix or "") + (task.text or "")
    if task.png is not None:
        shown = [{"role": "user", "content": [{"type": "image", "image": task.png}]}]
    assert item.bin_lower is not None  # no gold item
    known = ("z", "bin_lower", "draws", "log_weight", "repeats", "x")
    return {
        "id": task.id,
        "epoch": 1,
        "input": shown,
        "target": "",  # only the scorers say what is right
        "scores": {name: inspect_score(line) for name, line in one.scores.items()},
        "metadata": {name: getattr(item, name) for name in known}
        | {"bin_upper": item.bin_lower + one.key.width},
    }
