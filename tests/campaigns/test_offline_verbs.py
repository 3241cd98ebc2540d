"""The campaign of offline verbs in short: some verbs, of this environment, in processes."""

import sys

import pytest
from offline_verbs import COMMANDS, SHORT, campaign, wrong_after
from rules_file import write_rules
from run_files import write_run
from run_tools import LATTICE, environment, run

from omniinput_hpc.cli.omniinput import VERBS, WITHOUT_MPI


def test_every_offline_verb_is_called():
    offline = {n for n, v in VERBS.items() if not v.module or n in WITHOUT_MPI}
    assert set(COMMANDS) == offline - {"explore"}  # a server


@pytest.mark.slow
def test_some_verbs(tmp_path, capsys):
    write_rules(tmp_path)
    write_run(tmp_path / "good.h5", walkers=16)
    write_run(tmp_path / "again.h5", walkers=16, config_seed=2, seed=2)
    (tmp_path / "lattice.toml").write_text(LATTICE.format(output="lattice.h5"))
    assert run("lattice.toml", cwd=tmp_path).returncode == 0
    command = [sys.executable, "-m", "omniinput_hpc"]
    assert campaign(command, tmp_path, SHORT, environment()) == 0, capsys.readouterr().out


def test_what_is_wrong_is_found(tmp_path):
    assert wrong_after("reweight", tmp_path, 0) == ["0 results files"]
