"""Models of `zoo.exact` on spaces that no one can enumerate, under the names that inputs give."""

from omniinput_hpc.zoo.exact import Occupation, Sites, occupation, sites

__all__ = ["Occupation", "Sites", "occupation", "sites"]
