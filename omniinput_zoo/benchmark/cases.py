"""The models of the benchmark, each with its bins and ladder, and the methods to run on them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from omniinput_zoo import exact

Tables = Mapping[str, Mapping[str, Any]]
"""Tables of an input file."""


@dataclass(frozen=True)
class Case:
    """A model of `zoo.exact`, and the settings of its runs.

    Attributes
    ----------
    factory : name of the model in `zoo.exact`
    make : function that makes the model, given a device
    bins : lower, upper, width
    betas : a ladder that contains 0
    rounds, walkers, steps, exchanges : settings of a run that takes some seconds
    gradient, language : whether the model supports gradient kernels, and those of language models
    more : further tables of the input file
    """

    factory: str
    make: Callable[[Any], exact.Exact]
    bins: tuple[float, float, float]
    betas: tuple[float, ...]
    rounds: int = 12
    walkers: int = 32
    steps: int = 10
    exchanges: int = 6
    gradient: bool = False
    language: bool = False
    more: Tables = field(default_factory=dict)

    def tables(self, method: str) -> dict[str, dict[str, Any]]:
        """Return the tables of the input file for one of `methods`, without output and seed."""
        lower, upper, width = self.bins
        tables: dict[str, dict[str, Any]] = {
            "run": {"rounds": self.rounds, "burn_in": max(8, 2 * self.rounds // 3)},
            "model": {"kind": "python", "factory": f"omniinput_hpc.zoo.exact:{self.factory}"},
            "sampler": {
                "walkers": self.walkers, "steps": self.steps, "exchanges": self.exchanges,
            },
            "kernel": {"name": "metropolis"},
            "ladder": {"betas": list(self.betas)},
            "bins": {"lower": lower, "upper": upper, "width": width},
            "samples": {"every": self.steps},
        }  # fmt: skip
        for name, table in self.more.items():
            tables[name] |= table
        for name, table in METHODS[method].items():
            tables.setdefault(name, {}).update(table)
        return tables

    def methods(self) -> list[str]:
        """Return the methods that the model supports."""
        needs = {"gibbs-with-gradients": self.gradient, "discrete-langevin": self.gradient,
                 "lm-conditional": self.language, "ancestral": self.language}  # fmt: skip
        return [name for name in METHODS if needs.get(name, True)]


METHODS: dict[str, Tables] = {
    "metropolis": {},
    "gibbs-with-gradients": {"kernel": {"name": "gibbs-with-gradients"}},
    "discrete-langevin": {"kernel": {"name": "discrete-langevin"}},
    "lm-conditional": {"kernel": {"name": "lm-conditional"}},
    "wang-landau": {
        "sampler": {"method": "wang-landau"}, "ladder": {"betas": [0.0]},
        "run": {"burn_in": 24}, "wang_landau": {"ln_f_last": 0.01},
    },
    "replica-exchange wang-landau": {
        "sampler": {"method": "wang-landau"}, "ladder": {"betas": [0.0]},
        "run": {"burn_in": 24}, "wang_landau": {"ln_f_last": 0.01, "windows": 3},
    },
    "ancestral": {"sampler": {"method": "ancestral"}, "samples": {"every": 1}},
}  # fmt: skip
"""Methods by name: the tables of the input file by which a method differs from its case."""

_WARM = (0.0, 0.09, 0.19, 0.3, 0.43, 0.57, 0.73, 0.92, 1.15, 1.45, 1.8)
_AROUND = (0.0, 0.1, 0.2, 0.25, 0.29, 0.31, 0.325, 0.335, 0.34, 0.345, 0.355, 0.38)
CASES = {
    "lattice": Case(
        "lattice", exact.lattice, (-0.125, 4.625, 0.25), (-5.0, -2.0, 0.0, 2.0, 5.0), rounds=24
    ),
    "sites": Case(
        "sites", exact.sites, (-0.5, 700.5, 1.0), _WARM, rounds=8, walkers=64, steps=40,
        exchanges=8, gradient=True, more={"wang_landau": {"windows": [[60.5, 200.5]]}},
    ),
    "occupation": Case(
        "occupation", exact.occupation, (-302.5, 2.5, 1.0), _AROUND, rounds=40, walkers=64,
        steps=125, exchanges=8,
    ),
    "markov": Case(
        "markov", exact.markov, (0.0, 8.0, 0.25), (-4.0, 0.0, 2.5, 5.0, 7.0), rounds=24, steps=6,
        exchanges=4, language=True,
    ),
    "passage": Case(
        "passage", exact.passage, (0.0, 5.25, 0.125), (-3.0, 0.0, 3.0, 6.0, 7.5), rounds=24,
        steps=6, exchanges=4, language=True,
    ),
}  # fmt: skip
