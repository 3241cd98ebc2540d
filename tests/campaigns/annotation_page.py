"""Longer campaigns of the page, each a command that prints a table::

    python tests/campaigns/annotation_page.py kills --scores 500
    python tests/campaigns/annotation_page.py latency --items 200

``kills``: two annotators at once on one folder, scored by script, while their servers get SIGKILL
at random. ``latency``: from the key to the next item painted, in a real browser.
"""

import argparse
import http.client
import json
import secrets
import statistics
import sys
import tempfile
import threading
import time
from collections import Counter
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "helpers"))

from page_server import Server
from task_files import make_tasks

from omniinput_hpc.annotation.scores import read_scores, scores_path

PATIENCE = 600.0  # seconds that a score may take with servers coming and going


class Annotator(threading.Thread):
    """Scores by script, as the page does: what is not acknowledged is sent again, same nonce."""

    def __init__(self, server, n, seed):
        super().__init__(daemon=True)
        self.server, self.n, self.rng = server, n, np.random.default_rng(seed)
        self.acknowledged, self.sent_again, self.error = {}, 0, None

    def run(self):
        try:
            item = self.ask("GET", "/api/first")["item"]
            for _ in range(self.n):
                score = round(float(self.rng.random()), 6)
                body = {"id": item["id"], "score": score, "nonce": secrets.token_hex(8)}
                view = self.ask("POST", "/api/score", body)
                self.acknowledged[item["id"]] = (score, body["nonce"])
                item = view["item"]
        except Exception as error:  # told by the main thread
            self.error = error

    def ask(self, method, path, body=None):
        end = time.monotonic() + PATIENCE
        while time.monotonic() < end:
            try:
                status, _, answer = self.server.call(method, path, body, timeout=60)
                if status == 200:
                    return json.loads(answer)
                raise RuntimeError(f"status {status}: {answer[:200]}")
            except (OSError, http.client.HTTPException, json.JSONDecodeError):
                self.sent_again += 1
                time.sleep(0.02)
        raise RuntimeError(f"no answer in {PATIENCE} s")


def kill_at_random(server, annotator, mean, rng, kills):
    """Kill the server now and then, at any moment of a request, until its annotator is done."""
    while True:
        enough = len(annotator.acknowledged) + int(rng.geometric(1 / mean))
        while len(annotator.acknowledged) < enough:
            annotator.join(float(rng.random()) * 0.01)
            if not annotator.is_alive():
                return
        server.kill()
        kills[server.name] += 1
        server.start()


def lost_scores(tasks, name, acknowledged):
    """Return the ids whose acknowledged score is not the one that counts, or stands there twice."""
    back = read_scores(scores_path(tasks.path, name), tasks)
    said, nonces = back.by_id(), Counter(line.nonce for line in back.lines)
    return [
        id_
        for id_, (score, nonce) in acknowledged.items()
        if said.get(id_) != score or nonces[nonce] != 1
    ]


def kill_campaign(folder, n, mean, seed=1, script="analysis/annotate.py"):
    """Return a row per annotator: name, acknowledged, kills, sent again, lost."""
    tasks, kills = make_tasks(Path(folder), n), Counter()
    servers = [Server(tasks.path, name, script=script) for name in ("ana", "ben")]
    annotators = [Annotator(server, n, seed + i) for i, server in enumerate(servers)]
    killers = [
        threading.Thread(
            target=kill_at_random,
            args=(server, annotator, mean, np.random.default_rng([seed, i]), kills),
        )
        for i, (server, annotator) in enumerate(zip(servers, annotators, strict=True))
    ]
    for thread in (*annotators, *killers):
        thread.start()
    for thread in (*killers, *annotators):
        thread.join()
    for server in servers:
        server.kill()  # once more: nothing may wait in memory
    for annotator in annotators:
        if annotator.error:
            raise annotator.error
    return [
        (s.name, len(a.acknowledged), kills[s.name] + 1, a.sent_again,
         len(lost_scores(tasks, s.name, a.acknowledged)))
        for s, a in zip(servers, annotators, strict=True)
    ]  # fmt: skip


def latencies(folder, kind, items):
    """Return the milliseconds from each key to the next item painted."""
    from browser import PRESS, browser, shown_id, wait

    folder = Path(folder) / kind
    folder.mkdir()
    words = "It was, as far as anybody could tell, a sentence of twenty-five tokens or so, number "
    tasks = make_tasks(folder, items + 1, kind, [f"{words}{i}." for i in range(items + 1)])
    with Server(tasks.path, "ana") as server, browser(folder / "profile") as driver:
        driver.get(server.address)
        wait(lambda: shown_id(driver))
        took = [driver.execute_async_script(PRESS, str(i % 10)) for i in range(items)]
    assert None not in took and len(read_scores(scores_path(tasks.path, "ana")).by_id()) == items
    return took


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("which", choices=["kills", "latency"])
    parser.add_argument("--scores", type=int, default=500, help="of each annotator")
    parser.add_argument("--mean", type=float, default=20.0, help="scores between two kills")
    parser.add_argument("--items", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    bad = False
    with tempfile.TemporaryDirectory() as folder:
        if options.which == "kills":
            print(f"{'annotator':12}{'acknowledged':>14}{'kills':>8}{'sent again':>12}{'lost':>8}")
            for row in kill_campaign(folder, options.scores, options.mean, options.seed):
                print("{:12}{:14}{:8}{:12}{:8}".format(*row))
                bad |= row[-1] > 0 or row[1] != options.scores
        else:
            print(f"{'tasks':8}{'items':>8}{'median ms':>12}{'95 %':>10}{'slowest':>10}")
            for kind in ("text", "image"):
                took = latencies(folder, kind, options.items)
                high = statistics.quantiles(took, n=20)[-1]
                middle = statistics.median(took)
                print(f"{kind:8}{len(took):8}{middle:12.1f}{high:10.1f}{max(took):10.1f}")
                bad |= middle >= 50
    return int(bad)


if __name__ == "__main__":
    raise SystemExit(main())
