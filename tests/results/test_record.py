"""RUN.results.json: its schema, merging, and two analyses at once."""

import json
import multiprocessing
from pathlib import Path
from types import SimpleNamespace

import jsonschema
import numpy as np
import pytest

from omniinput_hpc.errors import UserError
from omniinput_hpc.results import record as module
from omniinput_hpc.results.record import Record, read_results

SCHEMA = json.loads(module.SCHEMA.read_text())


def record(path, analysis="reweight", **parameters):
    return Record(path, analysis, f"omniinput {analysis} toy.h5", parameters)


def run_at(path, created="today", rounds=1):
    """Return a run file, as far as records see it."""
    return SimpleNamespace(
        path=path, created=created, rounds=rounds, rounds_planned=9, fingerprint="m", n_sites=2,
        n_values=3, config=SimpleNamespace(measure="count"),
    )  # fmt: skip


def saved(path):
    found = json.loads(path.read_text())
    jsonschema.validate(found, SCHEMA)
    return found


def test_the_schema_is_one():
    jsonschema.Draft202012Validator.check_schema(SCHEMA)


def test_all_that_a_record_holds_is_in_the_file(tmp_path):
    mine = record(tmp_path / "toy.h5", exact=Path("a/b.csv"), range=(1.0, 2.0), rule=None)
    mine.add_value("AUPR", 0.4, 0.1, 0.2, np.inf)
    mine.verdicts.append({"of": "toy", "converged": False, "reasons": ["too short"]})
    mine.add_table(tmp_path / "toy.density.csv", ["what it means"], {"z": np.array([1.5, np.nan])})
    path = mine.save()
    assert path == tmp_path / "toy.results.json"
    (entry,) = saved(path)["analyses"]
    assert entry["parameters"] == {"exact": "a/b.csv", "range": [1.0, 2.0], "rule": None}
    assert entry["values"]["AUPR"] == {"value": 0.4, "error": 0.1, "low": 0.2, "high": None,
                                       "level": 0.95}  # fmt: skip
    assert entry["tables"] == [
        {"file": "toy.density.csv", "columns": ["z"], "rows": 2, "about": ["what it means"]}
    ]
    assert entry["files"] == ["toy.density.csv"] and entry["versions"]["numpy"] == np.__version__
    assert not list(tmp_path.glob("*.partial"))


def test_the_same_analysis_replaces_and_another_is_added(tmp_path):
    for unbinned in (False, True, False):
        mine = record(tmp_path / "toy.h5", unbinned=unbinned)
        mine.notes = [f"{unbinned}"]
        path = mine.save()
    record(tmp_path / "toy.h5", "diagnose").save()
    entries = saved(path)["analyses"]
    assert [(e["analysis"], e["notes"]) for e in entries] == [
        ("reweight", ["True"]), ("reweight", ["False"]), ("diagnose", []),
    ]  # fmt: skip


def test_an_infinite_option_is_the_same_again(tmp_path):
    for _ in range(2):
        path = record(tmp_path / "toy.h5", "changes", show_below=np.inf).save()
    (entry,) = saved(path)["analyses"]
    assert entry["parameters"] == {"show_below": None}


def test_a_file_belongs_to_who_wrote_it_last(tmp_path):
    for range_ in ((0, 1), (0, 2)):
        mine = record(tmp_path / "toy.h5", "compare", range=range_)
        mine.add_table(tmp_path / "toy.compared.csv", [], {"z": np.zeros(2)})
        mine.add_table(tmp_path / f"own-{range_[1]}.csv", [], {"z": np.zeros(2)})
        path = mine.save()
    first, second = saved(path)["analyses"]
    assert first["files"] == ["own-1.csv"] and [t["file"] for t in first["tables"]] == ["own-1.csv"]
    assert second["files"] == ["toy.compared.csv", "own-2.csv"]


