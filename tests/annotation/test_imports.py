"""Who scored what, as other programs write it: one person is one annotator, and an id stays one."""

import pytest
from task_files import make_tasks

from omniinput_hpc.annotation.imports import Collected, ImportOptions, plain_name, without_accents
from omniinput_hpc.errors import UserError

DECOMPOSED = "Jose\u0301"


@pytest.fixture
def tasks(tmp_path):
    return make_tasks(tmp_path, 3)


def collected(tasks, *people, annotator=None):
    found = Collected(tasks, ImportOptions(tasks.path, annotator))
    for n, name in enumerate(people):
        found.add({"id": f"id000{n}", "score": 0.5, "annotator": name}, f"line {n + 2}")
    return found.found


@pytest.mark.parametrize(
    ("people", "name", "notes"),
    [
        (("ana", " ana ", "ana\u00a0"), "ana", []),
        (("José", DECOMPOSED), "Jose", ["José is imported as Jose"]),
        ((DECOMPOSED,), "Jose", ["José is imported as Jose"]),
    ],
)
def test_one_person_is_one_annotator(tasks, people, name, notes):
    found = collected(tasks, *people)
    assert list(found.lines) == [name] and len(found.lines[name]) == len(people)
    assert found.notes == notes


@pytest.mark.parametrize(
    ("people", "words"),
    [
        (("Gus", "gus"), "line 3: 'Gus' and 'gus' differ only in case; rename one of them"),
        (("gus", "GUS "), "differ only in case"),
        (("José", "jose"), "differ only in case"),
        (("Jose", "José"), "'Jose' and 'José' would both be Jose"),
        (("王",), 'the annotator\'s name "王" must be 1 to 40 letters'),
        ((" ",), "the scorer is not named"),
    ],
)
def test_two_people_are_not_merged(tasks, people, words):
    with pytest.raises(UserError) as caught:
        collected(tasks, *people)
    assert words in str(caught.value)


def test_names_that_another_program_gives():
    assert plain_name("ana.b") == "ana-b"
    assert plain_name(DECOMPOSED) == plain_name("José") == without_accents("José") == "Jose"


@pytest.mark.parametrize("text", [" id0001", "id0001 ", "'id0001"])
def test_an_id_is_found_where_a_spreadsheet_has_put_something_around_it(tasks, text):
    found = Collected(tasks, ImportOptions(tasks.path, "ana"))
    assert found.add({"id": text, "score": 1.0}, "line 2").id == "id0001"


@pytest.mark.parametrize(
    "text", ["6.84903E+15", "6,84903E+15", "6849030000000000", "6.849.030", "12"]
)
def test_an_id_that_became_a_number(tasks, text):
    found = Collected(tasks, ImportOptions(tasks.path, "ana"))
    with pytest.raises(UserError, match="Import the column id as text"):
        found.add({"id": text, "score": 1.0}, "line 2")
    with pytest.raises(UserError) as caught:
        found.add({"id": "other", "score": 1.0}, "line 2")
    assert "spreadsheet" not in str(caught.value)
