"""`omniinput init MODEL`: a file that works unedited, or one sentence and no file."""

import json
import re

import numpy as np
import pytest
import torch
from image_models import tiny_module
from language_folders import save_decoder, with_beginning
from run_tools import ROOT
from runs_in_progress import WORLD
from safetensors.torch import save_file

from omniinput_hpc.cli import init
from omniinput_hpc.cli import run as launch
from omniinput_hpc.config import input_file
from omniinput_hpc.estimators.density.density import density_of_run, log_total
from omniinput_hpc.models.images import classifier
from omniinput_hpc.pilot import draws, rehearse
from omniinput_hpc.pilot.rehearse import Seen
from omniinput_hpc.pilot.settings import Rehearsal, Spread, typical_error
from omniinput_hpc.runfile.reader import open_run
from omniinput_zoo.exact import Lattice

FACTORY = "omniinput_hpc.zoo.exact:lattice"


def call(capfd, *arguments):
    """Run init in this process; return its exit code and what it printed."""
    code = init.main([str(a) for a in arguments])
    out, err = capfd.readouterr()
    return code, out + err


@pytest.mark.slow
def test_a_python_models_file_runs_and_is_right(capfd, tmp_path, monkeypatch):
    """From init to a converged density whose errors are within the aim, against the exact one."""
    monkeypatch.chdir(tmp_path)
    code, text = call(capfd, FACTORY, "--seconds", "4", "--errors", "0.3", "--output", "my.toml")
    assert code == 0, text
    assert "my.toml is written" in text and "Cost, estimated by the pilot:" in text
    config = input_file.load(tmp_path / "my.toml")
    assert 0.0 in config.beta_k and config.ladder.tune and len(config.beta_k) % 4 == 0
    assert np.abs(config.beta_k).max() * config.bins.width <= 0.25
    assert config.analysis.side == "high" and config.run.output == "runs/my.h5"
    assert [p.name for p in tmp_path.iterdir()] == ["my.toml"]  # the pilot's run is gone
    assert launch.main(["my.toml"]) == 0
    with open_run(tmp_path / "runs/my.h5") as run:
        density = density_of_run(run.data)
        assert run.outside_k2().sum() == 0
    assert density.absolute and density.verdict.converged, density.verdict.reasons
    assert typical_error(density.log_g_error_b, density.count_b) < 0.45
    log_g_b = Lattice(6, 4, 0.25).log_g(density.edges)
    firm_b = density.believed_b & (density.log_g_error_b < 0.45)
    off_b = (density.log_g_b[firm_b] - log_g_b[firm_b]) / density.log_g_error_b[firm_b]
    assert firm_b.sum() > 5 and np.sqrt(np.mean(off_b**2)) < 2.5


@pytest.mark.slow
@pytest.mark.parametrize(("name", "kernel"), [
    ("toy --method parallel-tempering", "lm-conditional"), ("digits-mlp", "gibbs-with-gradients"),
    pytest.param("digits-res-aug", "gibbs-with-gradients", marks=pytest.mark.release),
])  # fmt: skip
def test_a_models_folder(capfd, tmp_path, monkeypatch, name, kernel):
    monkeypatch.chdir(tmp_path)
    name, *more = name.split()
    path = ROOT / "inputs/models" / name
    code, text = call(capfd, path, *more, "--seconds", "1", "--hours", "0.5")
    assert code == 0, text
    config = input_file.load(tmp_path / f"{name}.toml")
    assert config.kernel.name == kernel and 0.0 in config.beta_k
    assert config.bins.width * np.abs(config.beta_k).max() <= 0.25
    if name == "toy":
        assert config.beta_k[-1] == 7.0 and 0.0 <= config.bins.lower < 1.8
        assert (
            config.analysis.side == "low" and "beta = m = 7" in (tmp_path / "toy.toml").read_text()
        )
    assert re.search(r"rounds = \d+ +# for 0.5 h", (tmp_path / f"{name}.toml").read_text())


@pytest.mark.slow
def test_a_network_that_is_sure_of_noise_gets_draws_at_beta_0(capfd, tmp_path, monkeypatch):
    """Their share of p > 0.9 beside the exact one, of all 2^20 pictures."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(draws, "DRAWS_AT_ZERO", 40_000)
    weights = tiny_module(n_classes=2).state_dict()
    weights["3.weight"] *= 5
    save_file(weights, "own.safetensors")
    told = ("factory='image_models:tiny_module'", "options={n_classes=2}", "shape=[4,5]")
    told = [f"model.{one}" for one in (*told, "n_values=2", "mean=[0.5]", "std=[0.5]")]
    given = ["own.safetensors", *(part for one in told for part in ("--set", one))]
    code, text = call(capfd, *given, "--seconds", "1", "--output", "my.toml")
    assert code == 0 and "Chosen: beta = 0 alone, " in text, text
    config = input_file.load(tmp_path / "my.toml")
    assert config.beta_k.tolist() == [0.0] and config.n_shares == 4 and config.run.burn_in == 0
    assert launch.main(["my.toml"]) == 0
    with open_run(tmp_path / "runs/my.h5") as run:
        density = density_of_run(run.data)
    assert density.verdict.converged, density.verdict.reasons
    x = torch.cartesian_prod(*20 * [torch.tensor([0, 1])])
    table = config.model.model_copy(update={"path": str(tmp_path / "own.safetensors")})
    z = torch.cat([classifier.build(table, "cpu").output(part) for part in x.split(1 << 14)])
    total, low, _ = log_total(density, np.log(0.9), 0.0)
    share = float((z >= low).double().mean())
    found = np.exp(float(total.value) - density.log_measure)
    assert 0.01 < share < 0.9 and abs(found - share) < 4 * np.sqrt(share * (1 - share) / 40_000)
    code, text = call(capfd, *given, "--seconds", "1", "--hours", "0.01", "--output", "long.toml")
    assert code == 0 and len(input_file.load(tmp_path / "long.toml").beta_k) > 1


NETWORK = """
import torch