def analysed(folder, *runs, analysis="reweight"):
    """Save the results of runs in a folder, next to the name of the first."""
    paths = [run.path for run in runs]
    mine = record(folder / paths[0].name, analysis, run=paths)
    for run in runs:
        mine.add_run(run)
    return mine.save()


def test_results_of_another_run_of_the_same_name_are_not_replaced(tmp_path):
    one, other = tmp_path / "a/run.h5", tmp_path / "b/run.h5"
    for folder in "abc":
        (tmp_path / folder).mkdir()
    for rounds in (1, 2):  # the same run, longer
        path = analysed(tmp_path, run_at(one, rounds=rounds))
    before = saved(path)
    assert [run["rounds"] for entry in before["analyses"] for run in entry["runs"]] == [2]
    for analysis in ("reweight", "diagnose"):
        with pytest.raises(UserError, match=rf"another run.h5, {one}: choose .* --results"):
            analysed(tmp_path, run_at(other, "yesterday"), analysis=analysis)
    assert saved(path) == before
    analysed(tmp_path, run_at(other, "today"), analysis="diagnose")  # the same run, moved
    for created in ("today", "later"):  # made anew at its own path
        analysed(tmp_path / "c", run_at(one, created))
    analysed(one.parent, run_at(one))
    analysed(one.parent, run_at(one, "later"))  # made anew: beside it nothing else is meant
    with pytest.raises(UserError, match=r"another run\.h5"):
        analysed(one.parent, run_at(other))


def save_many(path, name, n):
    for i in range(n):
        record(path, name, i=i).save()


def test_two_analyses_at_once_lose_nothing(tmp_path):
    names, n = ("one", "two", "three"), 12
    context = multiprocessing.get_context("fork")
    workers = [context.Process(target=save_many, args=(tmp_path / "toy.h5", name, n))
               for name in names]  # fmt: skip
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(60)
    entries = saved(tmp_path / "toy.results.json")["analyses"]
    assert {(e["analysis"], e["parameters"]["i"]) for e in entries} == {
        (name, i) for name in names for i in range(n)
    }


def test_without_the_lock_something_is_lost(tmp_path, monkeypatch):
    """The wrong variant: both read before either writes."""
    path = tmp_path / "toy.results.json"
    record(tmp_path / "toy.h5", "first").save()
    seen = []

    def interrupted(target, text):
        if not seen:
            seen.append(target)
            record(tmp_path / "toy.h5", "second").save()
        module_write(target, text)

    module_write = module.write_atomically
    monkeypatch.setattr(module, "write_atomically", interrupted)
    monkeypatch.setattr(module.fcntl, "flock", lambda *_: None)
    record(tmp_path / "toy.h5", "third").save()
    assert [e["analysis"] for e in saved(path)["analyses"]] == ["first", "third"]


def test_a_whole_file_or_the_old_one_is_there(tmp_path, monkeypatch, capsys):
    path = record(tmp_path / "toy.h5").save()
    before = path.read_bytes()

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(module, "write_atomically", full)
    record(tmp_path / "toy.h5", "diagnose").save()  # the analysis is done: a warning is enough
    assert path.read_bytes() == before
    assert f"warning: {path} was not written: No space left" in capsys.readouterr().err


OURS = '{"format": "omniinput-results"'


@pytest.mark.parametrize(
    "text",
    ["{}", "[]", "no JSON", f"{OURS}}}", f'{OURS}, "format_version": 2}}',
     f'{OURS}, "format_version": 1}}',
     f'{OURS}, "format_version": 1, "analyses": [{{"files": null}}]}}'],
)  # fmt: skip
def test_a_file_that_is_no_such_file_is_kept(tmp_path, text):
    path = tmp_path / "toy.results.json"
    path.write_text(text)
    with pytest.raises(UserError, match="move it away"):
        record(tmp_path / "toy.h5").save()
    assert path.read_text() == text
    with pytest.raises(UserError):
        read_results(path)
