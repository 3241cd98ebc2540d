"""Every file of inputs/: it can start here, or says what to fetch; fine bins, and its anchors."""

import re
from contextlib import nullcontext

import numpy as np
import pytest
from run_tools import ROOT

from omniinput_hpc.cli import run
from omniinput_hpc.config import input_file
from omniinput_hpc.errors import UserError
from omniinput_hpc.sampling import shapes, trial

FILES = sorted((ROOT / "inputs").glob("*.toml"))
TO_FETCH = re.compile(r"hf download \S+ --include|python -m omniinput_hpc\.zoo\.\w+")


@pytest.fixture(autouse=True)
def in_root(monkeypatch):
    monkeypatch.chdir(ROOT)


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_every_input_says_what_it_costs(file):
    """And whether that was seen, simulated or estimated."""
    header = re.match(r"(#.*\n)+", file.read_text(encoding="utf-8")).group()
    assert len(re.findall(r"^# Cost: (seen|simulated|estimated|not known)\b", header, re.M)) == 1


LIKE_ANOTHER = {
    "english-25-cold", "mlp-mnist", "cnn-aug-mnist", "mlp-aug-mnist", "mlp-gen-mnist",
    "res-aug-mnist", "res-gen-mnist", "toy-worse", "toy-wl", "digits-cnn", "digits-cnn-aug",
    "digits-mlp-aug", "digits-mlp-gen", "digits-res-gen",
}  # fmt: skip
"""Files that are checked with --all only: another has the same kinds of model and sampler."""


def one_of_a_kind(file):
    return pytest.param(file, marks=pytest.mark.release if file.stem in LIKE_ANOTHER else ())


@pytest.mark.slow
@pytest.mark.parametrize("file", map(one_of_a_kind, FILES), ids=lambda file: file.stem)
def test_check_passes_or_says_what_to_fetch(file, tmp_path, capfd, monkeypatch):
    """With few walkers and moves, to be quick."""
    monkeypatch.setattr(trial, "BATCH_SECONDS", 0.0)
    few = "sampler.walkers=16", "sampler.steps=2", "sampler.exchanges=1", "samples.every=1"
    keys = f"run.output={tmp_path / 'run.h5'}", *few
    code = run.main([str(file), "--check", *(word for key in keys for word in ("--set", key))])
    text = "".join(capfd.readouterr())
    config = input_file.load(file, [])
    here = config.model.path.startswith("inputs/") and (ROOT / config.model.path).is_dir()
    assert code == (0 if here else 2) or (code == 0 and "/" in config.model.path), text
    if code == 2:
        assert TO_FETCH.search(text), text
        assert "Traceback" not in text
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_bins_are_fine_and_anchors_on_the_ladder(file):
    config = input_file.load(file, [])
    beta_k = config.beta_k[np.isfinite(config.beta_k)]
    if config.sampler.method != "ancestral":  # whose draws carry their weights
        assert np.abs(beta_k).max(initial=0.0) * config.bins.width < 0.25
    if config.sampler.method == "parallel-tempering":
        own = config.model.kind == "causal-lm" and config.kernel.name == "lm-conditional"
        assert 0.0 in beta_k or own
        if own:
            assert config.model.length - 1 in beta_k
    assert config.run.output == f"runs/{file.stem}.h5"
    assert file.read_text().startswith("# ")


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_ladders_beyond_m_look_ahead(file):
    """The models would get stuck there, where the papers score."""
    config = input_file.load(file, [])
    if config.model.kind == "causal-lm" and config.sampler.swaps:
        m = config.model.length - (not config.model.prefix)
        ahead = config.with_look_ahead(config.model.length, m).kernel.learns_ahead
        assert ahead == config.goes_beyond(m)
        assert ahead or not file.stem.startswith(("gpt2", "olmo", "llama"))


def test_every_row_of_the_papers_has_its_file():
    names = {file.stem for file in FILES}
    assert names >= {
        "toy", "gpt2-small-25", "gpt2-medium-25", "gpt2-small-100", "gpt2-medium-100", "olmo1b",
        "olmo7b", "olmo7b-sft", "olmo7b-instruct", "llama1-7b", "llama2-7b", "distilbert-66",
        "distilbert-10", "cnn-mnist", "mlp-mnist", "res-aug-mnist", "mlp-aug-mnist",
        "cnn-aug-mnist", "res-gen-mnist", "mlp-gen-mnist", "cifar10-binary", "cifar10", "cifar100",
        "english-25", "digits-mlp",
    }  # fmt: skip
    olmo = input_file.load(ROOT / "inputs/olmo7b.toml", [])
    assert olmo.model.path == "allenai/OLMo-7B-hf"


@pytest.mark.parametrize(
    "name", ["olmo1b", "olmo7b", "olmo7b-sft", "olmo7b-instruct", "llama1-7b", "llama2-7b"]
)
def test_large_models_have_the_same_work_for_64_gpus_and_say_what_it_costs(name):
    path = ROOT / f"inputs/{name}.toml"
    config = input_file.load(path, [])
    s, n_rungs = config.sampler, len(config.beta_k)
    assert (n_rungs, s.blocks, s.block_walkers) == (32, 2, 256)
    rounds = config.run.rounds + config.run.burn_in
    text = path.read_text(encoding="utf-8")
    assert f"{rounds * s.moves_per_round * n_rungs * s.blocks:,} moves of 256 inputs" in text
    for n in (1, 8, 64):
        assert n_rungs * s.blocks % n == 0
        assert re.search(rf"^#.* {n} GPUs?: (mpirun -n {n} )?python -m omniinput_hpc", text, re.M)
        assert re.search(rf"^#.*\b(h|min) on {n}\b", text, re.M)


def test_the_job_scripts_know_how_many_ranks_an_input_has():
    left = {*FILES}
    rows = re.findall(
        r"^#     (\S.*?)  +up to (\d+) ", (ROOT / "jobscripts/run.sbatch").read_text(), re.M
    )
    assert len(rows) > 5
    for names, most in rows:
        globs = [f"{name}.toml" for name in names.removeprefix("other ").split(", ")]
        files = {file for file in left if any(file.match(glob) for glob in globs)}
        assert {input_file.load(file).n_shares for file in files} == {int(most)}, names
        left -= files
    for file in FILES:
        config = input_file.load(file)
        for n in (1, 2, 4):
            fits = config.n_shares % n == 0
            with nullcontext() if fits else pytest.raises(UserError, match="ranks"):
                shapes.check_ranks(config, n)


def test_the_preset_of_the_papers_sampler_is_what_they_describe():
    config = input_file.load(ROOT / "inputs/presets/omniinput-paper.toml")
    assert config.sampler.steps == 1000 and config.sampler.exchanges == 1
    assert config.run.burn_in == 0 and not config.ladder.anchors and min(config.beta_k) > 0
    assert 150 <= len(config.bins.edges) - 1 <= 600
