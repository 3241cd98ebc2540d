"""A language model's two ends, sampled by chains alone, against exactly drawn inputs.

At beta = 0 inputs are uniform; at beta = m they are the model's own texts. With ``[ladder] anchors
= false`` chains sample both; their outputs must be distributed as those of inputs drawn directly::

    .venv/bin/python tests/helpers/exact_ends.py inputs/english-25.toml --betas 0 24

prints Kolmogorov and Smirnov's p at both ends, for effectively independent samples, and, for
comparison, that of the chains' other end. Of each end 4,000 inputs are drawn anew (``--drawn N``);
with ``--draws RUN.h5`` they are those of an ancestral run of the model that has both ends on its
ladder. Further arguments (--set ...) are the program's.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

import numpy as np
import torch
from scipy.stats import ks_2samp

from omniinput_hpc import models
from omniinput_hpc.cli import run as launch
from omniinput_hpc.estimators.errors.chains import chain_diagnostics, inefficiency
from omniinput_hpc.runfile.reader import open_run


@torch.no_grad()
def drawn(model, n, seed, of_the_model):
    """Return z, float64 [n], of uniform inputs, or of texts drawn token by token from the model."""
    generator = torch.Generator().manual_seed(seed)
    x = torch.randint(model.n_values, (n, model.n_sites), generator=generator)
    if of_the_model:
        state = model.begin(x[:, : model.predicted_from])
        for t in range(model.predicted_from, model.n_sites):
            p = state.log_p.double().softmax(dim=1)
            x[:, t] = torch.multinomial(p, 1, generator=generator)[:, 0]
            if t + 1 < model.n_sites:
                state = model.extend(state, x[:, t])
    return torch.cat([model.output(part) for part in x.split(256)]).double().numpy()


def thinned(run, k):
    """Return rung k's recorded outputs, float64 [n], so far apart that they are independent."""
    _, tau_k, _ = chain_diagnostics(run.data)
    apart = inefficiency(tau_k, run.config.sampler.moves_per_round)[k]
    stride = max(1, int(np.ceil(apart / run.config.samples.every)))
    z_tw = np.concatenate([z[k].reshape(-1, run.walkers) for _, z in run.samples()])
    return z_tw[::stride].ravel().astype(np.float64)


def drawn_before(path, beta, fingerprint):
    """Return z, float64 [n], of an ancestral run's draws at one of its temperatures."""
    with open_run(path) as run:
        assert run.samples_log_q() is not None, f"{path} holds chains, not independent draws"
        assert run.fingerprint == fingerprint, f"{path} is of another model"
        return run.samples_z()[:, run.beta_k.tolist().index(beta)].ravel().astype(np.float64)


def compare(path, seed=1, n_drawn=4000, draws=None):
    """Return {end: (effective samples, p, p of the other end's outputs)} of a run file.

    n_drawn : inputs drawn from each end; with `draws`, an ancestral run's, none are
    """
    with open_run(path) as run:
        model = models.build(run.config, "cpu")
        m = model.n_sites - model.predicted_from
        beta_k, fingerprint = run.beta_k.tolist(), run.fingerprint
        chains = {beta: thinned(run, beta_k.index(beta)) for beta in (0.0, float(m))}
    found = {}
    for beta, z in chains.items():
        if draws is None:
            exact = drawn(model, n_drawn, seed, beta > 0)
        else:
            exact = drawn_before(draws, beta, fingerprint)
        other = next(series for b, series in chains.items() if b != beta)
        found[beta] = (len(z), ks_2samp(z, exact).pvalue, ks_2samp(other, exact).pvalue)
    return found


def sample(input_path, output, betas, words=()):
    """Run the chains without anchors."""
    sets = [f"run.output={output}", f"ladder.betas={betas}", "ladder.tune=false"]
    options = [part for word in (*sets, "ladder.anchors=false") for part in ("--set", word)]
    assert launch.main([str(input_path), *options, *words]) == 0


def main():
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("input", type=Path)
    parser.add_argument("--betas", type=float, nargs="+", required=True)
    parser.add_argument("--drawn", type=int, default=4000, help="inputs drawn from each end")
    parser.add_argument("--draws", type=Path, help="an ancestral run, in place of drawing")
    arguments, words = parser.parse_known_args()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "run.h5"
        sample(arguments.input, path, arguments.betas, words)
        found = compare(path, n_drawn=arguments.drawn, draws=arguments.draws)
        for beta, (n, p, p_other) in found.items():
            print(f"beta {beta:g}: {n} effective samples, p = {p:.3f} (other end: {p_other:.1e})")


if __name__ == "__main__":
    main()
