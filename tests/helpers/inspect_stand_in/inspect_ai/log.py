"""The part of ``inspect_ai.log`` (0.3.285) that exports need, with the same names and types.

It is stricter: other fields than these are refused. A log is a zip file, as there.
"""

import json
import zipfile
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict


class Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)


class Score(Strict):
    value: str | int | float | bool
    metadata: dict[str, Any] | None = None


class Content(Strict):
    type: Literal["image"]
    image: str


class Message(Strict):
    role: Literal["user"]
    content: list[Content]


class EvalSample(Strict):
    id: int | str
    epoch: int
    input: str | list[Message]
    target: str | list[str]
    scores: dict[str, Score] | None = None
    metadata: dict[str, Any]


class EvalDataset(Strict):
    name: str | None
    samples: int | None
    sample_ids: list[str] | list[int] | None


class EvalConfig(Strict):
    epochs: int | None = None


class EvalSpec(Strict):
    created: str
    task: str
    task_display_name: str | None
    model: str
    dataset: EvalDataset
    config: EvalConfig
    packages: dict[str, str]
    metadata: dict[str, Any] | None


class EvalResults(Strict):
    total_samples: int
    completed_samples: int


class EvalStats(Strict):
    started_at: str
    completed_at: str


class EvalLog(Strict):
    status: Literal["started", "success", "cancelled", "error"]
    eval: EvalSpec
    results: EvalResults | None = None
    stats: EvalStats | None = None
    samples: list[EvalSample] | None = None


def write_eval_log(log: EvalLog, location: str) -> None:
    with zipfile.ZipFile(location, "w") as file:
        file.writestr("header.json", log.model_dump_json(exclude={"samples"}))
        for sample in log.samples or []:
            file.writestr(
                f"samples/{sample.id}_epoch_{sample.epoch}.json", sample.model_dump_json()
            )


def read_eval_log(log_file: str, resolve_attachments: bool = False) -> EvalLog:
    with zipfile.ZipFile(log_file) as file:
        header = json.loads(file.read("header.json"))
        names = [name for name in file.namelist() if name.startswith("samples/")]
        samples = [json.loads(file.read(name)) for name in names]
    return EvalLog.model_validate({**header, "samples": samples})