class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()

def make(device):
    return torch.nn.Linear(4, 2)

def other(device):
    return object()
"""


def test_a_bare_torch_network_is_sent_to_the_way_by_its_weights(capfd, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "bare_network_of_a_test.py").write_text(NETWORK)
    for name, hinted in (("make", True), ("Net", True), ("other", False)):
        code, text = call(capfd, f"bare_network_of_a_test:{name}", "--output", "my.toml")
        assert code == 2 and not (tmp_path / "my.toml").exists()
        assert ("WEIGHTS.safetensors --set model.factory=" in text) == hinted, text


def test_bins_hold_what_the_last_rehearsal_saw(capfd, tmp_path, monkeypatch):
    """The ladder of the first rehearsal is kept if all rungs swap, but not its bins."""
    monkeypatch.chdir(tmp_path)
    highest = iter([9.0, 99.0])

    def wider(world, built, config, *_):
        k = len(config.beta_k)
        spread = Spread(config.beta_k, np.zeros(k), np.ones(k), -9.0, next(highest))
        rehearsal = Rehearsal(error=0.1, moves=100, tau=1.0, seconds=0.01, trip=10.0)
        return Seen(rehearsal, spread, np.full(k - 1, 0.3), "", 0.5)

    monkeypatch.setattr(rehearse, "run", wider)
    code, text = call(capfd, FACTORY, "--seconds", "2", "--output", "my.toml")
    assert code == 0, text
    assert input_file.load(tmp_path / "my.toml").bins.upper > 99


def test_a_ladder_for_one_end(capfd, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    code, text = call(capfd, FACTORY, "--seconds", "3", "--end", "high", "--output", "my.toml")
    assert code == 0, text
    betas = input_file.load(tmp_path / "my.toml").beta_k
    assert max(betas) == 0.0 and min(betas) < -0.5


def test_only_a_default_length_leaves_room_for_what_begins_texts(tmp_path):
    with_beginning(save_decoder("llama", tmp_path), "<s>")
    settings = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps(settings | {"max_position_embeddings": 12}))
    for options, length in (
        ([], 11), (["--length", "10"], 10), (["--set", "model.length=10"], 10),
    ):  # fmt: skip
        args = init._arguments(WORLD, [str(tmp_path), *options], init.PROGRAM)
        config, _ = init._with_beginning(init._first_config(args), args)
        assert config.model.prefix == "<s>" and config.model.length == length


BAD = {
    "there already": ([FACTORY, "--output", "there.toml"], "there.toml exists"),
    "another ending": ([FACTORY, "--output", "my.txt"], "must end with .toml"),
    "no folder": ([FACTORY, "--output", "a/b.toml"], "the folder a does not exist"),
    "no model": (["nowhere/x"], "no such folder"),
    "no module": (["nowhere_at_all:make"], "no module nowhere_at_all"),
    "no function": (["omniinput_hpc.zoo.exact:nothing"], "has no function nothing"),
    "a key of its own": ([FACTORY, "--set", "bins.lower=0"], r"init accepts keys of \[model\]"),
    "the rounds": ([FACTORY, "--set", "run.rounds=9"], r"init accepts keys of \[model\]"),
    "an unknown key": ([FACTORY, "--set", "model.lenght=3"], "model.lenght: unknown key"),
    "two aims": ([FACTORY, "--errors", "0.1", "--hours", "1"], "not allowed with"),
    "no errors": ([FACTORY, "--errors", "0"], "above 0"),
    "an end": (
        [str(ROOT / "inputs/models/toy"), "--length", "4", "--end", "low"],
        "has only one end",
    ),
    "the one end of draws": (
        [str(ROOT / "inputs/models/toy"), "--length", "4", "--method", "ancestral", "--end", "low"],
        "has only one end",
    ),
    "draws of no texts": ([FACTORY, "--method", "ancestral"], "draws need a language model"),
    "a length": ([FACTORY, "--length", "5"], "--length is for texts"),
    "one output": (["init_models:flat"], "z = 1 for all of"),
    "no function of x": (["init_models:noisy"], "is not a function"),
}

INIT_MODELS = """
import torch
class Flat:
    n_sites, n_values = 4, 3
    def output(self, x):
        return torch.ones(len(x))
class Noisy(Flat):
    def output(self, x):
        return torch.rand(len(x))
def flat(device): return Flat()
def noisy(device): return Noisy()
"""


@pytest.mark.parametrize("name", BAD)
def test_what_cannot_be_is_one_sentence_and_no_file(capfd, tmp_path, monkeypatch, name):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "there.toml").write_text("mine")
    (tmp_path / "init_models.py").write_text(INIT_MODELS)
    arguments, words = BAD[name]
    code, text = call(capfd, *arguments)
    assert code == 2 and re.search(words, text), text
    assert "Traceback" not in text
    assert {p.name for p in tmp_path.glob("*.toml")} == {"there.toml"}
    assert (tmp_path / "there.toml").read_text() == "mine"
