"""jobscripts/reproduce.sh: steps are made once, failures and missing data are told; the page."""

import configparser
import re
import shlex
import subprocess
import tomllib
from pathlib import Path

import pytest
from run_tools import ROOT, environment

from omniinput_hpc.report import reproduce

PLAN = """
[tiny]
title = "A tiny <target>"
papers = "S0 Table 1"
minutes = 0.1
steps = [
    {{ name = "first", command = "sh -c 'echo run >> {counter}; echo AUPR 0.25'" }},
    {{ name = "second", command = "sh -c 'test -e {gate}; code=$?; echo late 7; exit $code'" }},
    {{ name = "sets", command = "echo {{data}} 12.5", needs_data = true }},
]
rows = [
    {{ what = "area", step = "first", find = "AUPR (.*)", published = "table.cnn", why = "x" }},
    {{ what = "sets", step = "sets", find = ' ([\\d.]+)' }},
    {{ what = "absent", step = "first", find = 'AUROC (\\d+)' }},
]
pictures = [
    {{ file = "{picture}", caption = "a picture" }},
    {{ file = "none.png", caption = "gone" }},
]

[[gpu]]
input = "inputs/olmo7b.toml"
hours = "41"
papers = "S0 Fig. 7"
"""


@pytest.fixture
def plan(tmp_path):
    folder = tmp_path / "plan"
    folder.mkdir()
    (tmp_path / "picture.png").write_bytes(b"\x89PNG")
    text = PLAN.format(
        counter=tmp_path / "counter", gate=tmp_path / "gate", picture=tmp_path / "picture.png"
    )
    (folder / "plan.toml").write_text(text)
    (folder / "published.toml").write_text("[table]\ncnn = 99.81\n")
    return folder


def call(plan, tmp_path, *words):
    return reproduce.main([*words, "--plan", str(plan), "--runs", str(tmp_path / "runs")])


def test_a_finished_step_is_not_made_again_and_a_failed_one_is(plan, tmp_path, capsys):
    assert call(plan, tmp_path, "tiny") == 1
    assert "second failed with code 1" in capsys.readouterr().out
    (tmp_path / "gate").touch()
    assert call(plan, tmp_path, "tiny") == 0
    out = capsys.readouterr().out
    assert "finished before: first" in out and "finished before: second" not in out
    assert "no --data FOLDER holds their pictures: sets" in out
    assert (tmp_path / "counter").read_text() == "run\n"
    assert call(plan, tmp_path, "tiny", "--data", str(tmp_path)) == 0
    assert (tmp_path / "counter").read_text() == "run\n"
    assert (tmp_path / "runs/tiny/sets.log").read_text() == f"{tmp_path} 12.5\n"


def test_a_step_whose_folder_is_there_is_finished(plan, tmp_path, capsys):
    (tmp_path / "gate").touch()
    made, file = tmp_path / "model", plan / "plan.toml"
    step = f'{{ name = "model", command = "mkdir {made}", makes = "{made}" }}, '
    file.write_text(file.read_text().replace("steps = [", f"steps = [{step}", 1))
    made.mkdir()  # by hand, as docs/results/smollm2.md says
    assert call(plan, tmp_path, "tiny") == 0
    assert "finished before: model" in capsys.readouterr().out
    made.rmdir()
    assert call(plan, tmp_path, "tiny") == 0 and made.is_dir()


def test_numbers_of_sets_are_found_behind_a_folder_with_spaces(tmp_path):
    """The first table of `omniinput test-sets` is not mistaken for the second."""
    z = "negative      60     9.5     10.5       11.5  0.0%"
    for step, name in ("noise-cnn", "mnist:/my 1 data:0"), ("fashion-cnn", "fashion:/my data"):
        text = (
            f"{name}  {z}\nmnist:/my 1 data:2,3  9  1 2 3 4\n{name}  60  90.1  90.2  91.5  7.25\n"
        )
        (tmp_path / f"{step}.log").write_text(text)
    rows = reproduce.read_plan(ROOT / reproduce.FOLDER)[0]["mnist"].rows
    for step in ("noise-cnn", "fashion-cnn"):
        found = [reproduce.ours(row, tmp_path) for row in rows if row["step"] == step]
        assert found == ["90.1", "91.5", "7.25"]


