"""Hostile HDF5 files: a good run file, changed in ways that an attacker might think of."""

from __future__ import annotations

from dataclasses import replace

import h5py
import numpy as np

from omniinput_hpc.runfile.layout import layout
from omniinput_hpc.runfile.side_checkpoint import IN_TURN, Place, fields_of

HUGE = 1 << 40


def replaced(name, make):
    """Return a change that puts something else in a dataset's place."""

    def change(file):
        del file[name]
        make(file, name)

    return change


def data(name, values):
    return replaced(name, lambda file, name: file.create_dataset(name, data=values))


def typed(name, dtype):
    return replaced(name, lambda file, name: file.create_dataset(name, (4,), dtype))


def named_type(file, name):
    file[name] = np.dtype("f8")


def attribute(name, value):
    def change(file):
        del file.attrs[name]
        if callable(value):
            value(file, name)
        elif value is not None:
            file.attrs[name] = value

    return change


def element(name, where, value):
    def change(file):
        file[name][where] = value

    return change


def every(name, value):
    return element(name, Ellipsis, value)


def together(*changes):
    def change(file):
        for one in changes:
            one(file)

    return change


def chunked(shape, dtype, **options):
    def make(file, name):
        file.create_dataset(name, shape, dtype, chunks=True, **options)

    return make


def late(shape, dtype):
    """Return what declares an array that nothing was stored of."""

    def make(file, name):
        creation = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
        creation.set_alloc_time(h5py.h5d.ALLOC_TIME_LATE)
        space = h5py.h5s.create_simple(shape)
        kind = h5py.h5t.py_create(np.dtype(dtype))
        h5py.h5d.create(file.id, name.encode(), kind, space, dcpl=creation)

    return make


def sparse(dtype, n):
    """Return what stores an array contiguously, in a file that grows by holes only."""

    def make(file, name):
        creation = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
        creation.set_layout(h5py.h5d.CONTIGUOUS)
        creation.set_alloc_time(h5py.h5d.ALLOC_TIME_EARLY)
        creation.set_fill_time(h5py.h5d.FILL_TIME_NEVER)
        space = h5py.h5s.create_simple((n,))
        kind = h5py.h5t.py_create(np.dtype(dtype))
        h5py.h5d.create(file.id, name.encode(), kind, space, dcpl=creation)

    return make


def virtual(file, name):
    layout = h5py.VirtualLayout((5, 4, 24), np.float32)
    layout[:] = h5py.VirtualSource("/etc/other.h5", "z", (5, 4, 24))
    file.create_virtual_dataset(name, layout)


def external(file, name):
    file.create_dataset(name, (5,), np.float64, external=[("/etc/passwd", 0, 40)])


def soft_loop(file, name):
    file[name] = h5py.SoftLink("/" + name)


def circle(file):
    del file["samples"]
    file["samples"] = h5py.SoftLink("/other")
    file["other"] = h5py.SoftLink("/samples")


def own_parent(file):
    del file["samples"]
    file["samples"] = file["/"]


def long_attribute(file, name):
    """2 MB, stored densely, as only the newest format can."""
    file.attrs[name] = np.zeros(8000)
    kind = h5py.h5t.C_S1.copy()
    kind.set_size(60_000)
    h5py.h5a.create(file.id, b"more", kind, h5py.h5s.create(h5py.h5s.SCALAR))


def reference(file, name):
    file.attrs.create(name, file["samples"].ref, dtype=h5py.ref_dtype)


def long_text(file, name):
    """30 MB, which HDF5 keeps outside the attribute."""
    file.attrs.create(name, "a" * 30_000_000, dtype=h5py.string_dtype())


def many_attributes(file):
    for i in range(20_000):
        file.attrs[f"a{i}"] = 0
    del file.attrs["n_sites"]


def null(file, name):
    file.attrs[name] = h5py.Empty("f8")


DEEP = "a = " + "[" * 20_000

