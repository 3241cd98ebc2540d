"""Two models whose z and labels of all inputs are known: labels drawn for one, or for both."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import model_pair
import numpy as np
from pair_runs import draw_from

from omniinput_hpc.estimators.comparison.models import compare_models
from omniinput_hpc.estimators.density.density import density_of_run
from omniinput_hpc.estimators.density.wide_bins import coarsen
from omniinput_hpc.estimators.precision_recall import curves
from omniinput_hpc.estimators.precision_recall.banked import BankedScores, log_mixture
from omniinput_hpc.estimators.precision_recall.from_scores import scored_curve
from omniinput_hpc.histogram import bin_of

QUANTITIES = ("r", "precision", "recall", "AUPR")
N_LANES = 64


@dataclass(frozen=True, eq=False)
class World:
    """Two models: the outputs of all inputs, and the bins that tasks are drawn from.

    Attributes
    ----------
    x_id : [n, D]
    z : float32 [n] of each model, by name
    right_n : float64 [n], label of each input
    edges : float64 [B + 1] of each model's tasks; these are edges of `fine`, too
    fine, beta_k : bins and betas of the runs
    """

    x_id: np.ndarray
    z: dict
    right_n: np.ndarray
    edges: dict
    fine: np.ndarray
    beta_k: np.ndarray

    def bins(self, name):
        """Return the task bin of every input, int64 [n]."""
        return bin_of(self.z[name].astype(float), self.edges[name])

    def truth(self, name):
        """Return the exact numbers of inputs and r of the task bins, float64 [B] each."""
        n_bins = len(self.edges[name]) - 1
        n_b = np.bincount(self.bins(name), minlength=n_bins)
        with np.errstate(invalid="ignore"):
            return n_b, np.bincount(self.bins(name), self.right_n, n_bins) / n_b

    @lru_cache(maxsize=64)  # noqa: B019 (worlds live as long as the tests)
    def density(self, name, seed):
        """Return a density estimated from independent draws of the model's rungs."""
        n_values = int(self.x_id.max()) + 1
        size = {"rounds": 8, "walkers": N_LANES, "moves": 4}
        seed += 1000 * sorted(self.z).index(name)
        return density_of_run(
            draw_from(self.z[name], self.x_id, self.beta_k, seed, self.fine, n_values, **size)
        )

    def draw(self, names, per_bin, densities, rng):
        """Return inputs drawn from the task bins of some models, and how often [U] each.

        Also the number of draws of each bin, by model. Bins that the run never visited have none.
        """
        drawn, draws_b = [], {}
        for name in names:
            seen_b = np.isfinite(coarsen(densities[name], self.edges[name]).log_g_b)
            bin_n, draws_b[name] = self.bins(name), np.zeros(len(seen_b))
            for b in np.flatnonzero(seen_b):
                drawn.append(rng.choice(np.flatnonzero(bin_n == b), per_bin))
                draws_b[name][b] = per_bin
        return (*np.unique(np.concatenate(drawn), return_counts=True), draws_b)

    def scored(self, name, drawn, densities, lane_n, weighed=True):
        """Return the labels of drawn inputs in the bins of a model; not `weighed` is wrong."""
        number_u, count_u, draws_b = drawn
        places = {other: self.bins(other)[number_u] for other in draws_b}
        log_g_si = np.array([
            coarsen(densities[other], self.edges[other]).log_g_b[bin_u]
            for other, bin_u in places.items()
        ])  # fmt: skip
        draws_si = np.array([draws_b[other][bin_u] for other, bin_u in places.items()])
        log_weight_u = -log_mixture(draws_si, log_g_si)
        scale = float(log_weight_u.max())
        log_g_b = coarsen(densities[name], self.edges[name]).log_g_b
        log_g_b = np.where(np.isfinite(log_g_b), log_g_b, np.nan)
        weight_u = np.exp(log_weight_u - scale) if weighed else np.ones(len(number_u))
        return BankedScores(
            self.edges[name], self.bins(name)[number_u], lane_n[number_u], count_u * weight_u,
            self.right_n[number_u][None], ["ana"], count_u.astype(float),
            np.arange(len(number_u)), log_g_b - scale if weighed else np.full_like(log_g_b, np.nan),
        )  # fmt: skip


def small_world():
    """Return the world of `model_pair`: 4,096 inputs."""
    z = {name: model_pair.table(name) for name in ("good", "worse")}
    fine = np.linspace(1.0, 7.0, 121)
    ends = {"good": (2.0, 6.0), "worse": (1.5, 5.5)}
    edges = {name: fine[::10][(fine[::10] > a - 0.01) & (fine[::10] < b + 0.01)]
             for name, (a, b) in ends.items()}  # fmt: skip
    beta_k = np.array([-4.0, -2.0, 0.0, 1.0, 2.0, 4.0])
    return World(model_pair.X_ID, z, model_pair.is_right(model_pair.X_ID), edges, fine, beta_k)


