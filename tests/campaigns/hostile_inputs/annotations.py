"""Untrusted tasks, keys, scores, imports, pictures and exact values."""

from __future__ import annotations

import io
import json
import os
import shutil
from functools import partial

import numpy as np
from hostile_inputs.folders import DEEP, THINGS, two_entries
from task_files import make_tasks, word

from omniinput_hpc.annotation.scores import ScoreFile, scores_path

LONG = 10**400
FAR_RUN = {"path": "a", "model_fingerprint": "b", "range": [0.0, 1e308]}
LINES = {
    "deep": DEEP.encode(), "deep objects": b'{"a":' * 50_000, "nothing whole": b"{",
    "a list": b"[]", "not UTF-8": b"\xff\xff", "5,000 digits": b'{"id": ' + b"9" * 5000 + b"}",
    "ten million values": b"[" + b"0," * 10_000_000 + b"0]", "null": b"null", "zeros": b"\0" * 99,
}  # fmt: skip
"""What may stand in a line of any of these files."""
KEY_ITEMS = [
    ("draws", 2**62), ("draws", LONG), ("draws", -1), ("draws", 1.5), ("draws", 10**9),
    ("run", LONG), ("run", 7), ("run", -1), ("bin_lower", LONG), ("bin_lower", 1e300),
    ("bin_lower", "0"), ("z", LONG), ("z", [0]), ("log_weight", 1e300), ("log_weight", LONG),
    ("lane", LONG), ("lane", 2**63), ("x", [LONG]), ("x", [-1]), ("x", 3), ("x", [[1]]),
    ("repeats", 3), ("gold", LONG), ("gold", 2), ("id", ""), ("id", 3),
]  # fmt: skip
KEY_HEADS = [
    ("width", 0), ("width", LONG), ("width", 1e-300), ("width", -1), ("range", [0, LONG]),
    ("runs", [FAR_RUN]), ("range", 3), ("per_bin", LONG), ("per_bin", 2**62), ("items", LONG),
    ("items", 10**9), ("duplicates", LONG), ("runs", 3), ("runs", []), ("runs", [3]), ("law", 3),
    ("version", LONG), ("tasks_id", 3), ("format", LONG),
]  # fmt: skip
SCORES = [
    ("score", LONG), ("score", 2), ("score", -1), ("score", "1"), ("score", [1]), ("score", True),
    ("seconds", LONG), ("seconds", -1), ("seconds", 10**400 // 7), ("id", LONG), ("id", ""),
    ("id", "another"), ("when", 3), ("annotator", 3), ("annotator", "ben"), ("judge", 3),
    ("undo", LONG), ("nonce", [1]), ("guideline", {}),
]  # fmt: skip
SPECIAL = {"NaN": "NaN", "Infinity": "-Infinity", "1e999": "1e999"}
"""What Python's JSON reads beside JSON itself."""
IMPORTS = {
    "csv": {
        "no columns": b"a,b\n1,2\n", "a long number": b"id,score\nid0000," + b"9" * 5000 + b"\n",
        "NaN": b"id,score\nid0000,nan\n", "infinity": b"id,score\nid0000,inf\n",
        "another id": b"id,score,annotator\nx,1,ana\n", "a row too long": b"id,score\nid0000,1,2\n",
        "a row cut short": b"id,score,when\nid0000,1\n", "not UTF-8": b"id,score\n\xff,1\n",
        "a huge cell": b"id,score\n" + b"x" * 1_000_000 + b",1\n", "zeros": b"\0" * 100,
        "an open quote": b'id,score\n"id0000,1\n', "nobody": b"id,score\nid0000,1\n",
    },
    "json": {
        **LINES, "a task that is 3": b"[3]", "no annotations": b'[{"data": {"id": "id0000"}}]',
        "annotations of 3": b'[{"data": {"id": "id0000"}, "annotations": 3}]',
        "data of 3": b'[{"data": 3, "annotations": []}]',
        "stars of 400 digits": json.dumps([{"data": {"id": "id0000"}, "annotations": [
            {"completed_by": 1, "result": [{"value": {"rating": LONG}}]}]}]).encode(),
        "a number that is NaN": b'[{"data": {"id": "id0000"}, "annotations": [{"completed_by": 1, '
        b'"result": [{"value": {"number": NaN}}]}]}]',
        "completed_by of a list": b'[{"data": {"id": "id0000"}, "annotations": [{"completed_by": '
        b'[1], "result": [{"value": {"number": 1}}]}]}]',
        "lead_time of 400 digits": json.dumps([{"data": {"id": "id0000"}, "annotations": [
            {"completed_by": 1, "lead_time": LONG, "result": [{"value": {"number": 1}}]}]}]
        ).encode(),
    },
    "jsonl": {
        **LINES, "scores of 3": b'{"id": "id0000", "scores": 3}',
        "a score of 400 digits": json.dumps({"id": "id0000", "scores": {"a": LONG}}).encode(),
        "a score of a list": b'{"id": "id0000", "scores": {"a": [1]}}',
        "NaN": b'{"id": "id0000", "scores": {"a": NaN}}',
        "a scorer of no name": b'{"id": "id0000", "scores": {"": 1}}',
        "metadata of 3": b'{"id": "id0000", "scores": {"a": {"value": "X", "metadata": 3}}}',
    },
}  # fmt: skip
NPY = {
    "a huge shape": {"shape": (1 << 40, 8, 8)}, "a negative shape": {"shape": (-1, 8, 8)},
    "objects": {"descr": "|O"}, "a long dtype": {"descr": "|V1000000000"},
    "a shape of text": {"shape": "888"}, "no order": {"fortran_order": 3},
}  # fmt: skip
CSVS = {
    "nothing": b"", "no columns": b"a\n1\n", "words": b"z_lower,z_upper,log_g\na,b,c\n",
    "NaN": b"z_lower,z_upper,log_g\nnan,1,2\n", "inf": b"z_lower,z_upper,log_g\n0,1,inf\n",
    "other bins": b"z_lower,z_upper,log_g\n1e300,2e300,1\n", "not UTF-8": b"\xff\xff\n1\n",
    "rows cut short": b"z_lower,z_upper,log_g\n0,1\n", "zeros": b"\0" * 100,
    "a long row": b"z_lower,z_upper,log_g\n" + b"1," * 500_000 + b"\n",
    "a long number": b"z_lower,z_upper,log_g\n" + b"9" * 500_000 + b",1,1\n",
}  # fmt: skip
TEST_SETS = {
    "nothing": b"", "no columns": b"a\n1\n", "words": b"set,role,z\na,positive,high\n",
    "NaN": b"set,role,z\na,positive,nan\n", "inf": b"set,role,z\na,positive,1e999\n",
    "not UTF-8": b"\xff\xff\n", "a huge cell": b"set,role,z\n" + b"x" * 500_000 + b",a,1\n",
    "zeros": b"\0" * 100,
}  # fmt: skip


class Place:
    """A good task set with a key and scores of two annotators, copied for each case."""

    def __init__(self, folder, kind="text"):
        self.folder, self.n, self.kind = folder, 0, kind
        folder.mkdir()
        tasks = make_tasks(folder, 10, kind)
        for name in ("ana", "ben"):
            with ScoreFile(scores_path(tasks.path, name), tasks) as file:
                file.append(*(word(task.id, 0.5, name) for task in tasks.tasks))

    def copy(self):
        self.n += 1
        return shutil.copytree(self.folder, self.folder.with_name(f"{self.folder.name}-{self.n}"))


FILES = {
    "tasks": "toy.tasks.jsonl", "key": "toy.tasks.key.jsonl", "scores": "toy.scores.ana.jsonl",
}  # fmt: skip


def readers(folder, what):
    """Return the script and its arguments that read one of the files."""
    if what == "key":  # a rule reads values from the key
        return ["judge.py", folder / FILES["tasks"], "--judge", "toy_rules:begins_with_zero"]
    return ["scores.py", folder / FILES["tasks"], "--export", "csv"]


def changed(place, what, change):
    folder = place.copy()
    change(folder / FILES[what])
    return readers(folder, what)


def line(n, keys=None, text=None):
    """Return a change of line n: other keys, or another text."""

    def change(path):
        lines = path.read_bytes().splitlines()
        lines[n] = json.dumps({**json.loads(lines[n]), **keys}).encode() if keys else text
        path.write_bytes(b"\n".join(lines) + b"\n")

    return change


def spoken(n, key, literal):
    """Return a change that puts what is no JSON in a value's place."""

    def change(path):
        line(n, {key: "@@"})(path)
        path.write_text(path.read_text().replace('"@@"', literal))

    return change


def instead(make):
    def change(path):
        path.unlink()
        make(path)

    return change


def imported(place, ending, data):
    folder = place.copy()
    (folder / f"import.{ending}").write_bytes(data)
    return ["scores.py", folder / FILES["tasks"], "--import", folder / f"import.{ending}"]


def imported_thing(place, ending, make):
    folder = place.copy()
    make(folder / f"import.{ending}")
    return ["scores.py", folder / FILES["tasks"], "--import", folder / f"import.{ending}"]


def npy(path, **changes):
    file = io.BytesIO()
    np.save(file, np.zeros((3, 8, 8), np.uint8))
    found = {"descr": "|u1", "fortran_order": False, "shape": (3, 8, 8), **changes}
    text = (repr(found) + " " * 118)[:118].encode()
    whole = file.getvalue()
    path.write_bytes(whole[:10] + text[:117] + b"\n" + whole[128:])


def judged(place, kind, model, *more):
    """Return the arguments of a judge that is given a network."""
    folder = place.copy()
    return ["judge.py", folder / FILES["tasks"], "--judge", kind, "--model", model(folder), *more]


def fid(place, model, reference):
    folder = place.copy()
    words = ["judge.py", folder / FILES["tasks"], "--judge", "fid", "--model", model]
    path = folder / "reference.npy"
    reference(path)
    return [*words, "--reference", path]


def cases(folder, network, template):
    """Return by name what makes a case and returns a script with its arguments."""
    texts, pictures, found = Place(folder / "t"), Place(folder / "p", "image"), {}
    for what in FILES:
        for name, text in LINES.items():
            found[f"{what}: {name}"] = partial(changed, texts, what, line(1, text=text))
        for name, make in THINGS.items():
            if name != "a loop":
                found[f"{what}: {name}"] = partial(changed, texts, what, instead(make))
    for n, what, table in ((0, "key", KEY_HEADS), (1, "key", KEY_ITEMS), (1, "scores", SCORES)):
        for key, value in table:
            shown = f"{what}, line {n + 1}: {key} of {str(value)[:20]}"
            found[shown] = partial(changed, texts, what, line(n, {key: value}))
    for n, what, key in ((0, "key", "width"), (1, "key", "z"), (1, "scores", "score")):
        for name, literal in SPECIAL.items():
            found[f"{what}: {key} of {name}"] = partial(
                changed, texts, what, spoken(n, key, literal)
            )
    for ending, table in IMPORTS.items():
        for name, data in table.items():
            found[f"import .{ending}: {name}"] = partial(imported, texts, ending, data)
        found[f"import .{ending}: a pipe"] = partial(imported_thing, texts, ending, os.mkfifo)
    for name, changes in NPY.items():
        found[f"reference: {name}"] = partial(fid, pictures, network, partial(npy, **changes))
    for name, make in THINGS.items():
        if name != "a folder":  # of PNG files
            found[f"reference: {name}"] = partial(fid, pictures, network, make)

    def archive(ending):
        return lambda place: two_entries(place / f"network{ending}")

    for ending in (".pt2", ".safetensors"):
        a = f"an archive with two entries of one name, {ending}"
        label, factory = ("--class", "0"), ("--factory", "image_models:tiny_module")
        found[f"{a}, judge"] = partial(
            judged, pictures, "image-classifier", archive(ending), *label
        )
        found[f"{a}, judge by a factory"] = partial(
            judged, pictures, "image-classifier", archive(ending), *label, *factory
        )
        reference = ("--reference", "image_models:tiny_module")
        found[f"{a}, FID"] = partial(judged, pictures, "fid", archive(ending), *reference)
        found[f"{a}, FID by a factory"] = partial(
            judged, pictures, "fid", archive(ending), *reference, *factory
        )
        found[f"{a}, judge of texts"] = partial(
            judged, texts, "sequence-classifier", archive(ending), *label
        )
        found[f"{a}, a prompt's judge"] = partial(
            judged, texts, "causal-lm", archive(ending), "--template", template
        )
    return found


def cases_of_a_run(folder, run):
    """Return by name the cases of files that stand beside a run: exact values, test sets."""
    found = {}

    def case(name, data, words):
        path = folder / f"{name.replace(' ', '_').replace('/', '_').replace(':', '')}.csv"
        (data if callable(data) else lambda p: p.write_bytes(data))(path)
        found[name] = [word.format(run=run, path=path) for word in words]

    for name, data in {**CSVS, **THINGS}.items():
        case(f"exact: {name}", data, ["reweight.py", "{run}", "--exact", "{path}"])
    for name, data in {**TEST_SETS, **THINGS}.items():
        case(f"test sets: {name}", data, ["overlay.py", "{run}", "--test-sets", "{path}"])
    return found
