"""How often `omniinput difference` tells two models apart: pairs of runs of the Toy and others.

    OMP_NUM_THREADS=1 .venv/bin/python tests/benchmarks/same_model.py [--pairs 200]

Runs are independent draws from the ladder, of all inputs of five digits, which are enumerated. A
row per second model: the mean size of D over all inputs, the pairs with different outputs, and the
pairs whose densities have p < 5 % (Hotelling's T^2; 5 % are expected of one model).
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "helpers"))

from small_toys import (
    drawn,
    model_of,
    number_of,
    one_matrix_rounded,
    one_step_further,
    table_of,
)

from omniinput_hpc.estimators.comparison.difference import pair, sameness
from omniinput_hpc.estimators.density.density import density_of_run
from omniinput_hpc.estimators.density.wide_bins import in_width

ROUNDING = (2e-5, 3e-6)


def main() -> int:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pairs", type=int, default=200)
    pairs = parser.parse_args().pairs
    toy = table_of(model_of("toy"))
    others = {
        "the Toy with another seed": toy,
        "one matrix in bfloat16": table_of(one_matrix_rounded()),
        "one further step": table_of(one_step_further()),
        "the worse Toy": table_of(model_of("toy-worse")),
    }
    print(f"{f'{pairs} pairs with':28s}{'mean |D|':>10s}{'outputs':>9s}{'densities':>11s}")
    for name, other in others.items():
        found = []
        for seed in range(pairs):
            ways, densities = [], []
            for first, (own, its_other) in ((True, (toy, other)), (False, (other, toy))):
                run = drawn(own, seed if first else 1000 + seed).record()
                densities.append(density_of_run(run))
                wide = in_width(densities[-1], 2.0)
                z_rks = its_other[number_of(run.source.x_rksd)]
                ways.append(pair(run, wide, z_rks, first, 10**6))
            found.append(sameness((ways[0], ways[1]), (densities[0], densities[1]), ROUNDING))
        size = np.abs(toy.astype(float) - other).mean()
        apart, p = sum(not one.equal for one in found), sum(one.p < 0.05 for one in found)
        print(f"{name:28s}{size:10.2g}{apart:9d}{p:11d}", flush=True)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
