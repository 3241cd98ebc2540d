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
    log_g_b : float64 [B], ln of the number of inputs of the bins, in units of `weight_i`; NaN where
        it is not known
    """

    draws_n: FloatArray
    number_i: IntArray
    log_g_b: FloatArray

    def part(self, keep_i: BoolArray) -> Self:
        """Return the inputs to keep, which then no longer represent all inputs of their bins."""
        unknown_b = np.full_like(self.log_g_b, np.nan)
        number_i = self.number_i[keep_i]
        return replace(super().part(keep_i), number_i=number_i, log_g_b=unknown_b)

    def means(self) -> BankedMeans:
        """Return each bin's mean score and its errors.

        Inputs that are certainly not represented count as one label, whose score is not known.
        """
        scored = replace(self.part(~np.isnan(self.score_i)), log_g_b=self.log_g_b)
        found = bin_scores(scored)
        total_b = np.bincount(scored.bin_i, scored.weight_i, len(found.r_b))
        share_b = np.asarray(total_b * np.exp(-self.log_g_b), dtype=np.float64)
        with np.errstate(divide="ignore", invalid="ignore"):
            error_b = np.where(total_b > 0, share_b / np.sqrt(found.effective_b), 0.0)
            lost_b = np.nan_to_num(np.maximum(0.0, 1.0 - share_b - error_b))
            effective_b = 1.0 / ((1.0 - lost_b) ** 2 / found.effective_b + lost_b**2)
            effective_b = np.where(lost_b > 0, effective_b, np.inf)
            effective_b = np.minimum(effective_b, found.effective_b)
            wider_b = np.sqrt(found.effective_b / effective_b)
        sampling_error_b = found.sampling_error_b * wider_b
        changed = {"effective_b": effective_b, "sampling_error_b": sampling_error_b}
        return BankedMeans(
            **(vars(found) | changed),
            scored=scored,
            represented_b=share_b,
            represented_error_b=error_b,
        )


@dataclass(frozen=True)
class BankedMeans(BinScores):
    """Mean scores from a bank.

    Attributes
    ----------
    scored : the inputs that have a score
    represented_b, represented_error_b : float64 [B], share of each bin's inputs that labels
        represent, and its standard error; NaN where unknown
    """

    scored: BankedScores
    represented_b: FloatArray
    represented_error_b: FloatArray

    @property
    def missing_b(self) -> BoolArray:
        """The bins whose labels represent too few inputs, by two standard errors [B]."""
        most_b = self.represented_b + 2.0 * self.represented_error_b
        found: BoolArray = most_b < REPRESENTED
        return found

    def enough(self, inputs: int, lanes: int) -> BoolArray:
        """Return the bins that have enough scores, of all of their inputs, bool [B]."""
        return super().enough(inputs, lanes) & ~self.missing_b

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
