"""The table [analysis]: free on resume, and what the job script takes its options from."""

import os
import shutil
import subprocess
import sys

import pytest
from configs import config_with
from pydantic import TypeAdapter
from run_tools import LATTICE, ROOT, contents, environment

from omniinput_hpc.cli.run import main
from omniinput_hpc.config import input_file, stored
from omniinput_hpc.config.models import Model
from omniinput_hpc.models.table import KINDS, side_of, with_side
from omniinput_hpc.runfile.reader import open_run

LM = {"kind": "causal-lm", "path": "p", "length": 8}
IMAGES = {"kind": "image-classifier", "path": "p"}
TEXTS = {"kind": "sequence-classifier", "path": "p", "length": 8, "target": 1}
SIDES = [
    (LM, "low"),
    ({"kind": "masked-lm", "path": "p", "length": 8}, "low"),
    ({"kind": "potts", "path": "p"}, "low"),
    (IMAGES, "high"),
    *[({**IMAGES, "target": t}, "high") for t in ("log-softmax", "log-likelihood")],
    ({**IMAGES, "sign": -1}, "low"),
    *[({**TEXTS, "output": o}, "high") for o in ("logit", "difference", "log-softmax")],
    ({**TEXTS, "output": "log-softmax", "sign": -1}, "low"),
]


@pytest.mark.slow
def test_another_analysis_resumes_with_the_same_bytes(tmp_path):
    """A run that began without the table goes on with one, then with another, as if without."""
    toml = tmp_path / "a.toml"
    toml.write_text(LATTICE.format(output=tmp_path / "without.h5"))
    assert main([str(toml)]) == 0
    resumed = (str(toml), "--set", f"run.output={tmp_path / 'with.h5'}")
    assert main([*resumed, "--set", "run.rounds=2"]) == 0
    for words in (["analysis.rule=a:b", "run.rounds=4"], ["analysis.side=high", "run.rounds=5"]):
        assert main([*resumed, *(w for word in words for w in ("--set", word))]) == 0
    assert contents(tmp_path / "with.h5") == contents(tmp_path / "without.h5")
    with open_run(tmp_path / "with.h5") as made:
        assert made.config.analysis.side == "high"


def test_the_job_script_reads_keys_and_no_comments():
    text = (ROOT / "jobscripts/local.sh").read_text()
    assert "sed " not in text and "# rule" not in text
    for file in (ROOT / "inputs").glob("*.toml"):
        assert "# rule" not in file.read_text() and "# side" not in file.read_text()
    subprocess.run(["bash", "-n", str(ROOT / "jobscripts/local.sh")], check=True)


SET_UP = """
setup() {{ python={folder}/python mpirun=(true); }}
"""
PYTHON = """#!/usr/bin/env bash
[[ $1 != - ]] || exec {python} "$@"  # of the commands only the lines are wanted
"""


@pytest.mark.slow
def test_the_job_script_shows_the_exact_values_of_what_was_run(tmp_path):
    """It starts a rank per core, up to 4, as the rungs allow, whatever OMP_NUM_THREADS is."""
    shutil.copy(ROOT / "jobscripts/local.sh", tmp_path)
    (tmp_path / "setup.sh").write_text(SET_UP.format(folder=tmp_path))
    (tmp_path / "python").write_text(PYTHON.format(python=sys.executable))
    (tmp_path / "nproc").write_text("#!/bin/sh\necho ${OMP_NUM_THREADS:-8}\n")
    for name in ("python", "nproc"):
        (tmp_path / name).chmod(0o755)
    (tmp_path / "exact").mkdir()
    (tmp_path / "exact/a.csv").touch()
    (tmp_path / "a.toml").write_text(LATTICE.format(output=tmp_path / "a.h5"))
    env = {**environment(), "PATH": f"{tmp_path}:{os.environ['PATH']}", "OMP_NUM_THREADS": "1"}
    for words, rule, shown, ranks in (
        ([], "", True, 4),
        (["--set", "ladder.betas=[-1.0, 0.0, 1.0, 2.0, 3.0, 4.0]"], "", True, 2),
        (["--set", "ladder.betas=[0.0, 1.0, 2.0]"], "", True, 1),
        (["--set", "bins.width=0.125"], "", False, 4),
        ([], "toy_rules:begins_with_zero", False, 4),
    ):
        command = ["bash", "local.sh", "a.toml", *words]
        done = subprocess.run(
            command, capture_output=True, text=True, cwd=tmp_path, env={**env, "RULE": rule}
        )
        assert done.returncode == 0, done.stderr
        assert f"+ true -n {ranks} " in done.stdout
        assert ("--exact exact/a.csv" in done.stdout.replace("./", "")) == shown
        assert ("a.csv is not shown, since" in done.stdout) != shown
    command = ["bash", "local.sh", "a.toml", "--set", "analysis.test_data=none.csv"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, env=env)
    assert (done.returncode, done.stdout) == (2, ""), "refused before the run"
    assert "analysis.test_data = none.csv" in done.stderr


@pytest.mark.parametrize(("model", "side"), SIDES)
def test_a_kind_and_its_options_say_the_confident_side(model, side):
    """Of the table as it is stored, too, with all its defaults; --side and the key come first."""
    for table in (model, TypeAdapter(Model).validate_python(model).model_dump(exclude_none=True)):
        found = side_of(config_with(model=table))
        assert (found.end, found.assumed) == (side, False)
        assert f"side: {side}" in str(found) and model["kind"] in str(found)
    other = "high" if side == "low" else "low"
    said = side_of(config_with(model=model, analysis={"side": other}))
    assert said.end == other and "[analysis] side" in said.why
    given = side_of(config_with(model=model, analysis={"side": other}), side)
    assert given.end == side and "--side" in given.why


def test_of_a_model_of_ones_own_the_side_is_assumed_and_said():
    for model in ({"kind": "python", "factory": "a:b"}, {"kind": "not known"}, {}):
        found = side_of(config_with(model=model))
        assert (found.end, found.assumed) == ("low", True) and "assumed" in str(found)
    assert set(KINDS) == {model["kind"] for model, _ in SIDES} | {"python"}


def test_the_side_is_written_into_the_stored_input(tmp_path):
    """By the kind where the input says nothing; a model of one's own gets none written for it."""
    for name, side in (("toy", "low"), ("digits-mlp", "high"), ("cnn-mnist", "high")):
        given = input_file.load(ROOT / f"inputs/{name}.toml")
        written = with_side(given)
        assert written.analysis.side == side
        assert with_side(written) is written
        if given.analysis is not None:
            assert written.analysis.rule == given.analysis.rule
    said = input_file.load(ROOT / "inputs/cnn-mnist.toml", ["analysis.side=low"])
    assert with_side(said) is said
    lattice = input_file.parse(LATTICE.format(output=tmp_path / "a.h5"), "lattice")
    assert with_side(lattice) is lattice


@pytest.mark.parametrize(
    "line", ['[analysis]\nside = "left"', "[analysis]\nside = [1]", "analysis = 3"]
)
def test_a_stored_side_that_is_none_is_refused(line):
    text = f'{line}\n[run]\noutput = "a.h5"\n' if line.startswith("analysis") else (
        f'[run]\noutput = "a.h5"\n{line}\n'
    )  # fmt: skip
    with pytest.raises(ValueError, match="analysis"):
        stored.parse(text)