STRUCTURE = {
    "no group": lambda file: file.__delitem__("samples"),
    "no dataset": lambda file: file.__delitem__("state/z"),
    "a dataset for a group": data("samples", [1.0]),
    "a group for a dataset": replaced("samples/z", lambda f, n: f.create_group(n)),
    "a named type for a dataset": replaced("bins/edges", named_type),
    "a scalar": data("bins/edges", 1.0),
    "a null space": data("bins/edges", h5py.Empty("f8")),
    "fewer axes": data("state/z", np.zeros(3, np.float32)),
    "more axes": data("samples/z", np.zeros((1, 1, 1, 1))),
    "no elements": replaced("samples/z", lambda f, n: f.create_dataset(n, (0, 0, 0), np.float32)),
    "no bins": data("bins/edges", [0.0]),
    "another type": data("bins/edges", np.arange(20)),
    "strings": data("bins/edges", ["a"] * 20),
    "fixed strings": data("ladder/beta", np.array([b"a"] * 4)),
    "a compound": typed("ladder/beta", [("a", "f8")]),
    "variable lengths": typed("ladder/beta", h5py.vlen_dtype("f8")),
    "references": typed("ladder/beta", h5py.ref_dtype),
    "an enumeration": typed("ladder/beta", h5py.enum_dtype({"a": 1})),
    "opaque": typed("ladder/beta", np.dtype("V8")),
    "a huge array in pieces": replaced("samples/z", chunked((HUGE, 4, 24), np.float32)),
    "a huge array never stored": replaced("bins/edges", late((HUGE,), np.float64)),
    "a huge array of holes": replaced("bins/edges", sparse(np.float64, 1 << 36)),
    "a compressed bomb": replaced(
        "bins/edges",
        lambda f, n: f.create_dataset(
            n, data=np.zeros(20_000_000), chunks=(1_000_000,), compression="gzip"
        ),
    ),
    "fill values": replaced("bins/edges", chunked((HUGE,), np.float64, fillvalue=1.0)),
    "virtual": replaced("samples/z", virtual),
    "stored elsewhere": replaced("ladder/beta", external),
    "a link to itself": replaced("samples/z", soft_loop),
    "links in a circle": circle,
    "its own parent": own_parent,
    "a link to another file": replaced(
        "samples", lambda f, n: f.__setitem__(n, h5py.ExternalLink("/etc/other.h5", "/samples"))
    ),
    "a link to nothing": replaced("samples/z", lambda f, n: f.__setitem__(n, h5py.SoftLink("/no"))),
    "format of a number": attribute("format", 3),
    "format of many": attribute("format", ["omniinput-run"] * 4),
    "no version": attribute("format_version", None),
    "version of text": attribute("format_version", "one"),
    "version of many": attribute("format_version", np.arange(3)),
    "no input": attribute("config", None),
    "input of numbers": attribute("config", np.arange(5)),
    "input that is no TOML": attribute("config", "[run"),
    "input without tables": attribute("config", "a = 1"),
    "input of other tables": attribute("config", "run = 3\nmodel = 4"),
    "input nested deeply": attribute("config", DEEP),
    "input of bytes": attribute("config", np.bytes_(b"\xff\xfe")),
    "burn-in of text": attribute("config", '[run]\nburn_in = "x"\n[model]\nkind = "python"'),
    "a reference for the input": attribute("config", reference),
    "an array for the input": attribute("config", long_attribute),
    "a long text for the input": attribute("config", long_text),
    "a path of numbers": attribute("config", '[run]\n[model]\nkind = "causal-lm"\npath = 3'),
    "many attributes": many_attributes,
    "nothing for the input": attribute("config", null),
    "no fingerprint": attribute("model_fingerprint", None),
    "negative values": attribute("n_values", -3),
    "huge values": attribute("n_values", np.uint64(2**64 - 1)),
    "values of many": attribute("n_values", np.arange(2)),
    "no sites": attribute("n_sites", 0),
    "huge sites": attribute("n_sites", HUGE),
    "sites that are no number": attribute("n_sites", np.nan),
    "negative counter": element("progress/rounds_committed", 0, -1),
    "lowest counter": element("progress/rounds_committed", 0, -(2**63)),
    "huge counter": element("progress/rounds_committed", 0, 2**62),
    "negative burn-in": element("progress/burn_in_committed", 0, -5),
    "huge burn-in": element("progress/burn_in_committed", 0, 2**62),
    "edges that are no numbers": every("bins/edges", np.nan),
    "edges all alike": every("bins/edges", 1.0),
    "an infinite edge": element("bins/edges", -1, np.inf),
    "beta that is no number": every("ladder/beta", np.nan),
    "an infinite beta": element("ladder/beta", 0, -np.inf),
}
"""Damage for which every reader refuses a file."""

CONTENT = {
    "beta out of order": element("ladder/beta", slice(None), [4.0, -2.0, 4.0, 0.0]),
    "huge beta": every("ladder/beta", 1e308),
    "huge counts": every("histogram/counts", 2**32 - 1),
    "no counts": every("histogram/counts", 0),
    "huge lane counts": every("histogram/lane_counts", 2**64 - 1),
    "sums of z that are no numbers": every("histogram/z_sum", np.nan),
    "infinite sums of z": every("histogram/z_sum", np.inf),
    "outputs that are no numbers": every("samples/z", np.nan),
    "infinite outputs": every("samples/z", np.inf),
    "values beyond all": every("samples/x", 255),
    "negative counters": together(
        every("samples/walker", -(2**31)),
        every("kernel/attempted", -(2**63)),
        every("exchange/accepted", -(2**63)),
    ),
    "huge counters": together(
        every("exchange/attempted", 2**63 - 1),
        every("exchange/round_trips", 2**62),
        every("ladder/rejection", 1e308),
    ),
    "tiny bins": element("bins/edges", slice(None), np.nextafter(1.0, 2) + np.arange(20) * 2.3e-16),
    "huge bins": element("bins/edges", slice(None), np.linspace(-5e307, 5e307, 20)),
}
"""Readable files with nonsense in them: an answer or a refusal, never a traceback."""

