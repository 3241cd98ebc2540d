"""Banks of labels as files: written, read again, merged, and refused."""

import json
from dataclasses import replace

import pytest
from task_files import make_tasks, word

from omniinput_hpc.annotation.bank import (
    Bank,
    BankItem,
    BankRun,
    merged,
    read_bank,
    scored_items,
    write_bank,
)
from omniinput_hpc.annotation.scores import ScoreFile, scores_path
from omniinput_hpc.errors import UserError

RUN = BankRun("toy.h5", "sha256:0", "2026", "tasks", [0.0, 1.0, 2.0], True)


def item(**changes):
    values = {
        "x": [1, 2], "run": 0, "place": [0, 1, 2], "lane": 3, "z": 0.5, "bin": 0, "log_g": 4.0,
        "draws": 2, "scores": {"ana": 1.0},
    }  # fmt: skip
    return BankItem(**(values | changes))


def bank(folder, *items, run=RUN, annotators=None):
    return Bank(folder / "bank.jsonl", [run], annotators or {"ana": None}, list(items))


def test_what_is_written_is_read(tmp_path):
    written = bank(tmp_path, item(), item(x=[3, 4], bin=1, z=1.5))
    write_bank(written)
    assert read_bank(written.path) == written
    assert written.path.stat().st_mode & 0o077 == 0  # it shows z
    assert written.run_path(RUN) == tmp_path / "toy.h5"


def test_the_same_draws_are_replaced_and_others_are_added(tmp_path):
    old = bank(tmp_path, item(), item(x=[3, 4]))
    assert merged(None, old) is old
    again = merged(old, bank(tmp_path, item(scores={"ana": 0.0})))  # [3, 4] is taken back
    assert [i.scores["ana"] for i in again.items] == [0.0] and len(again.runs) == 1
    other = bank(tmp_path, item(x=[5, 5]), run=replace(RUN, tasks_id="more"))
    both = merged(old, other)
    assert [i.run for i in both.items] == [0, 0, 1] and len(both.runs) == 2
    with pytest.raises(UserError, match="ana is the name of a person and of a judge"):
        merged(old, bank(tmp_path, item(), annotators={"ana": "rule a:b"}))


def test_a_run_has_converged_once_all_its_probabilities_are_of_then(tmp_path):
    early = replace(RUN, converged=False)
    old = bank(tmp_path, item(), item(x=[3, 4], bin=1, z=1.5, scores={"ben": 1.0}), run=early)
    assert merged(old, bank(tmp_path, item(), item(x=[5, 6], bin=1, z=1.5))).runs == [RUN]
    assert merged(old, bank(tmp_path, item())).runs == [early]  # ben's bin keeps its early one


def test_another_annotator_of_the_same_draws_is_added(tmp_path):
    old = bank(tmp_path, item(), item(x=[3, 4]))
    new = bank(
        tmp_path, item(scores={"ben": 0.5}), item(x=[5, 6], scores={"ben": 0.0}),
        annotators={"ben": None, "cai": None},
    )  # fmt: skip
    both = merged(old, new)
    assert {tuple(i.x): i.scores for i in both.items} == {
        (1, 2): {"ana": 1.0, "ben": 0.5}, (3, 4): {"ana": 1.0}, (5, 6): {"ben": 0.0},
    }  # fmt: skip
    assert both.annotators == {"ana": None, "ben": None} and len(both.runs) == 1


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda lines: lines[:-1], "holds 1 inputs instead of 2"),
        (lambda lines: [{**lines[0], "format": "x"}, *lines[1:]], "is not a bank of labels"),
        (lambda lines: [lines[0], {**lines[1], "run": 7}, lines[2]], "is out of range"),
        (lambda lines: [lines[0], {**lines[1], "draws": 0}, lines[2]], "is out of range"),
        (lambda lines: [lines[0], {**lines[1], "scores": {"ben": 1.0}}, lines[2]], "annotator ben"),
        (lambda lines: [lines[0], {**lines[1], "scores": [2.0]}, lines[2]], "must be scores from"),
        (lambda lines: [lines[0], {**lines[1], "x": [1]}, lines[2]], "differ in length"),
        (
            lambda lines: [{**lines[0], "runs": [vars(RUN) | {"edges": [1.0, 1.0]}]}, *lines[1:]],
            "must ascend",
        ),
        (lambda lines: [{**lines[0], "runs": 1}, *lines[1:]], '"runs" must be a list of runs'),
    ],
)
def test_damaged_banks_are_refused(tmp_path, change, message):
    written = bank(tmp_path, item(), item(x=[3, 4]))
    write_bank(written)
    lines = [json.loads(line) for line in written.path.read_text().splitlines()]
    written.path.write_text("".join(json.dumps(line) + "\n" for line in change(lines)))
    with pytest.raises(UserError, match=message):
        read_bank(written.path)


def test_scores_of_a_run_are_found(tmp_path):
    tasks = make_tasks(tmp_path)
    path = scores_path(tasks.path, "ana")
    with ScoreFile(path, tasks) as file:
        file.append(*(word(task.id, n % 2) for n, task in enumerate(tasks.tasks[:6])))
    (found,), annotators, notes = scored_items("sha256:0", "any", [path])
    assert len(found.items) == 6 and found.scores[1] == {"ana": 1.0} and not notes
    assert found.edges.tolist() == [0.0, 1.0, 2.0] and annotators == {"ana": None}
    with pytest.raises(UserError, match="no input of this run is scored yet"):
        scored_items("another", "any", [path])
    key = tmp_path / "toy.tasks.key.jsonl"
    key.write_text(key.read_text().replace("by-weight", "uniform"))
    with pytest.raises(UserError, match="only inputs drawn by weight"):
        scored_items("sha256:0", "any", [path])


def test_every_range_of_a_run_is_found(tmp_path):
    """As of `choose A.h5 A.h5 --range 0 1 --range 1 2`: two runs of a key that are one."""
    made = make_tasks(tmp_path)
    key = tmp_path / "toy.tasks.key.jsonl"
    header, *items = map(json.loads, key.read_text().splitlines())
    header["runs"] = [{**header["runs"][0], "range": [lower, lower + 1.0]} for lower in (0.0, 1.0)]
    items = [{**item, "run": int(item["bin_lower"])} for item in items]
    key.write_text("".join(json.dumps(line) + "\n" for line in (header, *items)))
    with ScoreFile(scores_path(made.path, "ana"), made) as file:
        file.append(*(word(task.id, 1) for task in made.tasks))
    found, *_ = scored_items("sha256:0", "any", [scores_path(made.path, "ana")])
    assert [one.edges.tolist() for one in found] == [[0.0, 1.0], [1.0, 2.0]]
    assert sorted(item.id for one in found for item in one.items) == [t.id for t in made.tasks]
    upper = replace(RUN, edges=[2.0, 3.0])
    both = merged(bank(tmp_path, item()), bank(tmp_path, item(x=[7, 8]), run=upper))
    assert [i.run for i in both.items] == [0, 1]  # the other range is not taken back
