"""Wrong variants that several kernels' tests share: each must fail."""


def without_proposal_term(ensemble, z, z_new, log_proposal_ratio, u):
    """Decide as if the proposal were symmetric."""
    return u.log() < ensemble.log_weight(z_new) - ensemble.log_weight(z)


class OneSlope:
    """An ensemble whose slope stays that of the old outputs z, also in the reverse proposal."""

    def __init__(self, ensemble, z):
        self.log_weight = ensemble.log_weight
        self._slope = ensemble.slope(z.double())

    def slope(self, z):
        return self._slope