STAYS = {
    "walkers of nobody": every("state/walker", 999),
    "a state of no value": every("state/x", 255),
    "a state of no number": every("state/z", np.nan),
    "directions of nowhere": every("state/direction", -1),
    "inputs of no value": every("samples/x", 255),
}
"""A damaged state is never resumed from, damaged samples are never rescored."""

SIDE = {
    "no dataset": lambda file: file.__delitem__("samples/z"),
    "a group for a dataset": replaced("samples/z", lambda f, n: f.create_group(n)),
    "a scalar": data("samples/z", 1.0),
    "fewer axes": data("samples/z", np.zeros(3, np.float32)),
    "another type": data("samples/z", np.zeros((5, 4, 24))),
    "strings": data("samples/z", ["a"] * 20),
    "a huge array in pieces": replaced("samples/z", chunked((HUGE, 4, 24), np.float32)),
    "a huge array never stored": replaced("samples/z", late((HUGE, 4, 24), np.float32)),
    "virtual": replaced("samples/z", virtual),
    "a link to itself": replaced("samples/z", soft_loop),
    "links in a circle": circle,
    "a link to another file": replaced(
        "samples", lambda f, n: f.__setitem__(n, h5py.ExternalLink("/etc/other.h5", "/samples"))
    ),
    "no counter": lambda file: file.__delitem__("progress"),
    "a counter of text": data("progress/rounds_committed", ["a"]),
    "many counters": data("progress/rounds_committed", np.zeros(7, np.int64)),
    "huge counter": element("progress/rounds_committed", 0, 2**62),
    "negative counter": element("progress/rounds_committed", 0, -1),
    "format of many": attribute("format", ["omniinput-rescored"] * 4),
    "no version": attribute("format_version", None),
    "version of text": attribute("format_version", "one"),
    "no input": attribute("config", None),
    "input that is no TOML": attribute("config", "[run"),
    "input nested deeply": attribute("config", DEEP),
    "an array for the input": attribute("config", long_attribute),
    "no fingerprint": attribute("model_fingerprint", None),
    "another run": attribute("run_created", 3),
}
"""What makes a file of rescored samples none."""


def of_side(**fields):
    return lambda side: replace(side, **fields)


def input_of(text):
    return lambda side: replace(side, attributes={**side.attributes, "config": text})


def attribute_of(name, value):
    return lambda side: replace(side, attributes={**side.attributes, name: value})


def sized(**sizes):
    """Return a change of the geometry, and of all places with it."""

    def change(side):
        g = replace(side.geometry, **sizes)
        places = {
            name: Place(side.places[name].offset, field.shape, np.dtype(field.dtype).str)
            for name, field in layout(g).items()
        }
        return replace(side, geometry=g, places=places, n_bytes=1 << 59)

    return change


def without_walkers(side):
    names = fields_of(side.geometry, IN_TURN)
    return replace(side, slabs={n: v for n, v in side.slabs.items() if n not in names})


def moved(name, offset):
    def change(side):
        places = {**side.places, name: replace(side.places[name], offset=offset)}
        return replace(side, places=places)

    return change


def huge_and_empty(side):
    return replace(sized(rounds=1 << 40)(without_walkers(side)), rounds=0, burn_in=0)


CHECKPOINT = {
    "no input": input_of(""),
    "input that is no TOML": input_of("[run"),
    "input without tables": input_of("a = 1"),
    "input of other tables": input_of("run = 3"),
    "input nested deeply": input_of(DEEP),
    "input of a long number": input_of("[run]\nburn_in = " + "9" * 5000),
    "burn-in of text": input_of("[run]\nburn_in = 'x'"),
    "a table for an attribute": attribute_of("created", {"a": 1}),
    "nothing for an attribute": attribute_of("created", None),
    "a huge number for an attribute": attribute_of("created", 10**40),
    "a long text for an attribute": attribute_of("created", "a" * 3_000_000),
    "rounds without walkers": without_walkers,
    "more rounds than there is room for": of_side(rounds=6),
    "more burn-in than planned": of_side(burn_in=4),
    "rounds before burn-in has ended": of_side(burn_in=1),
    "negative rounds": of_side(rounds=-1),
    "rounds of text": of_side(rounds="many"),
    "no rungs": sized(n_rungs=0),
    "no bins": sized(n_bins=0),
    "many rungs": sized(n_rungs=1 << 40),
    "many rounds": sized(rounds=1 << 40),
    "many rounds and none committed": huge_and_empty,
    "a place beyond the file": moved("samples/x", 1 << 58),
    "a place before the file": moved("samples/x", -8),
    "a place at the file's end": moved("samples/x", 1 << 17),
}
"""What makes a side file, whose checksum fits, no second checkpoint."""
