"""Runs joined by a plus sign: which files a word names, and which groups may be compared."""

from pathlib import Path
from types import SimpleNamespace

import pytest
from configs import config_with

from omniinput_hpc.errors import UserError
from omniinput_hpc.results.run_groups import RunGroup, group_of, require_apart, seed_lines


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "runs").mkdir()
    for name in ("a.h5", "b.h5", "runs/c.h5", "x+y.h5", "a.h5+b.h5+one.h5"):
        (tmp_path / name).touch()
    return tmp_path


@pytest.mark.parametrize(("word", "files"), [
    ("a.h5", ["a.h5"]),
    ("a.h5+b.h5", ["a.h5", "b.h5"]),
    ("a.h5+runs/c.h5+b.h5", ["a.h5", "runs/c.h5", "b.h5"]),
    ("x+y.h5", ["x+y.h5"]),  # a file of that name
    ("x+y.h5+a.h5", ["x+y.h5", "a.h5"]),
    ("b.h5+x+y.h5", ["b.h5", "x+y.h5"]),
    ("a.h5+b.h5+one.h5", ["a.h5+b.h5+one.h5"]),
    ("missing.h5", ["missing.h5"]),  # said by who opens it
])  # fmt: skip
def test_which_files_a_word_names(folder, word, files):
    for given in (word, Path(word)):
        assert group_of(given).files == tuple(map(Path, files))


@pytest.mark.parametrize(("word", "missing"), [
    ("a.h5+none.h5", "no run file none.h5 "),
    ("none.h5+a.h5", "no run file none.h5 "),
    ("a.h5+", "has an empty name"),
    ("x+z.h5", "no run file x "),
    ("a.h5+" * 60 + "none.h5", "no run file none.h5 "),
])  # fmt: skip
def test_a_part_that_does_not_exist_is_named(folder, word, missing):
    with pytest.raises(UserError, match=missing) as caught:
        group_of(word)
    assert str(caught.value).count("\n") == 0


def test_names_of_a_group():
    group = RunGroup((Path("runs/a.h5"), Path("other/b.h5")))
    assert group.path == Path("runs/a+b.h5") and group.name == "runs/a.h5+other/b.h5"
    assert RunGroup((Path("runs/a.h5"),)).path == Path("runs/a.h5")


def run(name, seed):
    return SimpleNamespace(path=name, config=config_with(run={"seed": seed}))


def test_groups_that_share_a_run_or_a_seed_are_refused():
    require_apart([[run("a", 1), run("b", 2)], [run("c", 3)]])
    for other in ([run("b", 2)], [run("c", 3), run("d", 1)]):
        with pytest.raises(UserError, match=r"have the same \[run\] seed"):
            require_apart([[run("a", 1), run("b", 2)], other])


def test_a_file_beside_itself_is_refused_and_one_seed_of_two_files_is_said(folder):
    single = [[run("a.h5", 1)], [run("b.h5", 1)]]
    require_apart(single)
    assert "have the same [run] seed" in seed_lines(single)[0]
    assert seed_lines([[run("a.h5", 1)], [run("b.h5", 2)]]) == []
    with pytest.raises(UserError, match=r"a\.h5 is given twice"):
        require_apart([[run("a.h5", 1)], [run("../" + folder.name + "/a.h5", 1)]])
