"""Other outputs under a law: the probabilities of bins are those that enumeration gives."""

import numpy as np
import pytest
import torch
from language_folders import save_first_layer
from output_cases import all_inputs, config_of
from run_tools import ROOT
from transformers import AutoModelForCausalLM

from omniinput_hpc import models
from omniinput_hpc.cli import run as launch
from omniinput_hpc.estimators.density.density import density_of_run, log_mean_exp
from omniinput_hpc.histogram import bin_of
from omniinput_hpc.runfile.reader import open_run

INPUT = """
[run]
output = "{output}"
seed = 7
rounds = 24
burn_in = 4
[model]
kind = "causal-lm"
path = "{toy}"
length = 4
[law]
{law}
[output]
{table}
[sampler]
walkers = 32
steps = 5
exchanges = 2
[ladder]
betas = {betas}
[kernel]
name = "{kernel}"
[bins]
lower = {lower}
upper = {upper}
width = {width}
[samples]
every = 5
"""
TOY, WORSE = (ROOT / "inputs/models" / name for name in ("toy", "toy-worse"))


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    return [
        save_first_layer(folder, tmp_path_factory.mktemp(folder.name)) for folder in (TOY, WORSE)
    ]


@torch.no_grad()
def log_p(folder, tokens):
    """Return transformers' own ln P, float64 [n, T, V], of the tokens after each position."""
    lm = AutoModelForCausalLM.from_pretrained(folder).eval()
    return lm(input_ids=tokens).logits.double().log_softmax(-1)


def loss(folder, tokens):
    rows = log_p(folder, tokens)[:, :-1]
    return -rows.gather(2, tokens[:, 1:, None])[..., 0].mean(1)


OUTPUTS = {
    "difference": (
        'name = "difference"\nother = {{ kind = "causal-lm", path = "{worse}" }}',
        [-4.0, 0.0, 4.0], (-2.0, 2.0, 0.1),
        lambda toy, worse, tokens: loss(toy, tokens) - loss(worse, tokens),
    ),
    "next": (
        'name = "next"\ntargets = [3]', [0.0, 2.0], (0.0, 12.0, 0.05),
        lambda toy, worse, tokens: -log_p(toy, tokens)[:, -1, 3],
    ),
}  # fmt: skip
LAWS = {"model": 'kind = "model"', "other": 'kind = "causal-lm"\npath = "{worse}"'}


@pytest.mark.parametrize("law, kernel", [("model", "from-law"), ("other", "metropolis")])
@pytest.mark.parametrize("name", OUTPUTS)
def test_probabilities_of_bins_are_those_of_enumeration(folders, tmp_path, name, law, kernel):
    table, betas, (lower, upper, width), z_of = OUTPUTS[name]
    toy, worse = folders
    table, law_table = (text.format(worse=worse) for text in (table, LAWS[law]))
    text = INPUT.format(
        output=tmp_path / "run.h5", toy=toy, law=law_table, table=table, betas=betas,
        kernel=kernel, lower=lower, upper=upper, width=width,
    )  # fmt: skip
    (tmp_path / "run.toml").write_text(text)
    assert launch.main([str(tmp_path / "run.toml")]) == 0
    with open_run(tmp_path / "run.h5") as run:
        density, edges = density_of_run(run.data), run.edges
    tokens = all_inputs(type("Shape", (), {"n_values": 10, "n_sites": 4}))
    of_law = toy if law == "model" else worse
    z_n = z_of(toy, worse, tokens)
    q_n = (-3 * loss(of_law, tokens) - np.log(10)).exp().numpy()
    assert q_n.sum() == pytest.approx(1.0, abs=1e-4)
    n_bins = len(edges) - 1
    inside = bin_of(z_n.float().numpy(), edges)
    p_b, uniform_b = (np.bincount(inside, w, n_bins)[:n_bins] for w in (q_n, q_n * 0 + 1e-4))
    seen = density.count_b > 200
    expected_b, flat_b = np.log(p_b[seen]), np.log(uniform_b[seen])
    error_b = np.hypot(density.log_g_error_b[seen], 0.02)
    assert seen.sum() > 5 and density.absolute
    assert (np.abs(density.log_g_b[seen] - expected_b) < 4.5 * error_b).all()
    assert not (np.abs(density.log_g_b[seen] - flat_b) < 4.5 * error_b).all()
    found, exact = log_mean_exp(density), np.log(np.sum(q_n * np.exp(-z_n.numpy())))
    assert abs(found.value - exact) < 4.5 * np.hypot(found.error, 0.002)


def test_the_fingerprint_is_the_same_whether_files_are_hashed_at_once_or_later():
    law = {"kind": "causal-lm", "path": str(WORSE)}
    output = {"name": "next", "targets": [3]}
    config = config_of({"path": str(TOY), "length": 4}, output, law=law)
    about = models.preflight(config, hashed=False)
    found = models.preflight(config)["fingerprint"]
    assert models.pending_fingerprint(config, about).result() == found
    assert found != models.preflight(config.model_copy(update={"law": None}))["fingerprint"]
