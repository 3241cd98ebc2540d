"""README is one page, and its input file and the tutorial's own model run as printed."""

import re
import subprocess
import sys

import pytest
from run_tools import ROOT, environment

from omniinput_hpc.cli import run
from omniinput_hpc.config import input_file
from omniinput_hpc.results.tables import read_table
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


def ranges_of(text):
    """Return width and range of a text's examples of choose.py on the Toy's run."""
    words = r"runs/toy\.h5 (?:--per-bin \d+ )?--width (\S+) --range (\S+) ([\d.]+)"
    return [tuple(map(float, found)) for found in re.findall(words, text)]


def test_inputs_chosen_from_the_toy_make_a_curve():
    """The examples' bins are whole bins of the run, and two or more of them hold right inputs."""
    unit = input_file.load(ROOT / "inputs/toy.toml", []).bins.width
    _, exact = read_table(ROOT / "inputs/exact/toy.csv", ["z_lower", "r"])
    right = exact["z_lower"][exact["r"] > 0.5]
    names = ("README.md", "docs/tutorial.md", "docs/scoring.md", "analysis/choose.py")
    for name in names:
        found = ranges_of((ROOT / name).read_text(encoding="utf-8"))
        assert found, name
        for width, low, high in found:
            for size in (width, low, high - low):
                assert abs(size / unit - round(size / unit)) < 1e-6, name
            bins = {int((z - low + 1e-9) // width) for z in right if low <= z + 1e-9 < high}
            assert len(bins) >= 2, name
