"""omniinput example: an input file and its model, in a folder without a checkout."""

import pytest
from run_tools import ROOT, run

from omniinput_hpc.cli.omniinput import main
from omniinput_hpc.cli.verbs.example import EXAMPLES, copy
from omniinput_hpc.errors import UserError
from omniinput_hpc.results.tables import read_table

SHORT = ["run.rounds=3", "run.burn_in=1", "sampler.walkers=16"]


@pytest.mark.slow
def test_the_toy_ends_in_a_density_without_a_checkout(tmp_path, monkeypatch, capsys):
    """By the commands that it prints, on a shorter run."""
    monkeypatch.chdir(tmp_path)
    assert main(["example", "toy"]) == 0
    lines = capsys.readouterr().out.splitlines()
    run_words, density_words = (line.partition(": omniinput ")[2].split() for line in lines[-2:])
    done = run(*run_words, *(word for key in SHORT for word in ("--set", key)), cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert main(density_words) == 0
    _, columns = read_table(tmp_path / "runs/toy.density.csv", ["log_g"])
    assert len(columns["log_g"]) > 10


@pytest.mark.parametrize("name", [folder.name for folder in EXAMPLES.iterdir()])
def test_its_files_are_those_of_the_repository(name, tmp_path):
    paths = copy(EXAMPLES / name, tmp_path)
    assert tmp_path / f"inputs/{name}.toml" in paths
    for path in paths:
        assert path.read_bytes() == (ROOT / path.relative_to(tmp_path)).read_bytes()


def test_files_that_are_there_stay(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(["example", "toy"]) == main(["example", "toy"]) == 0
    model = tmp_path / "inputs/models/toy/model.safetensors"
    model.unlink()
    (tmp_path / "inputs/toy.toml").write_text("# mine\n")
    assert main(["example", "toy"]) == 2
    assert "inputs/toy.toml exists and is another file" in capsys.readouterr().err
    assert not model.exists()
    with pytest.raises(UserError, match="another file"):
        copy(EXAMPLES / "toy", tmp_path)
