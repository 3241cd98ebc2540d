"""Label Studio's exports: a person's latest annotation counts, by time; the rest is counted."""

import json

import pytest
from task_files import make_tasks

from omniinput_hpc.annotation.imports import ImportOptions
from omniinput_hpc.annotation.label_studio import from_label_studio
from omniinput_hpc.errors import UserError


@pytest.fixture
def tasks(tmp_path):
    return make_tasks(tmp_path, 3)


def annotation(stars, **more):
    return {"completed_by": 1, "result": [{"value": {"rating": stars}}], **more}


def imported(tasks, *annotations, encoding="utf-8", **more):
    path = tasks.path.with_name("export.json")
    item = {"id": 7, "data": {"id": "id0000"}, "annotations": list(annotations), **more}
    path.write_bytes(json.dumps([item]).encode(encoding))
    return from_label_studio(tasks, ImportOptions(path))


def at(created=None, updated=None):
    return {"created_at": created, "updated_at": updated}


@pytest.mark.parametrize(
    ("earlier", "later"),
    [
        (at("2026-01-01T00:30:00+02:00"), at("2025-12-31T23:00:00Z")),  # 22:30 and 23:00 in UTC
        (at("2026-01-01T10:00:00Z"), at("2026-01-01T09:30:00-01:00")),
        (at("2026-01-01T10:00:00Z"), at("2026-01-01T10:00:00.5Z")),
        (at("2026-01-01T10:00:00.9Z"), at("2026-01-01T10:00:00.10000Z", "2026-01-01T10:00:01Z")),
        (at("2026-01-02T10:00:00Z"), at("2026-01-01T10:00:00Z", "2026-01-03T10:00:00Z")),
        (at("2026-01-01T10:00:00"), at("2026-01-01T10:30:00+00:00")),
        (at("2026-01-01T10:00:00Z"), at(None, "2026-01-01T10:00:01Z")),
        (at("2026-01-01T10:00:00.000001Z"), at("2026-01-01T10:00:00.000002Z")),
    ],
)
@pytest.mark.parametrize("turned", [False, True])
def test_the_latest_counts_by_time(tasks, earlier, later, turned):
    both = [annotation(2, **earlier), annotation(5, **later)]
    found = imported(tasks, *(both[::-1] if turned else both))
    assert [line.score for line in found.lines["user1"]] == [0.25, 1.0]  # the last of a file counts
    assert [note.partition(": ")[2] for note in found.notes] == [
        "1 annotation replaced by a later one for the same person and task"
    ]


@pytest.mark.parametrize("time", [at(), at("yesterday"), at("", None)])
def test_without_a_time_one_is_enough_and_of_several_none_is_the_latest(tasks, time):
    known = annotation(5, **at("2026-01-01T10:00:00Z"))
    assert imported(tasks, annotation(2, **time)).lines["user1"][0].score == 0.25
    for both in ([annotation(2, **time), known], [known, annotation(2, **time)]):
        with pytest.raises(UserError, match="several annotations of id0000, and one has no time"):
            imported(tasks, *both)
    other = annotation(2, **time) | {"completed_by": 2}
    assert len(imported(tasks, other, known).lines) == 2  # of two people, there is no latest


def test_what_counts_for_nothing_is_counted(tasks):
    cancelled = annotation(5, was_cancelled=True, **at("2026-01-02T10:00:00Z"))
    given = annotation(2, was_cancelled=False, **at("2026-01-01T10:00:00Z"))
    model = {"result": [{"value": {"rating": 5}}], "score": 0.9}
    found = imported(tasks, given, cancelled, predictions=[model, model])
    assert [line.score for line in found.lines["user1"]] == [0.25]
    assert [note.partition(": ")[2] for note in found.notes] == [
        "1 cancelled annotation left out", "2 predictions left out: made by a model, not a person",
    ]  # fmt: skip
    assert not imported(tasks, predictions=[model]).lines


@pytest.mark.parametrize(
    ("item", "words"),
    [
        ({"id": 1, "data": {"id": "id0000"}, "completions": [annotation(2)]}, "before 1.0"),
        ({"id": 1, "completions": []}, "export it as JSON again"),
        ({"id": 9, "text": "x", "rating": 4, "annotator": 1, "annotation_id": 5},
         "no data or annotations (a JSON-MIN export, which lacks our ids)"),
        ({"id": 1, "data": {"id": "id0000"}, "predictions": []}, "no data or annotations; export"),
        ({"data": {"id": "id0000"}, "annotations": [annotation(2, was_cancelled="no")]},
         'was_cancelled" must be true or false'),
        ({"data": {"id": "id0000"}, "annotations": [annotation(2) | {"completed_by": True}]},
         "completed_by must be"),
    ],
)  # fmt: skip
def test_other_exports_get_the_advice_that_helps(tasks, item, words):
    path = tasks.path.with_name("export.json")
    for content in [[item], item] if "completions" in item else [[item]]:
        path.write_text(json.dumps(content))
        with pytest.raises(UserError) as caught:
            from_label_studio(tasks, ImportOptions(path))
        assert words in str(caught.value) and "\n" not in str(caught.value)


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16"])
def test_exports_are_read_however_they_are_saved(tasks, encoding):
    found = imported(tasks, annotation(2, completed_by={"email": "josé@x.org"}), encoding=encoding)
    assert list(found.lines) == ["jose"]
