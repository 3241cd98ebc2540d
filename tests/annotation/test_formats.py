"""Scores go out to other programs' files and come back the same; broken files are named."""

import csv
import json
from dataclasses import replace

import pytest
from _common import run_script
from scores import main
from task_files import make_tasks, word

from omniinput_hpc.annotation.scores import ScoreFile, find_scores, read_scores, scores_path
from omniinput_hpc.annotation.tasks import key_path, read_tasks, tasks_id_of

GIVEN = {
    "ana": {"id0000": 0.0, "id0001": 1 / 3, "id0002": 1.0},
    "ben": {"id0001": 0.1 + 0.2, "id0004": 0.5},
}


@pytest.fixture
def tasks(tmp_path):
    return make_tasks(tmp_path, 5, texts=["plain", 'com,ma "q"\nline', "é\u2028", "x", ""])


@pytest.fixture
def scored(tasks):
    """Score as two annotators and a judge; words taken back and said again do not count."""
    for name, said in GIVEN.items():
        with ScoreFile(scores_path(tasks.path, name), tasks) as file:
            file.append(word("id0001", 0.9, name), word("id0003", 0.9, name))
            file.append(word("id0003", None, name, undo=True))
            file.append(*(word(id_, score, name) for id_, score in said.items()))
    with ScoreFile(scores_path(tasks.path, "rule", judge=True), tasks) as file:
        file.append(word("id0003", 0.25, "rule", judge="rule x:y"))
    return tasks


def call(capsys, *words):
    code = run_script(main, list(map(str, words)))
    out, err = capsys.readouterr()
    return code, out, err


@pytest.mark.parametrize("format_", ["csv", "label-studio", "inspect"])
@pytest.mark.parametrize("kind", ["text", "image"])
def test_what_goes_out_comes_back(tmp_path, scored, capsys, format_, kind):
    code, out, err = call(capsys, scored.path, "--export", format_)
    assert (code, err) == (0, "") and "ana: 3 scores" in out
    exported = out.splitlines()[-1]
    (tmp_path / "back").mkdir()
    back = make_tasks(tmp_path / "back", 5, kind)
    code, out, err = call(capsys, back.path, "--import", exported)
    assert (code, err) == (0, "") and "3 scores of ana\n" in out
    for name in ("ana", "ben", "rule"):
        judge = name == "rule"
        before = read_scores(scores_path(scored.path, name, judge)).latest()
        after = read_scores(scores_path(back.path, name, judge), back)
        assert after.by_id() == {k: v.score for k, v in before.items()}  # to the last bit
        assert after.judge == ("rule x:y" if judge else None)
        for id_, line in after.latest().items():
            assert line == before[id_]
    assert len(find_scores(back.path)) == 3
    code, _, err = call(capsys, back.path, "--import", exported)  # a second time
    assert code == 2 and "exists already" in err


def test_an_export_of_no_scores_is_what_label_studio_imports(tasks, capsys):
    assert call(capsys, tasks.path, "--export", "label-studio")[0] == 0
    made = json.loads((tasks.path.parent / "toy.label-studio.json").read_text())
    assert [item["data"]["text"] for item in made] == [task.text for task in tasks.tasks]
    assert all(item["annotations"] == [] for item in made)


def rated(id_, stars, who=1, when="2026-01-01T00:00:00Z", **more):
    result = [{"type": "rating", "from_name": "score", "value": {"rating": stars}}]
    annotation = {"completed_by": who, "created_at": when, "result": result, **more}
    return {"id": 7, "data": {"id": id_, "text": "x"}, "annotations": [annotation]}


