"""Models of `zoo.exact` on spaces that no one can enumerate, under the names that inputs give."""

from omniinput_zoo.exact import Occupation, Sites, occupation, sites

__all__ = ["Occupation", "Sites", "SmallOccupation", "occupation", "sites", "small_occupation"]


class SmallOccupation(Occupation):
    """The same transition with less to cross: both phases weigh the same at beta = 0.59."""

    n_sites, n_values = 10, 16


def small_occupation(device):
    """Return a `SmallOccupation`."""
    return SmallOccupation()
