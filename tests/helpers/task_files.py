"""Small task sets, keys and score lines for the tests of this folder."""

import base64
import io

import numpy as np
from PIL import Image

from omniinput_hpc.annotation import scores, tasks

KEY_HEADER = {
    "law": "by-weight",
    "runs": [{"path": "runs/toy.h5", "model_fingerprint": "sha256:0", "range": [0.0, 2.0]}],
    "width": 1.0,
    "range": [0.0, 2.0],
    "per_bin": 5,
    "duplicates": 3,
}


def png(seed=0, size=8):
    """Return a grey picture of noise as a data URI."""
    file = io.BytesIO()
    grey = np.random.default_rng(seed).integers(256, size=(size, size), dtype=np.uint8)
    Image.fromarray(np.repeat(grey[:, :, None], 3, axis=2)).save(file, "PNG")
    return tasks.PNG_URI + base64.b64encode(file.getvalue()).decode()


def make_tasks(folder, n=10, kind="text", texts=None, name="toy"):
    """Write a task file and its key; return the task set."""
    path = folder / f"{name}.tasks.jsonl"
    texts = [f"text number {i}" for i in range(n)] if texts is None else texts
    made = [
        tasks.Task(f"id{i:04d}", **({"text": text} if kind == "text" else {"png": png(i)}))
        for i, text in enumerate(texts)
    ]
    tasks_id = tasks.write_tasks(path, kind, made)
    items = [
        tasks.KeyItem(task.id, 0, float(i % 2), i % 2 + 0.5, -np.log(n), 1, [i % 3, i % 5], i % 4)
        for i, task in enumerate(made)
    ]
    tasks.write_key(tasks.key_path(path), {"tasks_id": tasks_id, **KEY_HEADER}, items)
    return tasks.read_tasks(path)


def word(id_, score, annotator="ana", **more):
    """Return a line of a score file."""
    return scores.Score(
        id=id_, score=score, seconds=1.5, when=scores.now(), guideline="abc", annotator=annotator,
        **more,
    )  # fmt: skip
