"""A serial oracle: parallel tempering written once more, walker by walker, in plain Python.

It shares the random streams and the acceptance rule's formula with the program, and nothing else:
no batches, no ranks, no buffers. For models whose z is exact in float32.
"""

from __future__ import annotations

import math

import numpy as np

from omniinput_hpc import rng


def run(config, n_values, n_sites, output):
    """Return what a run's file must hold, as a dict of lists indexed by counted round.

    Parameters
    ----------
    output : function of a list of values, the model's z as a float
    """
    beta, w = list(config.ladder.beta_k), config.sampler.walkers
    n_rungs, seed, n_blocks = len(beta), config.run.seed, config.sampler.blocks
    keys = [(b,) for b in range(n_blocks)] if n_blocks > 1 else [()]
    size = (w // n_blocks, n_sites)
    x = [
        [
            values
            for key in keys
            for values in rng.generator(seed, "start", k, *key)
            .integers(n_values, size=size)
            .tolist()
        ]
        for k in range(n_rungs)
    ]
    z = [[output(x[k][i]) for i in range(w)] for k in range(n_rungs)]
    who = [[k * w + i for i in range(w)] for k in range(n_rungs)]
    last_end = {walker: None for row in who for walker in row}
    names = [
        "x",
        "z",
        "walker",
        "sample_x",
        "sample_z",
        "sample_walker",
        "every_z",
        "accepted",
        "swaps",
        "trips",
    ]
    rounds = {name: [] for name in names}
    exchange = 0
    for round_ in range(config.run.burn_in + config.run.rounds):
        record = {name: [] for name in ("sample_x", "sample_z", "sample_walker")}
        samples = [{name: [] for name in record} for _ in range(n_rungs)]
        every_z = [[] for _ in range(n_rungs)]
        accepted, swaps, trips = [0] * n_rungs, [[0, 0] for _ in beta[1:]], [0] * (w * n_rungs)
        for segment in range(config.sampler.exchanges):
            for k in range(n_rungs):
                streams = [rng.generator(seed, "moves", k, round_, segment, *key) for key in keys]
                for step in range(config.sampler.steps):
                    drawn = [[own.random(w // n_blocks) for _ in range(3)] for own in streams]
                    site, shift, u = np.concatenate(drawn, axis=1)
                    for i in range(w):
                        s = int(site[i] * n_sites)
                        proposal = list(x[k][i])
                        proposal[s] = (proposal[s] + 1 + int(shift[i] * (n_values - 1))) % n_values
                        z_new = output(proposal)
                        if u[i] == 0 or math.log(u[i]) < -beta[k] * (z_new - z[k][i]):
                            x[k][i], z[k][i] = proposal, z_new
                            accepted[k] += 1
                    every_z[k].append(list(z[k]))
                    if (segment * config.sampler.steps + step + 1) % config.samples.every == 0:
                        samples[k]["sample_x"] += [list(v) for v in x[k]]
                        samples[k]["sample_z"] += z[k]
                        samples[k]["sample_walker"] += who[k]
            for k in range(exchange % 2, n_rungs - 1, 2):
                u = rng.generator(seed, "exchange", k, exchange).random(w)
                for i in range(w):
                    swaps[k][0] += 1
                    log_a = (beta[k] - beta[k + 1]) * (z[k][i] - z[k + 1][i])
                    if u[i] == 0 or math.log(u[i]) < log_a:
                        swaps[k][1] += 1
                        for row in (x, z, who):
                            row[k][i], row[k + 1][i] = row[k + 1][i], row[k][i]
            for i in range(w):
                if last_end[who[0][i]] == "top":
                    trips[who[0][i]] += 1
                last_end[who[0][i]] = "bottom"
                if last_end[who[-1][i]] == "bottom":
                    last_end[who[-1][i]] = "top"
            exchange += 1
        if round_ >= config.run.burn_in:
            found = {
                "x": [[list(v) for v in row] for row in x],
                "z": [list(row) for row in z],
                "walker": [list(row) for row in who],
                **{name: [samples[k][name] for k in range(n_rungs)] for name in record},
                "every_z": every_z,
                "accepted": accepted,
                "swaps": swaps,
                "trips": trips,
            }
            for name in names:
                rounds[name].append(found[name])
    return {name: np.array(value) for name, value in rounds.items()}
