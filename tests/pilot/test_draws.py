"""A run of independent draws that `init` proposes."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch
from language_folders import save_decoder
from run_tools import ROOT

from omniinput_hpc import models
from omniinput_hpc.cli import init
from omniinput_hpc.cli import run as launch
from omniinput_hpc.config import input_file
from omniinput_hpc.estimators.density.density import density_of_run
from omniinput_hpc.pilot import draws, measure
from omniinput_hpc.pilot.draws import Drawn
from omniinput_hpc.pilot.settings import Spread
from omniinput_hpc.runfile.reader import open_run

SPREAD = Spread.of(np.zeros(1), [np.zeros(1)])


def test_draws_in_place_of_chains(capsys, tmp_path, monkeypatch):
    """From init to a density of independent draws, against the enumerated one."""
    monkeypatch.chdir(tmp_path)
    toy = [str(ROOT / "inputs/models/toy"), "--length", "4", "--output", "my.toml"]
    assert init.main([*toy, "--seconds", "2"]) == 0
    assert "independent draws per beta" in capsys.readouterr().out
    config = input_file.load(tmp_path / "my.toml")
    assert config.sampler.method == "ancestral" and config.run.burn_in == 0
    assert config.beta_k[[0, -1]].tolist() == [0.0, 3.0]
    draws = config.run.rounds * config.samples_per_round
    assert 2048 <= draws < 2100 and config.run.rounds >= 44
    assert f"{draws:,} independent draws" in (tmp_path / "my.toml").read_text()
    assert launch.main(["my.toml"]) == 0
    with open_run(tmp_path / "runs/my.h5") as run:
        density = density_of_run(run.data)
    assert density.verdict.converged, density.verdict.reasons
    model = models.build(config, "cpu", models.preflight(config).get("folder"))
    x = np.indices((10,) * 4).reshape(4, -1).T
    exact_b, _ = np.histogram(model.output(torch.from_numpy(x)).numpy(), density.edges)
    firm_b = density.believed_b & (exact_b > 0)
    off_b = (density.log_g_b[firm_b] - np.log(exact_b[firm_b])) / density.log_g_error_b[firm_b]
    assert firm_b.sum() > 20 and 0.5 < np.sqrt(np.mean(off_b**2)) < 1.5


def test_a_plan_that_cannot_converge_says_so(capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    toy = [str(ROOT / "inputs/models/toy"), "--length", "4", "--method", "ancestral"]
    for hours, short in (("1e-6", True), ("0.1", False)):
        name = f"{short}.toml"
        assert init.main([*toy, "--seconds", "1", "--hours", hours, "--output", name]) == 0
        assert ("too short to count as converged: --hours" in capsys.readouterr().out) == short
        assert (input_file.load(tmp_path / name).run.rounds < 44) == short


def test_the_values_of_the_sites_are_kept(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    save_decoder("gpt2", tmp_path)
    given = ["--length", "4", "--method", "ancestral", "--set", "space.allowed=tokenizer"]
    assert init.main([str(tmp_path), *given, "--seconds", "1", "--output", "my.toml"]) == 0
    assert input_file.load(tmp_path / "my.toml").allowed == "tokenizer"


def test_draws_are_best_if_they_are_worth_much_or_the_model_is_large():
    small, large = (SimpleNamespace(model=SimpleNamespace(n_weights=n)) for n in (10**7, 10**8))
    even, uneven = (Drawn(SPREAD, 0.01, worth) for worth in (0.2, 0.02))
    assert even.are_best(small, None) and not uneven.are_best(small, None)
    assert uneven.are_best(large, None) and uneven.are_best(small, "ancestral")


def test_uneven_draws_are_more_draws():
    """Draws worth a tenth of `EVEN` tell as much as ten times fewer."""
    x = np.linspace(0.0, 3.0, 64)
    spread = Spread.of(np.array([0.0, 3.0]), [x + 2.0, x])
    config = SimpleNamespace(model_dump=lambda **_: {"model": {}})
    found = [
        draws.propose(SimpleNamespace(config=config), Drawn(spread, 1e-6, worth), 0.1, None)
        for worth in (0.2, draws.EVEN, draws.EVEN / 10)
    ]
    numbers = [tree["sampler"]["walkers"] * length.moves for tree, length, _ in found]
    assert numbers == pytest.approx([2048, 2048, 20480], rel=0.05)
    assert [seen.error for *_, seen in found] == pytest.approx([0.1] * 3, rel=0.05)


@pytest.mark.parametrize(("method", "device"), [("parallel-tempering", "cpu"), (None, "cuda")])
def test_chains_are_taken_if_asked_for_and_on_a_gpu(method, device):
    config = SimpleNamespace(constrained=False, output=None, law=None)
    built = SimpleNamespace(model_beta=3.0, device=device, config=config)
    assert draws.tried(built, method, np.zeros(8), 1.0, lambda: None) is None


def test_what_a_draw_is_worth():
    """Exact draws: 1; weights exp(e) with normal e of variance 1: exp(-1) (log-normal moments)."""
    random = np.random.default_rng(1)
    z_n, e_n = random.normal(size=(2, 200_000))
    beta_i = np.array([2.0])
    assert measure.worth(beta_i, z_n, -2 * z_n[:, None] + 5) == pytest.approx(1)
    worth = measure.worth(beta_i, z_n, (-2 * z_n + e_n)[:, None])
    assert worth == pytest.approx(np.exp(-1), rel=0.05)
    two = measure.worth(np.array([2.0, 2.0]), z_n, (-2 * z_n + e_n)[:, None].repeat(2, axis=1))
    assert two == pytest.approx(2 * worth)  # two rungs of the same draws: twice as many
