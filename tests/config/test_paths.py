"""Paths of the input file: ~ and variables are expanded where the user gave them, or refused."""

import os
import pwd
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import tomli_w

from omniinput_hpc.config import input_file
from omniinput_hpc.config.paths import expanded
from omniinput_hpc.errors import UserError

TREE = {
    "run": {"output": "a.h5", "seed": 1, "rounds": 10},
    "model": {"kind": "causal-lm", "path": "toy", "length": 8},
    "sampler": {"walkers": 4, "steps": 5, "exchanges": 2},
    "ladder": {"betas": [0.0, 1.0]},
    "bins": {"lower": 0.0, "upper": 12.0, "width": 0.02},
    "samples": {"every": 5},
    "analysis": {"test_data": "a.csv"},
}
OTHERS = {
    "sequence-classifier": {"length": 8, "target": 1},
    "image-classifier": {"factory": "m:f", "shape": [2, 2], "n_values": 2},
    "python": {"factory": "m:f"},
}


@pytest.fixture(autouse=True)
def surroundings(monkeypatch):
    monkeypatch.setenv("HOME", "/home/ana")
    monkeypatch.setenv("SCRATCH", "/scratch/ana")
    monkeypatch.setenv("EMPTY", "")
    monkeypatch.delenv("NOT_SET", raising=False)


def file_of(tmp_path, **changes):
    tree = tomllib.loads(tomli_w.dumps(TREE))
    for key, value in changes.items():
        table, _, name = key.partition("__")
        tree[table][name] = value
    (tmp_path / "a.toml").write_text(tomli_w.dumps(tree))
    return tmp_path / "a.toml"


@pytest.mark.parametrize(("text", "expected"), [
    ("$SCRATCH/a.h5", "/scratch/ana/a.h5"),
    ("${SCRATCH}/a.h5", "/scratch/ana/a.h5"),
    ("runs/${SCRATCH}x", "runs//scratch/anax"),
    ("~/a.h5", "/home/ana/a.h5"),
    ("~", "/home/ana"),
    ("~/$SCRATCH", "/home/ana//scratch/ana"),
    ("./~/a.h5", "./~/a.h5"),
    ("a~b/c$.h5", "a~b/c$.h5"),
    ("~draft.h5", "~draft.h5"),
    ("100$/5$.h5", "100$/5$.h5"),
    ("l\u00e4ufe/a b'c:\".h5", "l\u00e4ufe/a b'c:\".h5"),
])  # fmt: skip
def test_what_a_path_stands_for(text, expected):
    assert expanded(text) == expected


def test_another_users_home():
    me = pwd.getpwuid(os.getuid())
    assert expanded(f"~{me.pw_name}/a.h5") == f"{me.pw_dir}/a.h5"


@pytest.mark.parametrize(("text", "message"), [
    ("$NOT_SET/a.h5", "the environment variable NOT_SET is not set"),
    ("${NOT_SET}/a.h5", "the environment variable NOT_SET is not set"),
    ("$EMPTY/a.h5", "the environment variable EMPTY is empty"),
    ("${}/a.h5", "does not name an environment variable"),
    ("${SCRATCH:-/tmp}/a.h5", "does not name an environment variable"),
    ("~no-such-user/a.h5", "~no-such-user has no home folder"),
    ("\udce4.h5", "is not UTF-8"),
])  # fmt: skip
def test_what_it_cannot_stand_for(text, message):
    with pytest.raises(ValueError, match=message.replace("$", r"\$")):
        expanded(text)


def test_all_paths_of_an_input_file_and_nothing_else(tmp_path):
    config = input_file.load(file_of(
        tmp_path, run__output="$SCRATCH/a.h5", model__path="~/toy", model__prefix="$SCRATCH",
        analysis__test_data="${SCRATCH}/t.csv",
    ))  # fmt: skip
    assert config.run.output == "/scratch/ana/a.h5"
    assert config.model.path == "/home/ana/toy"
    assert config.model.prefix == "$SCRATCH"  # a text
    assert config.analysis.test_data == "/scratch/ana/t.csv"


@pytest.mark.parametrize("kind", OTHERS)
def test_paths_of_every_kind_of_model(tmp_path, kind):
    table = {"kind": kind, **OTHERS[kind]}
    table |= {"path": "~/m"} if kind != "python" else {"options": {"path": "~/m", "d": "$NOT_SET"}}
    tree = {**TREE, "model": table}
    (tmp_path / "a.toml").write_text(tomli_w.dumps(tree))
    model = input_file.load(tmp_path / "a.toml").model
    if kind == "python":  # what a user's own function is given is its own matter
        assert model.options == {"path": "~/m", "d": "$NOT_SET"}
    else:
        assert model.path == "/home/ana/m"


def test_set_is_expanded_and_what_it_replaces_need_not_be_right(tmp_path):
    path = file_of(tmp_path, run__output="$NOT_SET/a.h5")
    with pytest.raises(UserError, match=r"1 mistake.*\n  run\.output: .*NOT_SET is not set"):
        input_file.load(path)
    given = ["run.output=$SCRATCH/b.h5", "model.path = '~/m'"]
    found = input_file.load(path, given)
    assert (found.run.output, found.model.path) == ("/scratch/ana/b.h5", "/home/ana/m")
    with pytest.raises(UserError, match=r"2 mistakes(.|\n)*model\.path(.|\n)*sampler\.steps"):
        input_file.load(path, ["run.output=b.h5", "model.path=$NOT_SET", "sampler.steps=0"])
    later = ["run.output=$NOT_SET/b.h5", "run.output=c.h5"]
    assert input_file.load(path, later).run.output == "c.h5"


def test_a_stored_input_is_taken_as_it_is(tmp_path):
    """Names may hold any character, and variables have other values on another node."""
    stored = tomli_w.dumps({**TREE, "run": {**TREE["run"], "output": "$NOT_SET/~.h5"}})
    assert input_file.parse(stored, "x").run.output == "$NOT_SET/~.h5"
    for name in ("it's.h5", "a\"b'c.h5", "a\\nb.h5", "a\nb.h5", "$NOT_SET.h5", "l\u00e4uf 1:2.h5"):
        found = input_file.parse(stored, "x", ["model.path=~/m"], here=Path(name))
        assert (found.run.output, found.model.path) == (name, "/home/ana/m")
    with pytest.raises(UserError, match=r"model\.path: .*NOT_SET is not set"):
        input_file.parse(stored, "x", ["model.path=$NOT_SET"])


def test_a_locale_that_cannot_name_the_file_is_refused(tmp_path):
    code = (
        "from omniinput_hpc.config.paths import expanded\n"
        "try: expanded('\\u00e4.h5')\nexcept ValueError as e: print(e)\nprint(expanded('a.h5'))"
    )
    environment = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONPATH": str(Path.cwd())}
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True
    )
    first, second = done.stdout.splitlines()
    assert "ASCII names; set PYTHONUTF8=1" in first and second == "a.h5"