def test_stars_become_scores(tmp_path, tasks, capsys):
    items = [rated(f"id000{n}", n + 1, {"id": 3, "email": "ana.b@x.org"}) for n in range(5)]
    late = rated("id0000", 5, {"email": "ana.b@x.org"}, "2026-01-02T00:00:00Z")["annotations"][0]
    items[0]["annotations"].insert(0, late)  # newer, whatever its place
    items[1]["annotations"].append({"was_cancelled": True, "result": []})
    items.append(rated("id0001", 3, 12, lead_time=4.5))
    path = tmp_path / "export.json"
    path.write_text(json.dumps(items))
    assert call(capsys, tasks.path, "--import", path)[0] == 0
    ana = read_scores(scores_path(tasks.path, "ana-b")).by_id()
    assert ana == {"id0000": 1.0, "id0001": 0.25, "id0002": 0.5, "id0003": 0.75, "id0004": 1.0}
    (line,) = read_scores(scores_path(tasks.path, "user12")).lines
    assert (line.score, line.seconds) == (0.5, 4.5)
    path.write_text(json.dumps([rated("id0000", 5)]))
    assert call(capsys, tasks.path, "--import", path, "--stars", 9, "--annotator", "nine")[0] == 0
    assert read_scores(scores_path(tasks.path, "nine")).by_id() == {"id0000": 0.5}


@pytest.mark.parametrize(
    ("people", "options", "words"),
    [
        ((1, 2), ["--annotator", "nine"], "'user1' and 'user2' would both be nine; import them"),
        ((1, None), ["--annotator", "nine"], "would both be nine"),
        (("ana@x.org", "ana@y.org"), [], "'ana@x.org' and 'ana@y.org' would both be ana; rename"),
        (("a.b@x.org", "a-b@x.org"), [], "would both be a-b"),
        ((7, {"id": 9, "email": "user7@x.org"}), [], "'user7' and 'user7@x.org' would both be"),
        (("ana@x.org", "ben@x.org"), [], None),
        (("ana@x.org", {"email": "ana@x.org"}), [], None),
        ((None, None), ["--annotator", "nine"], None),
    ],
)
def test_people_are_not_merged_silently(tmp_path, tasks, capsys, people, options, words):
    first, second = (rated("id0000", 2 + n, who)["annotations"][0] for n, who in enumerate(people))
    both = rated("id0000", 2)
    both["annotations"] = [first, second]
    apart = [rated("id0000", 2, people[0]), rated("id0001", 3, people[1])]
    for n, items in enumerate(([both], apart)):
        path = tmp_path / f"{n}.json"
        path.write_text(json.dumps(items))
        code, _, err = call(capsys, tasks.path, "--import", path, *options)
        if words is None:
            assert (code, err) == (0, "")
            for made in tmp_path.glob("*.scores.*"):
                made.unlink()
        else:
            assert code == 2 and words in err and not list(tmp_path.glob("*.scores.*")), err


def test_scorers_and_rows_are_not_merged_silently(tmp_path, tasks, capsys):
    path = tmp_path / "log.jsonl"
    path.write_text(
        '{"id": "id0000", "scores": {"a.b": 1}}\n{"id": "id0001", "scores": {"a/b": 0}}'
    )
    code, _, err = call(capsys, tasks.path, "--import", path)
    assert code == 2 and "'a.b' and 'a/b' would both be a-b; rename one" in err
    path = tmp_path / "scores.csv"
    path.write_text("id,score,annotator\nid0000,1,ana\nid0001,0,ben\n")
    code, _, err = call(capsys, tasks.path, "--import", path, "--annotator", "cai")
    assert code == 2 and "'ana' and 'ben' would both be cai; import them separately" in err


def test_letters_and_truths_of_precomputed_scores(tmp_path, tasks, capsys):
    path = tmp_path / "log.jsonl"
    values = [{"value": "C"}, {"value": "P"}, "I", True, {"value": 0.125}]
    path.write_text(
        "".join(
            json.dumps({"id": f"id000{n}", "epoch": 1, "scores": {"model/graded": value}}) + "\n"
            for n, value in enumerate(values)
        )
        + json.dumps({"id": "id0004", "scores": {"other": {"value": None}}})
    )
    assert call(capsys, tasks.path, "--import", path)[0] == 0
    back = read_scores(scores_path(tasks.path, "model-graded", judge=True))
    assert list(back.by_id().values()) == [1.0, 0.5, 0.0, 1.0, 0.125]
    assert back.judge == "Inspect scorer model/graded"
    assert not scores_path(tasks.path, "other", judge=True).exists()


def inspect(id_="id0000", value=1):
    return json.dumps({"id": id_, "scores": {"s": {"value": value}}})