def test_the_launcher_may_lie_in_a_folder_with_spaces():
    script = (ROOT / "jobscripts/reproduce.sh").read_text()
    (words,) = re.findall(r"^words=.*$", script, re.MULTILINE)
    (given,) = re.findall(r"OMNIINPUT_MPIRUN=(\S+ \S+) exec", script)
    for launch in (["/a b/mpirun", "-n", "2"], ["mpirun", "-n", "2"], []):
        text = f'launch=({shlex.join(launch)}); {words}; words={given}; printf %s "$words"'
        done = subprocess.run(["bash", "-c", text], capture_output=True, text=True, check=True)
        assert shlex.split(done.stdout) == launch
        assert "'" not in done.stdout  # the commands of earlier .done files stay the same


def test_a_changed_command_is_made_again(plan, tmp_path):
    (tmp_path / "gate").touch()
    assert call(plan, tmp_path, "tiny") == 0
    file = plan / "plan.toml"
    file.write_text(file.read_text().replace("AUPR 0.25", "AUPR 0.75"))
    assert call(plan, tmp_path, "tiny") == 0
    assert (tmp_path / "counter").read_text() == "run\nrun\n"
    assert "0.75" in (tmp_path / "runs/tiny/page.html").read_text()


def test_a_step_is_made_again_if_a_file_that_it_reads_has_changed(plan, tmp_path, monkeypatch):
    """An input file, its model's weights, or a run file, known by its size and time."""
    (tmp_path / "gate").touch()
    toml, weights, run = (tmp_path / name for name in ("a.toml", "model/weights", "a.h5"))
    weights.parent.mkdir()
    toml.write_text(f'[model]\npath = "{weights.parent}"\n')
    weights.write_text("1")
    run.write_text("1" * 100)
    monkeypatch.setattr(reproduce, "LARGE", 99)
    file = plan / "plan.toml"
    file.write_text(file.read_text().replace("0.25'\"", f"0.25' {toml} {run}+none.h5\""))
    for times, change in enumerate((toml, weights, run), start=1):
        for _ in range(2):
            assert call(plan, tmp_path, "tiny") == 0
        assert (tmp_path / "counter").read_text() == "run\n" * times
        change.write_text(f"{change.read_text()}\n# more")
    assert call(plan, tmp_path, "tiny") == 0
    assert (tmp_path / "counter").read_text() == "run\n" * 4


def test_the_page_sets_ours_beside_the_published_numbers(plan, tmp_path):
    (tmp_path / "gate").touch()
    assert call(plan, tmp_path, "tiny") == 0
    page = (tmp_path / "runs/tiny/page.html").read_text()
    assert "A tiny &lt;target&gt;" in page
    cells = "".join(page.split())
    assert "<td>area</td><td>0.25</td><td>99.81</td><td>x</td>" in cells
    assert "<td>absent</td><td>-</td><td>-</td>" in cells
    assert "these steps were left out: sets" in page
    assert page.count("data:image/png;base64,iVBORw==") == 1 and "gone" not in page


EACH = """
[[tiny.each]]
of = [{ id = "a", how = "{python}" }, { id = "b", how = "{mpirun}" }]
steps = [
    { name = "run-<id>", command = "<how> <id>.toml" },
    { name = "sets-<id>", command = "cat {data}/<id>", needs_data = true },
]
rows = [{ what = "<id>", step = "run-<id>", find = "x", published = "table.<id>" }]
pictures = [{ file = "<id>.png", caption = "<id>" }]
"""


def test_what_is_made_for_each_stands_between_the_first_and_the_last(plan):
    file = plan / "plan.toml"
    file.write_text(file.read_text().replace("[[gpu]]", EACH + "[[gpu]]", 1))
    file.write_text(
        file.read_text().replace(
            "rows =", 'last_steps = [{ name = "end", command = "true" }]\nrows =', 1
        )
    )
    tiny = reproduce.read_plan(plan)[0]["tiny"]
    names = [step.name for step in tiny.steps]
    assert names[:3] == ["first", "second", "sets"]
    assert names[3:] == ["run-a", "sets-a", "run-b", "sets-b", "end"]
    of_each = tiny.steps[3:7]
    assert [step.command for step in of_each] == [
        "{python} a.toml", "cat {data}/a", "{mpirun} b.toml", "cat {data}/b"
    ]  # fmt: skip
    assert [step.needs_data for step in of_each] == [False, True, False, True]
    assert [row.get("published") for row in tiny.rows][-2:] == ["table.a", "table.b"]
    assert [picture["file"] for picture in tiny.pictures][-2:] == ["a.png", "b.png"]


