"""The next token under a law of independent sites: how often is it a given, rare one?

Either P is the probability that the token is the likeliest one, or its mean probability.

Plain sampling, and the estimators ITGIS and MHIS of Wu & Hilton (arXiv 2410.13211), written anew.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import count, takewhile
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

BATCH, CHAINS, DECAY = 256, 32, 0.9
BURN_IN = 0.25
"""Share of MHIS's moves that are dropped."""


@dataclass(frozen=True)
class Problem:
    """A decoder, and the law of its input: ln p, float32 [D, V], of independent sites.

    mean : whether P is the mean probability of a token
    """

    lm: Any
    log_p: torch.Tensor
    mean: bool = False

    @property
    def n_sites(self) -> int:
        return len(self.log_p)

    def draw(self, n: int, random: torch.Generator, log_p: torch.Tensor | None = None) -> Any:
        """Return n draws, int64 [n, D]; of other rows if given."""
        p = (self.log_p if log_p is None else log_p).exp()
        return torch.multinomial(p, n, replacement=True, generator=random).T

    def log_law(self, x: torch.Tensor, log_p: torch.Tensor | None = None) -> torch.Tensor:
        """Return ln of the probabilities of x, float64 [n]."""
        rows = self.log_p if log_p is None else log_p
        return rows.gather(1, x.T).double().sum(dim=0)

    @torch.no_grad()
    def hits(self, x: torch.Tensor) -> torch.Tensor:
        """Return what each input adds to P of each token, float32 [n, V]."""
        hidden = self.lm.base_model(x, use_cache=False).last_hidden_state[:, -1]
        logits = self.lm.lm_head(hidden)
        if self.mean:
            return logits.softmax(dim=1)
        return torch.zeros_like(logits).scatter_(1, logits.argmax(dim=1, keepdim=True), 1.0)

    def scored(self, x: torch.Tensor, target: int) -> tuple[torch.Tensor, ...]:
        """Return of inputs the target's logit s, what they add to its P, and ds/d embedding."""
        e = self.lm.get_input_embeddings().weight.detach()[x].requires_grad_()
        hidden = self.lm.base_model(inputs_embeds=e, use_cache=False).last_hidden_state[:, -1]
        s = hidden @ self.lm.lm_head.weight[target].detach()
        (slope,) = torch.autograd.grad(s.sum(), e)
        with torch.no_grad():
            logits = self.lm.lm_head(hidden)
            hit = logits.argmax(dim=1) == target
            if self.mean:
                hit = logits.softmax(dim=1)[:, target]
        return s.detach().double(), hit.double(), slope


@dataclass(frozen=True)
class Estimate:
    """An estimate of ln P, -inf without one, with its standard error, and what it took."""

    log_p: float
    error: float
    evaluations: int
    seconds: float

    def __str__(self) -> str:
        if self.log_p == -np.inf:
            return "none"
        return f"{self.log_p:.2f} +- {self.error:.2f}"


def within(budget: float) -> Iterator[int]:
    """Count up for so many seconds of CPU time; or so often, if `budget` is an int."""
    if isinstance(budget, int):
        yield from range(budget)
        return
    end = time.process_time() + budget
    yield from takewhile(lambda _: time.process_time() < end, count())


def of_mean(mean: float, error: float, evaluations: int, seconds: float) -> Estimate:
    """Return the estimate of ln P, given that of P."""
    if mean <= 0:
        return Estimate(-np.inf, np.inf, evaluations, seconds)
    return Estimate(float(np.log(mean)), float(error / mean), evaluations, seconds)


def plain(
    problem: Problem, budget: float, seed: int
) -> tuple[NDArray[np.float64], NDArray[np.float64], int]:
    """Return P of each token and its standard error from draws of the law, and their number."""
    random = torch.Generator().manual_seed(seed)
    sums_v, n = torch.zeros((2, problem.log_p.shape[1]), dtype=torch.float64), 0
    for _ in within(budget):
        hits = problem.hits(problem.draw(BATCH, random))
        sums_v += torch.stack([hits.sum(dim=0), hits.square().sum(dim=0)])
        n += BATCH
    mean_v, square_v = (sums_v / n).numpy()
    return mean_v, np.sqrt((square_v - mean_v**2).clip(min=0.0) / n), n


