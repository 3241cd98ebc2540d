"""Task files and keys come back as written; every kind of damage is one plain sentence."""

import errno
import json
import os

import pytest
from task_files import KEY_HEADER, make_tasks

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
    assert (back.law, back.width, back.range, back.per_bin, back.duplicates) == (
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
        (lambda t: lines(t)[:-1], "is cut short: it holds 9 of 10 tasks"),
        (lambda t: "".join(lines(t))[:-20], "line 11: cut short or damaged"),
        (lambda t: [*lines(t), lines(t)[-1]], "longer than it was"),
        (lambda t: [*lines(t)[:-1], lines(t)[-2]], "is there twice"),
        (lambda t: [*lines(t)[:-1], lines(t)[-1].replace("id0009", "id0042")], "tasks_id"),
        (lambda t: [*lines(t)[:-1], "[1]\n"], "line 11: expected an object"),
        (lambda t: [*lines(t)[:-1], '{"id": "id0009"}\n'], 'line 11: "text" must be a text'),
        (lambda t: [lines(t)[0].replace("omniinput-tasks", "other")], "is no task file"),
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
        ("z", True, '"z" must be a number'),
        ("lane", -1, '"lane" must be a whole number >= 0'),
        ("x", [0.5], '"x" must be a list of whole numbers'),
        ("gold", 1.5, '"gold" must be a score from 0 to 1'),
    ],
)
def test_a_damaged_key(tmp_path, name, value, words):
    path = key_path(make_tasks(tmp_path).path)
    header, first, *rest = path.read_text().splitlines(keepends=True)
    changed = json.dumps({**json.loads(first), name: value}) + "\n"
    path.write_text("".join([header, changed, *rest]))
    with pytest.raises(UserError, match=f"line 2: {words}"):
        read_key(path)


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
