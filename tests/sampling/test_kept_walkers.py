"""RUN.check.json: what --check found is what the run takes, of the same setting alone."""

import json
from dataclasses import replace

import pytest
from run_tools import LATTICE
from runs_in_progress import config_of

from omniinput_hpc.cli import run as launch
from omniinput_hpc.cli.common import to_toml
from omniinput_hpc.config import input_file
from omniinput_hpc.runfile.reader import open_run
from omniinput_hpc.sampling import auto_walkers, kept_walkers, trial
from omniinput_hpc.sampling.kept_walkers import Setting

AUTO = "sampler.walkers='auto'"


@pytest.fixture
def setting(tmp_path):
    return Setting(config_of(tmp_path, AUTO), "a model", ["cpu", "cpu"])


def test_a_number_is_kept_for_its_setting_alone(setting, tmp_path):
    assert kept_walkers.find_kept(setting) is None
    kept_walkers.keep(setting, 64)
    assert [path.name for path in tmp_path.iterdir()] == ["run.check.json"]
    assert kept_walkers.find_kept(setting) == 64
    longer = replace(setting, given=config_of(tmp_path, AUTO, "run.rounds=900"))
    assert kept_walkers.find_kept(longer) == 64
    y = input_file.parse(to_toml(setting.given) + '[[observables]]\nname = "distinct"', "y", [AUTO])
    for other in (
        replace(setting, fingerprint="another"),
        replace(setting, devices=["cpu"]),
        replace(setting, devices=["cuda:0", "cuda:0"]),
        replace(setting, given=config_of(tmp_path, AUTO, "run.threads=2")),
        replace(setting, given=config_of(tmp_path, AUTO, "sampler.steps=6")),
        replace(setting, given=y),
    ):
        assert kept_walkers.find_kept(other) is None


def test_the_number_of_a_rung_in_blocks_is_a_multiple_of_theirs(tmp_path):
    setting = Setting(config_of(tmp_path, AUTO, "sampler.blocks=3"), "a model", ["cpu", "cpu"])
    for number, kept in ((48, 48), (32, None), (64, None), (3 * 4096, 3 * 4096), (6 * 4096, None)):
        kept_walkers.keep(setting, number)
        assert kept_walkers.find_kept(setting) == kept


@pytest.mark.parametrize("text", [
    "", "{", "[]", "{}", '{"walkers": 64}', '{"walkers": "64", "found_for": "KEY"}',
    '{"walkers": 1e9, "found_for": "KEY"}', '{"walkers": true, "found_for": "KEY"}',
    '{"walkers": 1, "found_for": "KEY"}', '{"walkers": 100000000, "found_for": "KEY"}',
])  # fmt: skip
def test_a_file_that_says_something_else_is_passed_over(setting, text):
    kept_walkers.path_of(setting).write_text(text.replace("KEY", setting.key))
    assert kept_walkers.find_kept(setting) is None


@pytest.mark.slow
def test_the_run_takes_what_the_check_found(tmp_path, capfd, monkeypatch):
    monkeypatch.setattr(trial, "BATCH_SECONDS", 0.0)
    monkeypatch.setattr(auto_walkers, "most_walkers", lambda config: 32)
    text = LATTICE.replace("walkers = 8", 'walkers = "auto"')
    toml, output = tmp_path / "lattice.toml", tmp_path / "run.h5"
    toml.write_text(text.format(output=output))
    assert launch.main([str(toml), "--check"]) == 0
    assert "the run will use" in capfd.readouterr().err
    path = tmp_path / "run.check.json"
    content = json.loads(path.read_text())
    path.write_text(json.dumps(content | {"walkers": 48}))  # no number that doubling would find
    assert launch.main([str(toml)]) == 0
    said = capfd.readouterr().err
    assert f"48 per rung, one batch; 192 in all; found by --check ({path})" in said
    with open_run(output) as written:
        assert written.walkers == 48
