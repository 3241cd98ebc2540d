"""Fingerprints that are taken while a model is loaded."""

import threading

import pytest
from language_folders import save_decoder

from omniinput_hpc import models
from omniinput_hpc.cli import run
from omniinput_hpc.config import input_file
from omniinput_hpc.errors import UserError
from omniinput_hpc.models import table
from omniinput_hpc.models.language import causal_lm, hf_folder
from omniinput_hpc.runfile.reader import open_run

INPUT = """
[run]
output = "{folder}/run.h5"
seed = 1
rounds = 1
[model]
kind = "causal-lm"
path = "{folder}"
length = 5
[sampler]
walkers = 4
steps = 2
exchanges = 1
[ladder]
betas = [0.0, 4.0]
[bins]
lower = 0.0
upper = 20.0
width = 0.05
[samples]
every = 2
"""


def test_what_goes_wrong_is_raised_where_it_is_asked_for(monkeypatch):
    def refuse(config, about):
        raise UserError("x cannot be read")

    monkeypatch.setattr(table, "_fingerprint", refuse)
    pending = models.pending_fingerprint(None, {})
    for _ in range(2):
        with pytest.raises(UserError, match="x cannot be read"):
            pending.result()


@pytest.fixture
def loaded_first(monkeypatch):
    """Let hashing wait until a model is being loaded; return whether it did in time, each time."""
    loading, waited = threading.Event(), []
    take, build = hf_folder.fingerprint, causal_lm.build

    def late(files):
        waited.append(loading.wait(200))
        return take(files)

    def told(options, device, **more):
        loading.set()
        return build(options, device, **more)

    monkeypatch.setattr(hf_folder, "fingerprint", late)
    monkeypatch.setattr(causal_lm, "build", told)
    return waited


def test_a_model_is_loaded_while_its_files_are_hashed(tmp_path, loaded_first):
    """A new run's; were they hashed first, they would wait in vain."""
    save_decoder("gpt2", tmp_path)
    (tmp_path / "a.toml").write_text(INPUT.format(folder=tmp_path))
    assert run.main([str(tmp_path / "a.toml")]) == 0
    assert loaded_first == [True]
    files = [tmp_path / "config.json", tmp_path / "model.safetensors"]
    with open_run(tmp_path / "run.h5") as made:
        assert made.fingerprint == hf_folder.fingerprint(files)


def test_a_run_of_a_changed_model_is_refused_before_it_is_loaded(tmp_path, monkeypatch, capfd):
    save_decoder("gpt2", tmp_path)
    (tmp_path / "a.toml").write_text(INPUT.format(folder=tmp_path))
    assert run.main([str(tmp_path / "a.toml")]) == 0
    save_decoder("gpt2", tmp_path, scale=2.0)
    monkeypatch.setattr(causal_lm, "build", None)
    assert run.main([str(tmp_path / "a.toml"), "--set", "run.rounds=2"]) == 2
    assert "the model's files or options have changed" in "".join(capfd.readouterr())


def test_options_that_change_z_are_in_the_fingerprint(tmp_path):
    """Not those that have their defaults: older runs keep their fingerprints."""
    save_decoder("gpt2", tmp_path)
    (tmp_path / "input.toml").write_text(INPUT.format(folder=tmp_path))
    found = [
        models.preflight(input_file.load(tmp_path / "input.toml", [f"model.{key}" for key in keys]))
        for keys in ([], ["prefix=[1]"], ["prefix=[2]"], ["dtype=bfloat16"])
    ]
    texts = [about["fingerprint"] for about in found]
    assert len(set(texts)) == 4 and " " not in texts[0]
    assert all(text.startswith(texts[0]) for text in texts)
