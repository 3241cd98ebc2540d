"""Markov chains of tokens whose probabilities add up to at most 1, and their exact numbers."""

import numpy as np
from decoder_chain import DecoderChain
from lattice import ArrayRun


class NormalizedChain(DecoderChain):
    """A DecoderChain whose costs are raised until exp(-cost) of a row sums to at most 1."""

    def __init__(self, *arguments, **keys):
        super().__init__(*arguments, **keys)
        self.offset = float(np.logaddexp.reduce(-self.cost * self.unit, axis=1).max())
        self.edges = self.edges + self.offset
        self.z_l = self.z_l + self.offset

    @property
    def n_predicted(self):
        return self.n_sites - 1

    def log_up_to(self, z_t):
        """Return ln of the exact number of inputs with outputs up to z [T]."""
        with np.errstate(divide="ignore"):
            upto_l = np.log(np.cumsum(self.count_l))
        return upto_l[np.searchsorted(self.z_l, z_t, side="right") - 1]

    def thresholds(self, n):
        """Return n thresholds between levels, from the first few inputs to all."""
        place = np.linspace(0.02, 0.98, n) * (len(self.edges) - 1)
        z = self.edges[place.astype(int) + 1]
        level = np.searchsorted(self.z_l, z)
        return 0.5 * (self.z_l[level - 1] + self.z_l[level])

    def _run(self, x, level, walkers, betas, log_q):
        z = (level * self.unit / (self.n_sites - 1) + self.offset).astype(np.float32)
        beta_k = np.asarray(betas, float) * (self.n_sites - 1)
        run = ArrayRun(x, z, walkers, beta_k, self.edges, self.n_values)
        run.log_q = log_q
        return run


def by_the_normal_law(run, z_t):
    """Return 95% intervals of ln of the numbers of inputs up to z, [T] each: a wrong law.

    Mean and spread of the groups of draws, as if a few hundred of them were always normal.
    """
    log_q = np.concatenate([np.swapaxes(part, 0, 1) for part in run.log_q])
    z_jk = np.swapaxes(run.z_rks, 1, 2).reshape(-1, log_q.shape[1])
    v_jk = np.exp(np.log(log_q.shape[2]) - np.logaddexp.reduce(log_q, axis=2))
    y_tj = np.where(z_jk <= z_t[:, None, None], v_jk, 0.0).mean(axis=2)
    mean_t, error_t = y_tj.mean(axis=1), y_tj.std(axis=1, ddof=1) / np.sqrt(y_tj.shape[1])
    with np.errstate(divide="ignore"):
        return (
            np.log(np.maximum(mean_t - 1.96 * error_t, 0.0)),
            np.log(mean_t + 1.96 * error_t),
        )