@pytest.mark.parametrize(
    ("name", "text", "words"),
    [
        ("a.csv", "", "has no column id or score"),
        ("a.csv", "id|score\n1|2\n", "in its first line (it has id|score)"),
        ("a.csv", "id,score\nid0000\n", "line 2: cut short"),
        ("a.csv", "id,score\nid0000,0.5,x\n", "line 2: cut short, or longer"),
        ("a.csv", 'id,score\n"id0000,0.5\n', "cannot be read as CSV"),
        ("a.csv", "id,score\nid0000,0.5\n", "line 2: the scorer is not named"),
        ("a.csv", "id,score,annotator\nid0000,1.5,a\n", 'line 2: "score" must be a score from 0'),
        ("a.csv", "id,score,annotator\nid0000,nan,a\n", 'a score from 0 to 1, got NaN'),
        ("a.csv", "id,score,annotator\nid0000,high,a\n", 'a score from 0 to 1, got "high"'),
        ("a.csv", "id,score,annotator\nid0000,,a\n", '"score" is missing'),
        ("a.csv", "id,score,annotator\nother,1,a\n", "holds no task with the id other"),
        ("a.csv", "id,score,annotator\nid0000,1,a/b\n", "letters, digits"),
        ("a.csv", "id,score,annotator\nid0000,1,a\nid0000,0,a\n", "several scores of id0000"),
        ("a.csv", "id,score,annotator\n", "no scores were given for"),
        ("a.csv", b"id,score\n\xff\n", "line 2: not a text file (UTF-8): it holds the byte 0xff"),
        ("a.json", json.dumps([rated("id0000", 3)])[:-9], "is cut short or is not JSON"),
        ("a.json", "{}", "expected a list of tasks"),
        ("a.json", '[{"id": 1, "text": "x", "score": 4}]', "task 1: no data or annotations"),
        ("a.json", json.dumps([rated(None, 3)]), 'task 1: "data.id" must be a text'),
        ("a.json", json.dumps([rated("id0000", 6)]), "6 stars, not 1 to 5"),
        ("a.json", json.dumps([rated("id0000", 0)]), "0 stars, not 1 to 5"),
        ("a.json", json.dumps([rated("id0000", "3")]), 'rating" must be a finite number'),
        ("a.json", json.dumps([rated("id0000", 3, result=[3])]), 'result.0" must be an object'),
        ("a.json", '[{"data": {"id": "a"}, "annotations": 5}]', '"annotations" must be a list'),
        ("a.json", json.dumps([rated("id0000", 3, [1])]), "completed_by must be"),
        ("a.json", "[" * 100 + "]" * 100, "nested too deeply"),
        ("a.json", json.dumps([rated("other", 3)]), "holds no task with the id other"),
        ("a.json", json.dumps([rated("id0000", 3, None)]), "the scorer is not named"),
        ("a.json", json.dumps([rated("id0000", 3, result=[])]), "neither a rating nor a Number"),
        ("a.jsonl", inspect() + "\n" + inspect()[:-3], "line 2: cut short or damaged"),
        ("a.jsonl", inspect(value="X"), '"score" must be a score from 0 to 1, got "X"'),
        ("a.jsonl", inspect(value=2), '"score" must be a score from 0 to 1'),
        ("a.jsonl", inspect(value=[1]), '"score" must be a score from 0 to 1, got [1]'),
        ("a.jsonl", inspect("other"), "holds no task with the id other"),
        ("a.jsonl", inspect() + "\n" + inspect(), "several scores of id0000"),
        ("a.jsonl", '{"id": "id0000"}', 'line 1: "scores" is missing'),
        ("a.jsonl", '{"id": "id0000", "scores": []}', '"scores" must be an object'),
        ("a.txt", "x", "say by --format"),
        ("a.csv", None, "no such file"),
    ],
)  # fmt: skip
def test_a_broken_file_is_named_and_nothing_is_written(tmp_path, tasks, capsys, name, text, words):
    path = tmp_path / name
    if text is not None:
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
    before = sorted(p.name for p in tmp_path.iterdir())
    code, out, err = call(capsys, tasks.path, "--import", path)
    assert (code, out) == (2, "") and len(err.splitlines()) == 1 and words in err, err
    assert sorted(p.name for p in tmp_path.iterdir()) == before