def itgis(problem: Problem, target: int, temperature: float, budget: float, seed: int) -> Estimate:
    """Independent-token gradient importance sampling.

    Draws of q(x) = product of p_i(x_i) exp(g_i(x_i) / T) / Z_i are weighted by p / q. g is the mean
    gradient of the target's logit over earlier batches, the latest with the largest weight.
    """
    random = torch.Generator().manual_seed(seed)
    table = problem.lm.get_input_embeddings().weight.detach()
    slope, total, parts = torch.zeros(problem.n_sites, table.shape[1]), 0.0, []
    begun = time.process_time()
    for _ in within(budget):
        force = slope @ table.T / max(total, DECAY)  # [D, V]
        log_q = (problem.log_p + force / temperature).log_softmax(dim=1)
        x = problem.draw(BATCH, random, log_q)
        _, hit, each = problem.scored(x, target)
        log_w = problem.log_law(x) - problem.log_law(x, log_q)
        parts.append(hit * log_w.exp())
        slope, total = DECAY * slope + each.mean(dim=0), DECAY * total + 1.0
    w = torch.cat(parts).numpy()
    return of_mean(w.mean(), w.std() / np.sqrt(len(w)), len(w), time.process_time() - begun)


def mhis(
    problem: Problem,
    target: int,
    temperature: float,
    budget: float,
    seed: int,
    reverse: bool = True,
) -> Estimate:
    """Metropolis-Hastings importance sampling of p(x) exp(s(x) / T), s the target's logit.

    A move draws a site, and its value from p_i(v) exp(ds/dv / T). P is the mean of exp(-s / T) over
    the target's inputs, divided by that over all. `reverse` = False leaves the reverse proposal out
    of the acceptance ratio, which is wrong.
    """
    random = torch.Generator().manual_seed(seed)
    table = problem.lm.get_input_embeddings().weight.detach()
    rows = torch.arange(CHAINS)
    x = problem.draw(CHAINS, random)
    begun = time.process_time()
    s, hit, slope = problem.scored(x, target)
    kept = []
    for _ in within(budget):
        site = torch.randint(problem.n_sites, (CHAINS,), generator=random)
        forward = _proposal(problem, site, slope, table, temperature)
        new = torch.multinomial(forward.exp(), 1, generator=random)[:, 0]
        old = x[rows, site]
        x_new = x.clone()
        x_new[rows, site] = new
        s_new, hit_new, slope_new = problem.scored(x_new, target)
        ratio = (s_new - s) / temperature
        ratio = ratio + problem.log_p[site, new] - problem.log_p[site, old]
        if reverse:
            back = _proposal(problem, site, slope_new, table, temperature)
            ratio = ratio + back[rows, old] - forward[rows, new]
        accepted = torch.rand(CHAINS, generator=random).log() < ratio
        x = torch.where(accepted[:, None], x_new, x)
        s, hit = torch.where(accepted, s_new, s), torch.where(accepted, hit_new, hit)
        slope = torch.where(accepted[:, None, None], slope_new, slope)
        kept.append((s, hit))
    n = len(kept)
    kept = kept[int(BURN_IN * n) :]
    s_tc, hit_tc = (torch.stack(part).numpy() for part in zip(*kept, strict=True))
    log_p, error = _mean_ratio(-s_tc / temperature, hit_tc)
    return Estimate(log_p, error, (n + 1) * CHAINS, time.process_time() - begun)


def _proposal(
    problem: Problem, site: torch.Tensor, slope: torch.Tensor, table: torch.Tensor, t: float
) -> torch.Tensor:
    """Return ln of the probabilities of a site's values, [n, V]."""
    force = slope[torch.arange(len(site)), site] @ table.T
    return (problem.log_p[site] + force / t).log_softmax(dim=1)


def _mean_ratio(log_w_tc: NDArray[np.float64], hit_tc: NDArray[np.float64]) -> tuple[float, float]:
    """Return ln (sum of w hit / sum of w), and its jackknife error over chains."""
    w_tc = np.exp(log_w_tc - log_w_tc.max())
    part_c, all_c = (w_tc * hit_tc).sum(axis=0), w_tc.sum(axis=0)
    if part_c.sum() == 0:
        return -np.inf, np.inf
    with np.errstate(divide="ignore"):
        without_c = np.log(part_c.sum() - part_c) - np.log(all_c.sum() - all_c)
    n = len(part_c)
    error = np.sqrt((n - 1) * np.mean((without_c - without_c.mean()) ** 2))
    return float(np.log(part_c.sum() / all_c.sum())), float(error)


def exact(problem: Problem) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """Return P of each token, float64 [V], and after how many inputs it is likely, int64 [V].

    All inputs of positive probability are evaluated.
    """
    values = [np.flatnonzero(np.isfinite(row)) for row in problem.log_p.numpy()]
    x_nd = np.stack(np.meshgrid(*values, indexing="ij"), axis=-1).reshape(-1, len(values))
    p_v = torch.zeros(problem.log_p.shape[1], dtype=torch.float64)
    inputs_v = torch.zeros(len(p_v), dtype=torch.int64)
    for x in torch.from_numpy(x_nd).split(BATCH):
        hits = problem.hits(x)
        p_v += problem.log_law(x).exp() @ hits.double()
        inputs_v += (hits > 0.5).sum(dim=0)
    return p_v.numpy(), inputs_v.numpy()
