"""Task, key and score files for a lattice run: inputs drawn from its samples, scored by script."""

import json

import numpy as np
from lattice import first_is_zero
from run_files import EDGES, MODEL

from omniinput_hpc.annotation.tasks import KeyItem, Task, write_key, write_tasks

WIDTH, RANGE = 3 * MODEL.unit, (float(EDGES[3]), float(EDGES[24]))


def write_score_files(
    path, run, annotators, *, per_bin=40, seed=0, bias=0.2, noise=0.1, law="by-weight",
    fingerprint="exact", repeats=8, gold=4, images=False,
):  # fmt: skip
    """Write RUN.tasks.jsonl, its key, and a score file per annotator, beside RUN.h5; their paths.

    Every level of the lattice has its own weight in its bin: levels' exact shares, over how often
    they were recorded.
    """
    rng = np.random.default_rng(seed)
    x = run.x_rksd.reshape(-1, MODEL.n_sites)
    lane = np.broadcast_to(np.arange(run.z_rks.shape[2]) % run.walkers, run.z_rks.shape).ravel()
    x, first = np.unique(x, axis=0, return_index=True)
    z, lane = MODEL.z(x).astype(float), lane[first]
    level = np.rint(z / MODEL.unit).astype(int)
    weight = (MODEL.count_l()[level] / np.bincount(level)[level]).astype(float)
    items = []
    for b in range(round((RANGE[1] - RANGE[0]) / WIDTH)):
        lower = RANGE[0] + b * WIDTH
        pool = np.flatnonzero((z >= lower) & (z < lower + WIDTH))
        share = weight[pool] / weight[pool].sum()
        if law == "by-weight":
            count = np.bincount(rng.choice(len(pool), per_bin, p=share), minlength=len(pool))
        else:
            count = np.zeros(len(pool), int)
            count[rng.choice(len(pool), min(per_bin, len(pool)), replace=False)] = 1
        for i in np.flatnonzero(count):
            items.append(
                KeyItem(
                    id=f"t{len(items):05d}", run=0, bin_lower=lower, z=float(z[pool[i]]),
                    log_weight=float(np.log(share[i])), draws=int(count[i]),
                    x=x[pool[i]].tolist(), lane=int(lane[pool[i]]),
                )
            )  # fmt: skip
    right = {item.id: float(first_is_zero(np.array([item.x]))[0]) for item in items}
    for n in range(repeats):
        old = items[n * 7]
        items.append(KeyItem(**{**vars(old), "id": f"r{n}", "draws": 0, "repeats": old.id}))
        right[f"r{n}"] = right[old.id]
    for n in range(gold):
        items.append(KeyItem(f"g{n}", None, None, None, None, 0, [], None, gold=n / gold))
        right[f"g{n}"] = n / gold
    tasks = [Task(item.id, text=" ".join(map(str, item.x)) or "gold") for item in items]
    tasks_id = write_tasks(path.with_suffix(".tasks.jsonl"), "text", tasks)
    header = {
        "tasks_id": tasks_id, "law": law, "width": WIDTH, "range": RANGE, "per_bin": per_bin,
        "runs": [{"path": path.name, "model_fingerprint": fingerprint, "range": RANGE}],
        "duplicates": 0,
    }  # fmt: skip
    write_key(path.with_suffix(".tasks.key.jsonl"), header, items)
    paths = []
    for a, name in enumerate(annotators):
        paths.append(path.with_suffix(f".scores.{name}.jsonl"))
        shift = bias * (a - (len(annotators) - 1) / 2)
        lines = []
        for item in items:
            score = np.clip(
                right[item.id] * (1 - 2 * noise) + noise * 2 * rng.random() + shift, 0, 1
            )
            lines.append(
                {"id": item.id, "score": round(float(score), 2), "seconds": 1.0,
                 "when": "2026-01-01T00:00:00Z", "guideline": None, "annotator": name}
            )  # fmt: skip
        paths[-1].write_text("".join(json.dumps(line) + "\n" for line in lines))
    return paths