def toy_world(divisor=5):
    """Return the Toy and the worse Toy at eight digits, the first three of them 3, 1, 4.

    These are 100,000 inputs. An input is right if the sum of its digits is divisible by `divisor`.
    """
    import torch
    from run_tools import ROOT
    from small_toys import X_ID
    from transformers import GPT2LMHeadModel

    whole = np.concatenate([np.tile([3, 1, 4], (len(X_ID), 1)), X_ID], axis=1)
    z = {}
    for name in ("toy", "toy-worse"):
        model = GPT2LMHeadModel.from_pretrained(ROOT / "inputs/models" / name).eval().float()
        parts = []
        with torch.no_grad():
            for x in torch.from_numpy(whole).long().split(4096):
                log_p = model(x, use_cache=False).logits[:, :-1].log_softmax(-1)
                parts.append(-log_p.gather(2, x[:, 1:, None]).mean((1, 2)))
        z[name] = torch.cat(parts).numpy()
    fine = np.linspace(0.0, 12.0, 241)
    edges = {"toy": fine[32:169:8], "toy-worse": fine[36:90:4]}
    right_n = (whole.sum(axis=1) % divisor == 0).astype(float)
    return World(X_ID, z, right_n, edges, fine, np.array([-1.5, 0.0, 0.5, 1.0, 2.0, 4.0]))


def _curve(world, name, drawn, densities, lane_n, seed, weighed=True):
    scored = world.scored(name, drawn, densities, lane_n, weighed)
    return scored_curve(densities[name], scored, "low", 10, 2, seed=seed)


def _exact(world, name, result):
    """Return the exact curve over the bins of an estimated one."""
    n_b, r_b = world.truth(name)
    bins = np.flatnonzero(result.used_b)
    return curves.trace(np.log(n_b[bins]), r_b[bins], "low")


def coverage(world, made_for, name, n_runs, *, per_bin=40, weighed=True, seed=0):
    """Return how often a model's intervals hold the truth [4], by labels made for some models."""
    found = np.zeros(len(QUANTITIES))
    for i in range(n_runs):
        rng = np.random.default_rng([seed, i])
        densities = {other: world.density(other, i % 20) for other in world.z}
        drawn = world.draw(made_for, per_bin, densities, rng)
        lane_n = rng.integers(N_LANES, size=len(world.x_id))
        result = _curve(world, name, drawn, densities, lane_n, i, weighed)
        curve, exact = result.curve, _exact(world, name, result)
        ends = curves.common_range(
            curves.curve_range(exact.precision_t, exact.log_recall_t),
            curves.curve_range(curve.precision_t, curve.log_recall_t),
        )
        area = curves.area(exact.precision_t, exact.log_recall_t, *ends)
        low, high = curve.bands.low, curve.bands.high
        used_b = result.used_b & ~curve.interpolated_b  # bins that have labels
        r_b = world.truth(name)[1]
        found += [
            _held(curve.r_low_b[used_b], r_b[used_b], curve.r_high_b[used_b]),
            _held(low.precision_t, exact.precision_t, high.precision_t),
            _held(low.log_recall_t, exact.log_recall_t, high.log_recall_t),
            _held(curve.aupr_low, area, curve.aupr_high),
        ]
    return found / n_runs


def _held(low, value, high):
    return np.mean((low - 1e-12 <= value) & (value <= high + 1e-12))


def paired(world, n_runs, *, per_bin=40, seed=0):
    """Return how often intervals of the AUPRs' difference hold the truth, and their mean width.

    A row each: each model by labels of its own draws, and both by the bank of the same labels.
    """
    (one, two), found = world.z, np.zeros((2, 2))
    for i in range(n_runs):
        rng = np.random.default_rng([seed, i])
        densities = {name: world.density(name, i % 20) for name in world.z}
        own = {name: world.draw([name], per_bin, densities, rng) for name in world.z}
        bank = _together(own[one], own[two])
        lane_n = rng.integers(N_LANES, size=len(world.x_id))
        for row in range(2):
            results = [
                _curve(world, name, bank if row else own[name], densities, lane_n, 2 * i + n)
                for n, name in enumerate(world.z)
            ]
            pair = [result.curve for result in results]
            if not row:  # independent labels: as from score files
                pair = [_unpaired(curve) for curve in pair]
            compared = compare_models(*pair)
            exact = [_exact(world, name, r) for name, r in zip(world.z, results, strict=True)]
            ends = compared.lower, compared.upper
            a, b = (curves.area(e.precision_t, e.log_recall_t, *ends) for e in exact)
            d = compared.aupr_difference
            found[row] += _held(d.low, a - b, d.high), float(d.high - d.low)
    return found / n_runs


def _together(one, two):
    """Return the draws of both."""
    number = np.concatenate([one[0], two[0]])
    number_u, of_i = np.unique(number, return_inverse=True)
    count_u = np.bincount(of_i, np.concatenate([one[1], two[1]])).astype(int)
    return number_u, count_u, one[2] | two[2]


def _unpaired(curve):
    from dataclasses import replace

    return replace(curve, draws=replace(curve.draws, paired=False))
