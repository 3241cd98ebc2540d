"""Changing what a run file holds, its checksums with it, as if a run had written it so."""

from contextlib import contextmanager

import h5py

from omniinput_hpc.runfile import checksums
from omniinput_hpc.runfile.fields import entry_of, slab
from omniinput_hpc.runfile.layout import layout
from omniinput_hpc.runfile.reader import open_run


@contextmanager
def changing(path):
    """Open a whole run file for changes that no checksum tells of."""
    with open_run(path) as run:
        g, burn_in = run.geometry, run.config.run.burn_in
    with h5py.File(path, "r+", locking=False) as file:
        yield file
        if g.checksums:
            seal(file, layout(g), g.n_rungs, burn_in)


def seal(file, fields, n_rungs, burn_in=0):
    """Make all checksums of a file fit what it holds."""
    rounds = int(file["progress/rounds_committed"][0])
    last = rounds - 1
    if not rounds and "progress/burn_in_committed" in file:
        last = int(file["progress/burn_in_committed"][0]) - burn_in - 1
    rungs = range(n_rungs)
    of_rounds = {"round": range(rounds), "parity": (last - 1, last)}
    of_rounds["counted parity"] = [r for r in of_rounds["parity"] if r >= 0]
    of_rounds["block"] = range(rounds)
    for per, name in checksums.BY_KIND.items():
        for column, one in enumerate(checksums.columns(fields, per)):
            for round_ in of_rounds.get(per, ()):
                where = slab(fields[one], round_, rungs, n_rungs)
                if where is None and per == "block":
                    continue
                values = file[one][where or slice(0)]
                sums = checksums.of_slab(one, fields[one], round_, rungs, values)
                file[name][entry_of(fields[one], round_), :, column] = sums
            if per == "burn-in":
                sums = checksums.of_slab(one, fields[one], 0, rungs, file[one][...])
                file[name][:, column] = sums
            if per == "once":
                file[name][column] = checksums.of_whole(one, fields[one], file[one][...])
    for name in checksums.counters(fields):
        checksums.set_counter(file, name, int(file[name][0]))
    attributes = dict(file.attrs)
    for name, value in checksums.of_attributes(file, fields, attributes).items():
        file.attrs[name] = value
