"""The Toy, the worse Toy and slightly changed Toys at five digits: z of all 100,000 inputs."""

import numpy as np
from pair_runs import draw_from
from run_tools import ROOT

from omniinput_hpc import models
from omniinput_hpc.cli.enumerate import block_evaluator, inputs_of
from omniinput_hpc.config import input_file

N_SITES = 5
X_ID = np.concatenate([inputs_of(block, 1, 10, N_SITES) for block in range(10)])
EDGES, BETA_K = np.linspace(0, 12, 241), np.array([-1.5, 0.0, 0.5, 1.0, 2.0, 4.0])


def model_of(name):
    """Return the model of inputs/NAME.toml at five digits."""
    path = ROOT / "inputs" / f"{name}.toml"
    words = [f"model.length={N_SITES}", f"model.path={ROOT / 'inputs/models' / name}"]
    config = input_file.parse(path.read_text(), str(path), words)
    return models.build(config, "cpu", models.preflight(config).get("folder"))


def table_of(model):
    """Return z of all inputs, float32 [100000], in the order of `X_ID`."""
    return np.concatenate([block_evaluator(model, 1, "cpu")(block) for block in range(10)])


def drawn(table, seed):
    """Return a run of 12,288 independent draws from the ladder of a model."""
    size = {"rounds": 8, "walkers": 64, "moves": 4}
    return draw_from(table, X_ID, BETA_K, seed, EDGES, 10, **size)


def number_of(x):
    """Return which entry of a table inputs are, int64 [...]."""
    return x.astype(np.int64) @ 10 ** np.arange(N_SITES)[::-1]


def one_matrix_rounded():
    """Return the Toy with one matrix in bfloat16."""
    import torch

    model = model_of("toy")
    weight = model.lm.transformer.h[2].mlp.c_fc.weight
    with torch.no_grad():
        weight.copy_(weight.to(torch.bfloat16).float())
    return model


def one_step_further():
    """Return the Toy after one more step of training, on inputs of the whole space."""
    import torch

    model = model_of("toy")
    network = model.lm.requires_grad_(True)
    x = torch.from_numpy(X_ID[::97])
    optimizer = torch.optim.AdamW(network.parameters(), lr=1e-5)
    with torch.enable_grad():
        network(input_ids=x, labels=x).loss.backward()
    optimizer.step()
    network.requires_grad_(False)
    return model
