"""README is one page, and its input file and the tutorial's own model run as printed."""

import re
import subprocess
import sys

import pytest
from run_tools import ROOT, environment

from omniinput_hpc.cli import run
from omniinput_hpc.runfile.reader import open_run

README = (ROOT / "README.md").read_text(encoding="utf-8")
TUTORIAL = (ROOT / "docs/tutorial.md").read_text(encoding="utf-8")


def block(text, language, after):
    return re.search(rf"```{language}\n(.*?)```", text[text.index(after) :], re.DOTALL).group(1)


def test_it_is_one_page():
    lines = README.splitlines()
    assert len(lines) <= 180
    words = len(re.findall(r"\w+", README))
    assert words < 2500, words


def test_a_model_of_your_own_passes_the_check_as_printed(tmp_path, monkeypatch, capfd):
    """With the English model in the place of one from the hub."""
    monkeypatch.chdir(ROOT)
    toml = tmp_path / "my.toml"
    toml.write_text(block(README, "toml", "## A Hugging Face model of your own"))
    words = [f"run.output={tmp_path / 'my.h5'}", "model.path=inputs/models/english",
             "sampler.walkers=16"]  # fmt: skip
    code = run.main([str(toml), "--check", *(w for word in words for w in ("--set", word))])
    text = "".join(capfd.readouterr())
    assert code == 0, text
    assert "16 rungs" in text and "beta 0 to 24" in text


@pytest.mark.slow
def test_the_model_of_the_tutorial_runs_as_printed(tmp_path):
    code = block(TUTORIAL, "python", "### A model that is not from Hugging Face")
    assert len(code.strip().splitlines()) <= 15
    (tmp_path / "my_model.py").write_text(code)
    toml = block(TUTORIAL, "toml", "### A model that is not from Hugging Face")
    (tmp_path / "my_model.toml").write_text(toml)
    done = subprocess.run(
        [sys.executable, "-m", "omniinput_hpc", "my_model.toml"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        env=environment(),
    )
    assert done.returncode == 0, done.stderr
    with open_run(tmp_path / "runs/my_model.h5") as made:
        assert made.rounds == 20
        assert made.outside_k2().sum() == 0
