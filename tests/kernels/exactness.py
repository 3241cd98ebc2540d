"""The exact transition matrix of a kernel, as a black box, by scripting its random numbers.

A kernel draws a proposal from finitely many and then compares one uniform number with its
acceptance ratio. The proposals are enumerated through the stream; the acceptance probability is
found by bisection on the uniform number. What comes out is the law of the code that runs.
"""

from __future__ import annotations

import itertools

import numpy as np
import torch


class ScriptedStream:
    """Hands out prepared uniform numbers, [W] each, in place of random ones."""

    def __init__(self, columns, choices=()):
        self.columns, self.choice_list = list(columns), list(choices)

    def uniform(self, *shape):
        return self.columns.pop(0).view(shape)

    def integers(self, high, *shape):
        return (self.uniform(*shape) * high).long()

    def choices(self, n):
        return np.array([self.choice_list.pop(0) for _ in range(n)])


def transition_matrix(kernel, model, ensemble, choices):
    """Return P [n, n] over all inputs.

    Parameters
    ----------
    choices : number of equally likely values of each draw before the accepting one
    """
    states = model.all_inputs()
    n = len(states)
    weights = torch.tensor([model.n_values**i for i in range(model.n_sites - 1, -1, -1)])
    start = kernel.start(states, model.output(states))
    p = np.zeros((n, n))
    for draw in itertools.product(*map(range, choices)):
        script = [torch.full((n,), (i + 0.5) / m, dtype=torch.float64)
                  for i, m in zip(draw, choices, strict=True)]  # fmt: skip

        def move(u, script=script):
            return kernel.step(start, ensemble, ScriptedStream([*script, u]))

        low, high = torch.zeros(n, dtype=torch.float64), torch.ones(n, dtype=torch.float64)
        proposed, _ = move(torch.zeros(n, dtype=torch.float64))  # u = 0 accepts whatever it is
        for _ in range(60):
            middle = (low + high) / 2
            accepted = move(middle)[1].accepted
            low, high = torch.where(accepted, middle, low), torch.where(accepted, high, middle)
        to = (proposed.x * weights).sum(dim=1)
        probability = 1.0 / np.prod(choices)
        np.add.at(p, (np.arange(n), to.numpy()), low.numpy() * probability)
        np.add.at(p, (np.arange(n), np.arange(n)), (1 - low.numpy()) * probability)
    return p


def check_exact(kernel, model, ensemble, choices):
    """Assert that the kernel leaves the ensemble invariant, in detail, and goes everywhere."""
    p = transition_matrix(kernel, model, ensemble, choices)
    log_weight = ensemble.log_weight(model.output(model.all_inputs()).double()).numpy()
    pi = np.exp(log_weight - log_weight.max())
    pi /= pi.sum()
    assert np.abs(p.sum(axis=1) - 1).max() < 1e-12, "rows do not sum to 1"
    assert 0.5 * np.abs(pi @ p - pi).sum() < 1e-10, "the ensemble is not invariant"
    flow = pi[:, None] * p
    assert np.abs(flow - flow.T).max() < 1e-10, "no detailed balance"
    assert 1 - np.trace(p) / len(p) > 0.01, "hardly anything is accepted"
    reach = np.linalg.matrix_power((p > 0).astype(float) + np.eye(len(p)), len(p))
    assert (reach > 0).all(), "not irreducible"
