"""Task files and keys come back as written; every kind of damage is one plain sentence."""

import errno
import json
import os

import pytest
from task_files import KEY_HEADER, make_tasks

from omniinput_hpc.annotation import jsonl
from omniinput_hpc.annotation.tasks import (
    KeyItem,
    Task,
    key_path,
    read_key,
    read_tasks,
    stem_of,
    write_key,
    write_tasks,
)
from omniinput_hpc.errors import UserError


def test_tasks_come_back_as_written(tmp_path):
    path = tmp_path / "run.tasks.jsonl"
    made = [
        Task("a", text="x\u2028\ud800\n\0"),
        Task("b", text=""),
        Task("c", text="é", prefix="P"),
    ]
    tasks_id = write_tasks(path, "text", made)
    back = read_tasks(path)
    assert list(back.tasks) == made
    assert (back.kind, back.tasks_id, back.ids) == ("text", tasks_id, {"a", "b", "c"})
    assert path.read_bytes().isascii()
    assert [p.name for p in tmp_path.iterdir()] == [path.name]


def test_keys_come_back_as_written(tmp_path):
    tasks = make_tasks(tmp_path, 3)
    items = [
        KeyItem(task.id, None, None, None, None, 0, [], None, gold=0.25) if task.id == "id0001"
        else KeyItem(task.id, 0, 0.0, 0.5, -1.5, 2, [1, 2], 3, repeats="id0001")
        for task in tasks.tasks
    ]  # fmt: skip
    path = key_path(tasks.path)
    write_key(path, {"tasks_id": tasks.tasks_id, **KEY_HEADER}, items)
    back = read_key(path, tasks.tasks_id)
    assert list(back.items) == items
    assert back.runs[0].path == "runs/toy.h5" and back.runs[0].range == (0.0, 2.0)
    assert (back.draw_method, back.width, back.range, back.per_bin, back.duplicates) == (
        "by-weight", 1.0, (0.0, 2.0), 5, 3,
    )  # fmt: skip
    assert path.name == "toy.tasks.key.jsonl" and stem_of(tasks.path) == "toy"


def test_a_masked_text_is_still_the_same_set(tmp_path):
    tasks = make_tasks(tmp_path)
    text = tasks.path.read_text().replace("text number 3", "[masked]")
    tasks.path.write_text(text)
    assert read_tasks(tasks.path).tasks_id == tasks.tasks_id


def lines(tasks):
    return tasks.path.read_text().splitlines(keepends=True)


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (lambda t: lines(t)[:-1], "is cut short: it holds 9 tasks instead of 10"),
        (lambda t: "".join(lines(t))[:-20], "line 11: cut short or damaged"),
        (lambda t: [*lines(t), lines(t)[-1]], "longer than it was"),
        (lambda t: [*lines(t)[:-1], lines(t)[-2]], "occurs twice"),
        (lambda t: [*lines(t)[:-1], lines(t)[-1].replace("id0009", "id0042")], "tasks_id"),
        (lambda t: [*lines(t)[:-1], "[1]\n"], "line 11: expected an object"),
        (lambda t: [*lines(t)[:-1], '{"id": "id0009"}\n'], 'line 11: "text" is missing'),
        (
            lambda t: [*lines(t)[:-1], '{"id": "id0009", "text": 3}\n'],
            '"text" must be a text, got 3',
        ),
        (lambda t: [*lines(t)[:-1], '{"id": "", "text": "x"}\n'], 'line 11: "id" must be a text'),
        (
            lambda t: [*lines(t)[:-1], '{"id": "id0009", "text": ' + 30_000 * "["],
            "line 11: cut short",
        ),
        (
            lambda t: [*lines(t)[:-1], '{"id": "id0009", "text": ' + 40 * "[" + 40 * "]" + "}"],
            "line 11: cut short or damaged",
        ),
        (lambda t: [lines(t)[0].replace('"tasks": 10', '"tasks": -1')], '"tasks" must be a whole'),
        (lambda t: [lines(t)[0].replace("omniinput-tasks", "other")], "is not a task file"),
        (lambda t: [lines(t)[0].replace('"version": 1', '"version": 2')], '"version" must be 1'),
        (lambda t: [lines(t)[0].replace('"text"', '"sound"'), *lines(t)[1:]], '"kind" must be'),
        (lambda t: [""], "is empty"),
    ],
)
def test_a_damaged_task_file(tmp_path, damage, words):
    tasks = make_tasks(tmp_path)
    tasks.path.write_text("".join(damage(tasks)))
    with pytest.raises(UserError, match=words.replace("[", r"\[")):
        read_tasks(tasks.path)


