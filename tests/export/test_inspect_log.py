"""Scored inputs as a log of Inspect: its reader opens it, and its scores come back."""

import json
import shutil
import sys

import pytest
from script_tools import is_plain
from task_files import make_tasks, word

from omniinput_hpc.annotation.scores import ScoreFile, read_scores, scores_path
from omniinput_hpc.annotation.tasks import key_path, read_key, read_tasks
from omniinput_hpc.errors import UserError
from omniinput_hpc.export.inspect_log import write_log
from omniinput_hpc.export.scored_inputs import scored_inputs
from omniinput_hpc.runfile.reader import open_run

FILES = ("good.scores.ann.jsonl", "good.judge-scores.ben.jsonl")
BY = ("--scores", *FILES)


def test_the_reader_of_inspect_opens_it(export, inspect_log, tmp_path):
    code, out, err = export("inspect", *BY)
    assert (code, err) == (0, "") and out.splitlines()[-1] == "good.inspect.eval"
    log = inspect_log.read_eval_log("good.inspect.eval")
    tasks = read_tasks(tmp_path / "good.tasks.jsonl")
    key = read_key(key_path(tasks.path))
    shown = {task.id: task.text for task in tasks.tasks}
    items = {id_: item for id_, item in key.by_id().items() if item.gold is None}
    assert log.stats.started_at == log.stats.completed_at == log.eval.created
    assert log.status == "success" and log.eval.dataset.samples == len(items)
    assert {sample.id: sample.input for sample in log.samples} == {id_: shown[id_] for id_ in items}
    ann, ben = (read_scores(tmp_path / name).by_id() for name in FILES)
    for sample in log.samples:
        item, about = items[sample.id], sample.metadata
        assert {n: s.value for n, s in sample.scores.items()} == {
            "ann": ann[sample.id], "ben": ben[sample.id],
        }  # fmt: skip
        assert about["bin_upper"] - about["bin_lower"] == pytest.approx(key.width)
        assert (about["z"], about["x"], about["draws"], about["repeats"]) == (
            item.z, item.x, item.draws, item.repeats,
        )  # fmt: skip


@pytest.mark.slow
def test_its_scores_come_back(export, inspect_log, inside, tmp_path):
    assert export("inspect", *BY)[0] == 0
    (tmp_path / "back").mkdir()
    for name in ("good.tasks.jsonl", "good.tasks.key.jsonl"):
        shutil.copy(name, "back")
    code, out, err = inside("scores.py", "back/good.tasks.jsonl", "--import", "good.inspect.eval")
    assert (code, err) == (0, "") and "good.judge-scores.ben.jsonl" in out
    golds = {id_ for id_, item in read_key(tmp_path / "good.tasks.key.jsonl").by_id().items()
             if item.gold is not None}  # fmt: skip
    for name in FILES:
        before, after = (read_scores(folder / name) for folder in (tmp_path, tmp_path / "back"))
        wanted = {id_: line for id_, line in before.latest().items() if id_ not in golds}
        assert after.latest() == wanted and after.judge == before.judge
    same = inside("precision_recall.py", "good.h5", "--scores", "back/good.scores.ann.jsonl")
    assert same[1].replace("back/", "") == inside("precision_recall.py", "good.h5", *BY[:2])[1]


def test_pictures_are_pictures_there(scored_run, inspect_log, tmp_path):
    tasks = make_tasks(tmp_path, 3, "image")
    with ScoreFile(scores_path(tasks.path, "ana"), tasks) as file:
        file.append(word("id0001", 0.5))
    inputs = scored_inputs("sha256:0", [scores_path(tasks.path, "ana")])
    with pytest.raises(UserError, match="and the run has 99: choose tasks from the run"):
        scored_inputs("sha256:0", [scores_path(tasks.path, "ana")], n_sites=99)
    with open_run(scored_run / "good.h5") as run:
        write_log(tmp_path / "a.eval", run, inputs)
    log = inspect_log.read_eval_log(str(tmp_path / "a.eval"), resolve_attachments=True)
    (sample,) = log.samples
    assert sample.input[0].content[0].image == tasks.tasks[1].png
    with pytest.raises(UserError, match="no input of this model is scored yet"):
        scored_inputs("sha256:1", [scores_path(tasks.path, "ana")])


def test_a_log_that_is_no_log_is_named(export, inspect_log, inside, tmp_path):
    assert export("inspect", *BY)[0] == 0
    whole = (tmp_path / "good.inspect.eval").read_bytes()
    (tmp_path / "cut.eval").write_bytes(whole[: len(whole) // 2])
    code, _, err = inside("scores.py", "good.tasks.jsonl", "--import", "cut.eval")
    assert is_plain(code, err, "cut.eval: inspect_ai cannot read it as a log"), err
    code, _, err = inside("scores.py", "good.tasks.jsonl", "--import", "no.eval")
    assert is_plain(code, err, "no.eval: no such file"), err


def test_without_the_package_the_extra_is_named(export, inside, monkeypatch, tmp_path):
    for name in ("inspect_ai", "inspect_ai.log"):
        monkeypatch.setitem(sys.modules, name, None)
    code, _, err = export("inspect", *BY)
    assert is_plain(code, err, "not installed: python -m pip install '.[export]'"), err
    assert not (tmp_path / "good.inspect.eval").exists()
    (tmp_path / "a.eval").write_bytes(b"")
    code, _, err = inside("scores.py", "good.tasks.jsonl", "--import", "a.eval")
    assert is_plain(code, err, "not installed: python -m pip install '.[export]'"), err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], "name their score files by --scores"),
        (["--rule", "my_rules:first_is_zero"], "takes score files (--scores), not --rule"),
        ([*BY, "--judge-scores", FILES[1]], "takes score files (--scores), not --judge-scores"),
        ([*BY, "--side", "high"], "takes score files (--scores), not --side"),
        ([*BY, "--recall-range", "0:2"], "takes score files (--scores), not --recall-range"),
        ([*BY, "--output", "a.txt"], "the name must end with .eval"),
        ([*BY, "--key", "other.key.jsonl"], "no such file"),
    ],
)
def test_what_does_not_fit_is_refused(export, words, said):
    code, _, err = export("inspect", *words)
    assert is_plain(code, err, said), err


def test_scores_of_other_tasks_are_refused(export, tmp_path):
    line = json.loads((tmp_path / FILES[0]).read_text().splitlines()[0]) | {"id": "other"}
    with (tmp_path / FILES[0]).open("a") as file:
        file.write(json.dumps(line) + "\n")
    code, _, err = export("inspect", *BY)
    assert is_plain(code, err, "holds no task with the scored id other"), err
