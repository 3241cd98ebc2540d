"""Annotators by script, to try the whole chain: each scores through a server of their own.

    python tests/helpers/noisy_annotators.py TASKS.jsonl --rule module:function ana ben cai

A score is 0.1 where the rule says 0 and 0.9 where it says 1, moved by what the annotator tends to
(ana low, cai high) and by noise. Not people: the key tells the rule what is shown.
"""

import argparse
import secrets
from pathlib import Path

import numpy as np
from page_server import Server

from omniinput_hpc.annotation.tasks import key_path, read_key, read_tasks
from omniinput_hpc.plugins import load_function


def truths(tasks, rule):
    """Return what the rule says of each task, by id; of gold items what is known."""
    key = read_key(key_path(tasks.path), tasks.tasks_id)
    drawn = [item for item in key.items if item.gold is None]
    right = dict(zip([i.id for i in drawn], rule(np.array([i.x for i in drawn])), strict=True))
    return right | {item.id: item.gold for item in key.items if item.gold is not None}


def score_all(tasks, name, right, shift, noise, seed, most=None):
    """Score what this annotator has not scored yet, or the `most` first; return how many."""
    rng, n = np.random.default_rng(seed), 0
    with Server(tasks.path, name) as server:
        item = server.get("/api/first")[1]["item"]
        while item and n != most:
            wanted = 0.1 + 0.8 * right[item["id"]] + shift + noise * rng.normal()
            score = round(float(np.clip(wanted, 0.0, 1.0)) * 9) / 9  # by the number keys
            body = {"id": item["id"], "score": score, "seconds": 2.0, "nonce": secrets.token_hex(8)}
            status, answer = server.post("/api/score", **body)
            if status != 200:
                raise SystemExit(f"{name}: {answer['error']}")
            item, n = answer["item"], n + 1
    return n


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("tasks", type=Path)
    parser.add_argument("names", nargs="+")
    parser.add_argument("--rule", required=True)
    parser.add_argument("--noise", type=float, default=0.12)
    parser.add_argument("--bias", type=float, default=0.06, help="between two annotators")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--most", type=int, help="stop after so many scores (default: all)")
    options = parser.parse_args()
    tasks = read_tasks(options.tasks)
    right = truths(tasks, load_function(options.rule, "--rule"))
    for a, name in enumerate(options.names):
        shift = options.bias * (a - (len(options.names) - 1) / 2)
        n = score_all(tasks, name, right, shift, options.noise, [options.seed, a], options.most)
        print(f"{name}: {n} scores, through the page's server", flush=True)


if __name__ == "__main__":
    main()