def test_a_picture_must_be_a_data_uri(tmp_path):
    tasks = make_tasks(tmp_path, 2, "image")
    assert tasks.tasks[0].png.startswith("data:image/png;base64,")
    tasks.path.write_text(tasks.path.read_text().replace("data:image", "https://image"))
    with pytest.raises(UserError, match='line 2: "png" must be a data URI'):
        read_tasks(tasks.path)


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("bin_lower", None, '"bin_lower" must be a number'),
        ("bin_lower", 9.0, '"bin_lower" is 9, outside'),
        ("z", True, '"z" must be a finite number, got true'),
        ("z", 10**400, "cut short or damaged .a whole number of more than 300 digits"),
        ("draws", 2**62, '"draws" must be a whole number from 0 to 65,536'),
        ("log_weight", 1e9, '"log_weight" is 1e.09; a share is at most 1'),
        ("run", 1, '"run" is 1, but the key names 1 runs'),
        ("x", [1], '"x" is not as long as'),
        ("x", [2**63, 0], '"x" must be a list of whole numbers'),
        ("x", 5, '"x" must be a list of whole numbers'),
        ("lane", -1, '"lane" must be a whole number >= 0'),
        ("x", [0.5], '"x" must be a list of whole numbers'),
        ("gold", 1.5, '"gold" must be a score from 0 to 1'),
    ],
)
def test_a_damaged_key(tmp_path, name, value, words):
    path = key_path(make_tasks(tmp_path).path)
    header, *rest, last = path.read_text().splitlines(keepends=True)
    changed = json.dumps({**json.loads(last), name: value}) + "\n"
    path.write_text("".join([header, *rest, changed]))
    with pytest.raises(UserError, match=f"line 11: {words}"):
        read_key(path)


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("law", "by-hand", '"law" must be "by-weight" or "uniform", got "by-hand"'),
        ("width", 0, '"width" must be a finite number > 0, got 0'),
        ("width", 1e-300, "more than 10,000,000 bins"),
        ("range", [2.0, 0.0], '"range" must be .lowest, highest.'),
        ("range", [0.0], '"range" must be .lowest, highest.'),
        ("runs", {}, '"runs" must be a list'),
        ("runs", [3], '"runs.0" must be an object'),
        ("runs", [{"path": "a", "range": [0, 2]}], '"runs.0.model_fingerprint" is missing'),
        ("duplicates", True, '"duplicates" must be a whole number'),
        ("\ud800", 1, "plain texts as keys"),
    ],
)
def test_a_damaged_header_of_a_key(tmp_path, name, value, words):
    path = key_path(make_tasks(tmp_path).path)
    header, *rest = path.read_text().splitlines(keepends=True)
    path.write_text("".join([json.dumps({**json.loads(header), name: value}) + "\n", *rest]))
    with pytest.raises(UserError, match=f"line 1: .*{words}"):
        read_key(path)


def test_a_file_that_is_too_large_is_not_read(tmp_path):
    path = tmp_path / "large.tasks.jsonl"
    with path.open("wb") as file:
        file.truncate(jsonl.MAX_FILE_BYTES + 1)
    with pytest.raises(UserError, match="larger than 268,435,456 bytes"):
        read_tasks(path)


def test_the_key_of_another_task_set(tmp_path):
    path = key_path(make_tasks(tmp_path).path)
    with pytest.raises(UserError, match="the key of another task set"):
        read_key(path, "0" * 16)
    with pytest.raises(UserError, match="no such file"):
        read_key(tmp_path / "none.tasks.key.jsonl")


def test_a_full_disk_leaves_the_tasks_that_were_there(tmp_path, monkeypatch):
    tasks = make_tasks(tmp_path)
    before = tasks.path.read_bytes()

    def full(descriptor):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(UserError, match=r"toy.tasks.jsonl cannot be written: No space left"):
        write_tasks(tasks.path, "text", tasks.tasks[:3])
    assert tasks.path.read_bytes() == before and not list(tmp_path.glob("*.partial"))


def test_a_key_is_its_owners_alone(tmp_path):
    tasks = make_tasks(tmp_path)
    assert key_path(tasks.path).stat().st_mode & 0o777 == 0o600
    key_path(tasks.path).chmod(0o644)
    assert key_path(make_tasks(tmp_path).path).stat().st_mode & 0o777 == 0o600


def test_too_many_lines_are_not_parsed(tmp_path, monkeypatch):
    monkeypatch.setattr(jsonl, "MAX_FILE_LINES", 10)
    with pytest.raises(UserError, match="more than 10 lines, too many for a task file"):
        read_tasks(make_tasks(tmp_path).path)
