"""Mean scores of a model's bins from the labels of a bank, whatever models they were made for.

An input of a bank was drawn from a bin of z of some run s, in which all inputs are equally likely
(under a law: in proportion to it). So one draw finds x with probability 1 / G_s(x), where G_s(x) is
the number of inputs of the bin that x lies in. All draws together come from the mixture

    m(x) = sum over runs s of n_s(x) / G_s(x),    n_s(x) = number of draws from that bin,

and 1 / m(x) is the number of inputs that a draw of x represents, whichever run it comes from
(multiple importance sampling, balance heuristic: Veach & Guibas, SIGGRAPH 1995, 419). With these
weights, the scores of the inputs that a model puts in a bin have the bin's r as their mean. The
weights themselves add up to the number of inputs of the bin that could be drawn: if the density
tells more, some of its inputs lie in no bin that was drawn from, and labels are missing.

The curves of two models from one bank have errors from the same labels. Draws of r are therefore
sorted like the AUPRs that resampled labels give: the draws m of both curves then belong together.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Self

import numpy as np

from omniinput_hpc.estimators import BoolArray, FloatArray, IntArray
from omniinput_hpc.estimators.density.density import Density
from omniinput_hpc.estimators.errors.jackknife import N_DRAWS
from omniinput_hpc.estimators.precision_recall import curves
from omniinput_hpc.estimators.precision_recall.curves import Side
from omniinput_hpc.estimators.precision_recall.from_scores import (
    BinScores,
    Scored,
    annotator_moves,
    bin_scores,
)

EXTRA_SCORES = 0.02
"""Right and wrong scores added per label when labels are resampled: equal ones may err, too."""
REPRESENTED = 0.9
"""A bin lacks labels if they certainly represent less than this share of its inputs."""
_SEED = 43  # the same for all models: their curves resample the same labels


def log_mixture(draws_si: FloatArray, log_g_si: FloatArray) -> FloatArray:
    """Return ln m(x) of each input, float64 [n]; -inf if no bin that it lies in was drawn from.

    Parameters
    ----------
    draws_si : float64 [S, n], number of draws from the bin of run s that input i lies in
    log_g_si : float64 [S, n], ln of the number of inputs of that bin; only used if draws are > 0
    """
    with np.errstate(divide="ignore"):
        log_n_si = np.log(draws_si)
    drawn = draws_si > 0
    parts_si = np.where(drawn, log_n_si - np.where(drawn, log_g_si, 0.0), -np.inf)
    return np.asarray(np.logaddexp.reduce(parts_si, axis=0))


@dataclass(frozen=True)
class BankedScores(Scored):
    """Scores of a bank's inputs, in the bins of one model.

    `weight_i` is proportional to the number of inputs that an input represents.

    Attributes
    ----------
    draws_n : float64 [N], how often each input of the whole bank was drawn
    number_i : int64 [n], the input's number in the bank
    log_scale : ln of the number of inputs that weight 1 represents; NaN if not known
    """

    draws_n: FloatArray
    number_i: IntArray
    log_scale: float

    def part(self, keep_i: BoolArray) -> Self:
        """Return the inputs to keep."""
        return replace(super().part(keep_i), number_i=self.number_i[keep_i])

    def means(self) -> BankedMeans:
        """Return each bin's mean score and its errors."""
        scored = self.part(~np.isnan(self.score_i))
        return BankedMeans(**vars(bin_scores(scored)), scored=scored)


@dataclass(frozen=True)
class BankedMeans(BinScores):
    """Mean scores from a bank.

    Attributes
    ----------
    scored : the inputs that have a score
    """

    scored: BankedScores

    def represented(self, coarse: Density) -> tuple[FloatArray, FloatArray]:
        """Return the share of each bin's inputs that labels represent, and its error [B] each.

        NaN where it is not known. `coarse` is the density in the bins of the scores.
        """
        total_b = np.bincount(self.scored.bin_i, self.scored.weight_i, len(self.r_b))
        log_scale = self.scored.log_scale if coarse.absolute else np.nan
        with np.errstate(divide="ignore", invalid="ignore"):
            share_b = np.exp(np.log(total_b) + log_scale - coarse.log_g_b)
            noise_b = np.hypot(1.0 / np.sqrt(self.effective_b), coarse.log_g_error_b)
            error_b = np.where(total_b > 0, share_b * noise_b, 0.0)
        known_b = np.isfinite(share_b) & np.isfinite(error_b)
        return np.where(known_b, share_b, np.nan), np.where(known_b, error_b, np.nan)

    def missing(self, coarse: Density) -> BoolArray:
        """Return the bins whose labels represent too few inputs, by two standard errors [B]."""
        share_b, error_b = self.represented(coarse)
        found: BoolArray = share_b + 2.0 * error_b < REPRESENTED
        return found

    def enough(self, coarse: Density, inputs: int, lanes: int) -> BoolArray:
        """Return the bins that have enough scores, of all of their inputs, bool [B]."""
        return super().enough(coarse, inputs, lanes) & ~self.missing(coarse)

    def order(
        self, log_g_b: FloatArray, side: Side, filled: Callable[[FloatArray], FloatArray]
    ) -> Callable[[FloatArray], FloatArray]:
        """Return a function that sorts draws of r, [M, B'], like the AUPRs of resampled labels.

        `log_g_b` and the draws are those of the used bins, which `filled` picks.
        """
        rank_m = np.argsort(np.argsort(_auprs(log_g_b, filled(self._resampled()), side)))

        def sorted_alike(r_mb: FloatArray) -> FloatArray:
            found: FloatArray = r_mb[np.argsort(_auprs(log_g_b, r_mb, side))[rank_m]]
            return found

        return sorted_alike

    def _resampled(self) -> FloatArray:
        """Return the bins' means with random weights of labels and annotators [M, B]."""
        rng, scored = np.random.default_rng(_SEED), self.scored
        mine, n_inputs = scored.number_i, len(scored.number_i)
        # random numbers for the whole bank, so that every model gets the same
        size = (N_DRAWS, len(scored.draws_n))
        weight_mi = rng.gamma(scored.draws_n, size=size)[:, mine]
        right_mi, wrong_mi = (rng.gamma(EXTRA_SCORES, size=size)[:, mine] for _ in range(2))
        to_bin_ib = np.zeros((n_inputs, len(self.r_b)))
        to_bin_ib[np.arange(n_inputs), scored.bin_i] = scored.weight_i / scored.draws_n[mine]
        with np.errstate(invalid="ignore"):
            mean_mb = (weight_mi * scored.score_i + right_mi) @ to_bin_ib
            mean_mb /= (weight_mi + right_mi + wrong_mi) @ to_bin_ib
        return np.clip(mean_mb + annotator_moves(self, rng, N_DRAWS), 0.0, 1.0)


def _auprs(log_g_b: FloatArray, r_mb: FloatArray, side: Side) -> FloatArray:
    """Return the AUPR of each draw, over the range of ln recall of the mean draw [M]."""
    middle = curves.trace(log_g_b, r_mb.mean(axis=0), side)
    ends = curves.curve_range(middle.precision_t, middle.log_recall_t)
    draws = curves.trace(np.broadcast_to(log_g_b, r_mb.shape), r_mb, side)
    return curves.areas(draws.precision_t, draws.log_recall_t, ends)
