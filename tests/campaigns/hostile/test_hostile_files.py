"""Hostile HDF5 files: plain messages, bounded memory and time, and nothing is changed."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import destroy
import h5py
import numpy as np
import pytest
from hostile.files import CHECKPOINT, CONTENT, SIDE, STAYS, STRUCTURE
from hostile.worker import ARGUMENTS
from run_tools import LATTICE, ROOT, environment

from omniinput_hpc.annotation.tasks import KeyItem, Task, write_key, write_tasks
from omniinput_hpc.cli import rescore
from omniinput_hpc.cli import run as launch
from omniinput_hpc.runfile import side_checkpoint
from omniinput_hpc.runfile.layout import checkpoint_of
from omniinput_hpc.runfile.reader import open_run

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]  # the first test waits for all readers

MEGABYTES, SECONDS = 300, 8.0
"""Of all readers of all files in one process, beyond what the whole one takes; of one reading."""


def make_good(folder):
    """Make what all files are made from: a run, what its own model says of it, scores."""
    toml, path = folder / "lattice.toml", folder / "good.h5"
    toml.write_text(LATTICE.format(output=path))
    assert launch.main([str(toml)]) == 0
    assert rescore.main([str(path), str(toml)]) == 0
    with open_run(path) as run:
        x_ksd, z_ks = next(run.samples())
        x_sd, z_s = x_ksd.reshape(-1, run.n_sites), z_ks.ravel()
        fingerprint = run.fingerprint
    bins = np.floor(2 * (z_s.astype(float) + 0.125)) / 2 - 0.125
    items = [
        KeyItem(id=f"t{i}", run=0, bin_lower=bins[i], z=float(z_s[i]), log_weight=0.0,
                draws=1, x=x_sd[i].tolist(), lane=i % 8)
        for i in range(len(z_s))
    ]  # fmt: skip
    tasks = [Task(item.id, text="-".join(map(str, item.x))) for item in items]
    edges = [float(bins.min()), float(bins.max()) + 0.5]
    header = {
        "tasks_id": write_tasks(folder / "good.tasks.jsonl", "text", tasks),
        "law": "by-weight", "width": 0.5, "range": edges, "per_bin": 9, "duplicates": 0,
        "runs": [{"path": path.name, "model_fingerprint": fingerprint, "range": edges}],
    }  # fmt: skip
    write_key(folder / "good.tasks.key.jsonl", header, items)
    for name in ("ann", "ben"):
        lines = [
            {"id": item.id, "score": float(item.x[0] == 0), "seconds": 1.0,
             "when": "2026-01-01T00:00:00Z", "guideline": None, "annotator": name}
            for item in items
        ]  # fmt: skip
        text = "".join(json.dumps(line) + "\n" for line in lines)
        (folder / f"good.scores.{name}.jsonl").write_text(text)
    return path, toml


@pytest.fixture(scope="module")
def answers(tmp_path_factory):
    """Return what every reader said of every file, and the memory that they took in all."""
    folder = tmp_path_factory.mktemp("hostile")
    good, toml = make_good(folder)
    ending = f".rescored.{toml.stem}.h5"
    side = good.with_name(good.stem + ending)
    kinds = {"structure": STRUCTURE, "content": CONTENT, "stays": STAYS, "side": SIDE}
    for kind, changes in kinds.items():
        for name, change in changes.items():
            path = folder / f"{kind}-{name.replace(' ', '_')}.h5"
            shutil.copy(good, path)
            target = path.with_name(path.stem + ending) if kind == "side" else path
            if kind in ("content", "side"):
                shutil.copy(side, path.with_name(path.stem + ending))
            with h5py.File(target, "r+", locking=False) as file:
                change(file)
    for name, change in CHECKPOINT.items():
        path = folder / f"checkpoint-{name.replace(' ', '_')}.h5"
        shutil.copy(good, path)
        destroy.superblock(path)
        side_checkpoint.write(checkpoint_of(path), change(side_checkpoint.read(good)))
    whole = good.read_bytes()
    (folder / "structure-half.h5").write_bytes(whole[: len(whole) // 2])
    (folder / "structure-nothing.h5").write_bytes(b"")
    (folder / "structure-text.h5").write_text("hello")
    worker = Path(__file__).with_name("worker.py")
    done = subprocess.run(
        [sys.executable, worker, folder, toml],
        capture_output=True, text=True, timeout=1500, cwd=folder, env=environment(),
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    return lines[:-1], lines[-1]


def answers_of(answers, kind):
    found = [answer for answer in answers[0] if answer[0].startswith(kind)]
    assert found
    return found


def is_plain(text):
    return text.strip() and "Traceback" not in text and len(text) < 1500


def test_every_script_takes_part():
    here = {path.name for path in (ROOT / "analysis").glob("[!_]*.py")}
    on_tasks = {"annotate.py", "judge.py", "scores.py"}
    others = {"example.py", "explore.py", "observe.py"}  # without a run; a server; writes another
    assert here - on_tasks - others == set(ARGUMENTS), "name its arguments in worker.py"


def test_every_reader_reads_the_good_file(answers):
    refused = {a[1]: a[3] for a in answers_of(answers, "good") if a[2] != 0}
    assert set(refused) == {"changes.py"}, refused
    assert "ancestral" in refused["changes.py"]  # it has read the run: one of chains


@pytest.mark.parametrize("kind", ["structure", "stays", "side", "checkpoint"])
def test_damaged_files_are_refused_by_every_reader(kind, answers):
    wrong = []
    for file, reader, code, text, _, touched in answers_of(answers, kind):
        verifies = reader in ("--verify", "--rescore")
        codes = (1, 2) if verifies else (2,)  # 1: it reports the damage
        if kind == "stays" and (reader == "rescore") != ("inputs" in file) and code in (0, 2):
            continue  # a run resumes from the state, rescore from the samples
        if code not in codes or not is_plain(text) or touched:
            wrong.append((file, reader, code, text, touched))
    assert not wrong


def test_nonsense_in_a_readable_file_gives_no_traceback(answers):
    wrong = []
    for file, reader, code, text, _, touched in answers_of(answers, "content"):
        if code not in (0, 1, 2) or "Traceback" in text or touched:
            wrong.append((file, reader, code, text))
        if reader == "--verify" and code != 1:
            wrong.append((file, reader, "is taken for whole"))
    assert not wrong


def test_time_and_memory_are_bounded(answers):
    slow = [(a[0], a[1], a[4]) for a in answers[0] if a[4] > SECONDS]
    assert not slow
    assert answers[1]["megabytes"] < MEGABYTES
