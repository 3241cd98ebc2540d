"""Moments of z at some betas, by summing over all outputs of a model that is known exactly."""

import numpy as np

from omniinput_hpc.pilot.settings import Spread


def levels_of(model):
    """Return a model's outputs and ln of their numbers."""
    return model.log_count()


def moments(model, beta_i):
    """Return the exact spread of z at some betas."""
    z_l, log_n_l = levels_of(model)
    log_w_il = log_n_l - np.outer(beta_i, z_l)
    w_il = np.exp(log_w_il - log_w_il.max(axis=1, keepdims=True))
    w_il /= w_il.sum(axis=1, keepdims=True)
    mean_i = w_il @ z_l
    sd_i = np.sqrt(np.maximum(w_il @ z_l**2 - mean_i**2, 0))
    return Spread(np.asarray(beta_i), mean_i, sd_i, z_l.min(), z_l.max()), w_il
