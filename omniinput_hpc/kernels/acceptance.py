"""Metropolis and Hastings: which walkers move, and what each one keeps."""

from __future__ import annotations

import torch

from omniinput_hpc.tempering.ensembles import Ensemble


def decide(
    ensemble: Ensemble,
    z: torch.Tensor,
    z_new: torch.Tensor,
    log_proposal_ratio: torch.Tensor | float,
    u: torch.Tensor,
) -> torch.Tensor:
    """Return which proposals are accepted, bool [W] (Hastings 1970, eq. 1.6).

    Parameters
    ----------
    z, z_new : [W], the model's outputs
    log_proposal_ratio : float64 [W], ln q(x | x') - ln q(x' | x); 0 for a symmetric proposal
    u : float64 [W], uniform in [0, 1)
    """
    log_ratio: torch.Tensor = ensemble.log_weight(z_new.double()) - ensemble.log_weight(z.double())
    return u.log() < log_ratio + log_proposal_ratio


def accept(accepted: torch.Tensor, new: torch.Tensor, old: torch.Tensor) -> torch.Tensor:
    """Return new [W, ...] where accepted, bool [W], else old."""
    return torch.where(accepted.view(-1, *[1] * (new.dim() - 1)), new, old)