def test_the_csv_is_read_by_anybody(scored, capsys):
    assert call(capsys, scored.path, "--export", "csv")[0] == 0
    with (scored.path.parent / "toy.scores.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [(r["annotator"], r["id"]) for r in rows][:3] == [
        ("ana", "id0000"), ("ana", "id0001"), ("ana", "id0002"),
    ]  # fmt: skip
    assert [float(r["score"]) for r in rows if r["annotator"] == "ben"] == list(
        GIVEN["ben"].values()
    )


def test_no_cell_of_a_csv_runs_in_a_spreadsheet(tmp_path, capsys):
    """Numbers stay numbers, and what is made safe comes back."""
    tasks = make_tasks(tmp_path, 3)
    lines = tasks.path.read_text().replace("id0000", "=1+1").replace("id0001", "-1.5")
    ids = ["=1+1", "-1.5", "id0002"]
    tasks.path.write_text(lines.replace(tasks.tasks_id, tasks_id_of(ids)))
    tasks = read_tasks(tasks.path)
    with ScoreFile(scores_path(tasks.path, "ana"), tasks) as file:
        file.append(*(replace(word(id_, 0.5), guideline="@x") for id_ in ids))
    before = read_scores(scores_path(tasks.path, "ana")).latest()
    assert call(capsys, tasks.path, "--export", "csv")[0] == 0
    exported = tmp_path / "toy.scores.csv"
    rows = list(csv.reader(exported.read_text().splitlines()))
    assert [row[0] for row in rows[1:]] == ["'=1+1", "-1.5", "id0002"]
    assert {row[4] for row in rows[1:]} == {"'@x"}
    scores_path(tasks.path, "ana").unlink()
    assert call(capsys, tasks.path, "--import", exported)[0] == 0
    assert read_scores(scores_path(tasks.path, "ana"), tasks).latest() == before


def test_a_spreadsheet_s_scores_are_read_with_notes(tmp_path, tasks, capsys):
    path = tmp_path / "from Excel.CSV"
    rows = ["ID;Score;Seconds;Annotator;Remark", 'id0000;0,5;1,5;ana;"two\r\nlines; ""q"""',
            "id0001;1;;ana;", ";;;;"]  # fmt: skip
    path.write_bytes("\r\n".join(rows).encode("utf-8-sig"))
    code, out, err = call(capsys, tasks.path, "--import", path)
    assert (code, err) == (0, "")
    assert [line.partition("CSV: ")[2] for line in out.splitlines()[:3]] == [
        "read with semicolons between cells and decimal commas", "1 empty row left out",
        "ignored columns: remark",
    ]  # fmt: skip
    back = read_scores(scores_path(tasks.path, "ana"))
    assert back.by_id() == {"id0000": 0.5, "id0001": 1.0} and back.lines[0].seconds == 1.5
    code, _, err = call(capsys, tasks.path, "--import", tmp_path / "scores.xlsx")
    assert code == 2 and "save it as CSV (UTF-8)" in err


def test_scores_of_inspect_as_windows_saves_them(tmp_path, tasks, capsys):
    path = tmp_path / "log.jsonl"
    lines = [inspect(), inspect("id0001", None), ""]
    path.write_bytes("\r\n".join(lines).encode("utf-16"))
    code, out, _ = call(capsys, tasks.path, "--import", path)
    assert code == 0 and "1 null score left out" in out
    assert read_scores(scores_path(tasks.path, "s", judge=True)).by_id() == {"id0000": 1.0}


def test_an_export_replaces_nothing_that_is_read(scored, capsys):
    folder = scored.path.parent
    for path in (scored.path, key_path(scored.path), scores_path(scored.path, "ana")):
        before = path.read_bytes()
        code, _, err = call(capsys, scored.path, "--export", "csv", "--output", path)
        assert code == 2 and "is one of the input files" in err and path.read_bytes() == before
    (folder / "run.h5").write_bytes(b"a run")
    code, _, err = call(capsys, scored.path, "--export", "csv", "--output", folder / "run.h5")
    assert code == 2 and "is named like a run file" in err