PAIRS = """
[[tiny.each]]
of = [{ id = "a" }, { id = "b" }]
by = [{ set = "fashion" }, { set = "qmnist" }]
steps = [{ name = "<set>-<id>", command = "echo {data}/<set>", needs_data = "<set>" }]
rows = [{ what = "<set>, <id>", step = "<set>-<id>", find = "(.*)" }]
"""


def test_pairs_are_made_and_sets_that_are_not_there_are_left_out(plan, tmp_path, capsys):
    (tmp_path / "gate").touch()
    file, data = plan / "plan.toml", tmp_path / "my data"
    file.write_text(file.read_text().replace("[[gpu]]", PAIRS + "[[gpu]]", 1))
    (data / "fashion").mkdir(parents=True)
    assert call(plan, tmp_path, "tiny", "--data", str(data)) == 0
    left_out = capsys.readouterr().out.partition("holds their pictures: ")[2]
    assert left_out.splitlines()[0] == "qmnist-a, qmnist-b"
    assert (tmp_path / "runs/tiny/fashion-b.log").read_text() == f"{data}/fashion\n"


def test_numbers_of_many_decimals_are_rounded(tmp_path):
    (tmp_path / "curve.log").write_text(
        "AUPR: 0.072848 (95% interval 0.057383 to 0.0883), 18.4567\n"
    )
    row = {"step": "curve", "find": r"AUPR: (\S+) \((.*)\), (\S+)"}
    assert reproduce.ours(row, tmp_path) == "0.0728, 95% interval 0.0574 to 0.0883, 18.4567"


def test_stopping_early_is_handed_on(plan, tmp_path, capsys):
    file = plan / "plan.toml"
    file.write_text(file.read_text().replace("echo AUPR 0.25", "exit 75"))
    assert call(plan, tmp_path, "tiny") == 75
    assert "the same command resumes" in capsys.readouterr().out


def test_mistakes_are_told(plan, tmp_path, capsys):
    assert call(plan, tmp_path, "tiney") == 2
    assert "tiney: not one of tiny" in capsys.readouterr().err
    assert call(plan, tmp_path, "tiny", "--data", str(tmp_path / "nowhere")) == 2
    assert "nowhere: no such folder" in capsys.readouterr().err


def test_the_list_names_all_targets_and_what_needs_a_gpu():
    command = ["bash", str(ROOT / "jobscripts/reproduce.sh"), "--list"]
    done = subprocess.run(command, capture_output=True, text=True, env=environment(), timeout=400)
    assert done.returncode == 0, done.stderr
    for word in ("toy ", "mnist ", "english ", "smollm2 ", "samplers ", "inputs/olmo7b.toml"):
        assert word in done.stdout


def test_the_set_up_has_what_steps_ask_for():
    script = (ROOT / "jobscripts/reproduce.sh").read_text()
    extras = set(re.search(r"^setup (\S+)", script, re.MULTILINE)[1].split(","))
    known = configparser.ConfigParser()
    known.read(ROOT / "setup.cfg")
    assert extras <= set(known["options.extras_require"])
    targets, _ = reproduce.read_plan(ROOT / reproduce.FOLDER)
    commands = [step.command for target in targets.values() for step in target.steps]
    for word, extra in ("--judge fid", "judges"), ("zoo.smollm2", "gguf"):
        assert any(word in command for command in commands) and extra in extras


def test_the_plan_names_what_exists():
    targets, gpu = reproduce.read_plan(ROOT / reproduce.FOLDER)
    numbers = tomllib.loads((ROOT / reproduce.FOLDER / "published.toml").read_text())
    for target in targets.values():
        names = {step.name for step in target.steps}
        assert len(names) == len(target.steps)
        for row in target.rows:
            assert row["step"] in names
            assert reproduce.published(row, numbers)
        for step in target.steps:
            words = shlex.split(step.command.format(python="python", mpirun="mpirun", data="D"))
            assert "<" not in step.command and "<" not in step.name
            files = [w for w in words if w.startswith(("inputs/", "analysis/"))]
            assert [w for w in files if not Path(ROOT, w).exists() and "smollm2" not in w] == []
    assert [row["input"] for row in gpu if not Path(ROOT, row["input"]).is_file()] == []
