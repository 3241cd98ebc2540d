"""Untrusted input files: TOML that is deep, huge, or of long numbers."""

from __future__ import annotations

import os

from run_tools import LATTICE

LONG, LONGER = "9" * 400, "9" * 5000
NUMBERS = {
    "run.seed": [LONG, LONGER, "0x" + "f" * 5000, "1e400", "nan"],
    "run.rounds": [LONG, LONGER, "inf", "9223372036854775808"],
    "run.burn_in": [LONG, "9223372036854775807"],
    "run.threads": [LONG, "2147483647", "1000000"],
    "sampler.walkers": [LONG, LONGER, "1000000000000", "9223372036854775807"],
    "sampler.steps": [LONG, "9223372036854775807", "1000000000000"],
    "sampler.exchanges": [LONG, "9223372036854775807"],
    "samples.every": [LONG, "9223372036854775807", LONGER],
    "bins.width": ["1e-300", "5e-324", LONG, "nan", "-inf"],
    "bins.lower": ["-1e308", LONG, "nan"],
    "bins.upper": ["1e308", LONGER, "inf"],
    "kernel.sites": [LONG, "9223372036854775807", "1000000000000"],
    "ladder.betas": ["[" + "0.0," * 20_000 + "]", f"[{LONG}]", f"[0.0, {LONGER}]", "[1e400, 2.0]"],
}
"""Values by key: a file each."""
RUNGS = {
    "10^6 rungs": 'lowest = 0.0\nhighest = 1.0\nspacing = "linear"\nrungs = 1_000_000',
    "10^12 rungs": 'lowest = 0.0\nhighest = 1.0\nspacing = "linear"\nrungs = 1_000_000_000_000',
    "rungs of 400 digits": f'lowest = 0.0\nhighest = 1.0\nspacing = "linear"\nrungs = {LONG}',
    "rungs of 5,000 digits": f'lowest = 0.0\nhighest = 1.0\nspacing = "linear"\nrungs = {LONGER}',
    "geometric, 10^12": 'lowest = 1.0\nhighest = 2.0\nspacing = "geometric"\nrungs = 1' + "0" * 12,
    "16,000 betas that descend": f"betas = [{', '.join(f'{-i}.0' for i in range(16_000))}]",
    "kappa of 400 digits": f"betas = [0.0, 1.0]\nkappa = [{LONG}, 0.0]\nz0 = [0.0, 0.0]",
}
FLAT = {
    "10^12 windows": "windows = 1_000_000_000_000",
    "10^6 windows": "windows = 1_000_000",
    "windows of 5,000 digits": f"windows = {LONGER}",
    "30,000 windows": f"windows = [{', '.join(f'[{i}.0, {i + 2}.0]' for i in range(20_000))}]",
}
TEXTS = {
    "deep lists": "a = " + "[" * 100_000,
    "closed lists": "a = " + "[" * 60 + "]" * 60,
    "deep tables": "a = " + "{b = " * 100_000,
    "closed tables": "a = " + "{b = " * 60 + "1" + "}" * 60,
    "a key of 100,000 dots": "a." * 100_000 + "a = 1",
    "a table of 100,000 dots": "[" + "a." * 100_000 + "a]",
    "2,000 tables of 30 dots": "\n".join(f"[t{i}{'.a' * 29}]" for i in range(2000)),
    "40,000 unknown keys": "\n".join(f"a{i} = 1" for i in range(40_000)),
    "a megabyte": "# " + "x" * (1 << 20),
    "a megabyte of digits": "a = " + "9" * (1 << 19),
    "half a megabyte of a string": f'a = "{"x" * 500_000}"',
    "100,000 quotation marks": '"' * 100_000,
    "zeros": "\0" * 1000,
    "50,000 brackets that close": "]" * 50_000,
}
OPTIONS = {
    "deep options": "options = " + "{a = " * 50 + "1" + "}" * 50,
    "options of long numbers": f"options = {{ a = {LONG} }}",
    "options of many numbers": "options = { a = [" + "1," * 60_000 + "] }",
}


def cases(folder):
    """Return by name the arguments of a run of each input file."""
    out = folder / "out.h5"
    lattice, found = LATTICE.format(output=out), {}

    def file(name, text):
        path = folder / f"{len(found)}.toml"
        path.write_text(text)
        found[f"TOML: {name}"] = [path]

    for key, values in NUMBERS.items():
        table, _, last = key.partition(".")
        for value in values:
            file(f"{key} = {value[:12]} ({len(value)})", with_key(lattice, table, last, value))
    ladder = lattice[lattice.index("[ladder]") : lattice.index("[bins]")]
    for name, text in RUNGS.items():
        file(name, lattice.replace(ladder, f"[ladder]\n{text}\n"))
    flat = lattice.replace("[sampler]", '[sampler]\nmethod = "wang-landau"')
    for name, text in FLAT.items():
        flat_now = flat.replace("burn_in = 3", "burn_in = 8").replace(ladder, "")
        file(name, f"{flat_now}\n[wang_landau]\n{text}\n")
    for name, text in TEXTS.items():
        file(name, f"{lattice}\n{text}\n" if "keys" in name else text)
    for name, text in OPTIONS.items():
        file(name, lattice.replace("[sampler]", f"{text}\n[sampler]"))
    for name, make in {
        "a pipe": os.mkfifo,
        "/dev/zero": lambda path: path.symlink_to("/dev/zero"),
        "a terabyte of holes": lambda path: _holes(path),
    }.items():
        path = folder / f"{len(found)}.toml"
        make(path)
        found[f"TOML: {name}"] = [path]
    good = folder / "good.toml"
    good.write_text(lattice)
    for value in (f"run.seed={LONGER}", "run.seed=" + "[" * 50_000, "a." * 50_000 + "b=1"):
        found[f"--set {value[:20]}"] = [good, "--set", value]
    return found


def with_key(text, table, key, value):
    """Return the input file with another value of a key."""
    lines, here, done = [], "", False
    for line in text.splitlines():
        if line.startswith("["):
            here = line.strip("[]")
            lines.append(line)
            if here == table:
                lines.append(f"{key} = {value}")
                done = True
        elif not (here == table and line.partition("=")[0].strip() == key):
            lines.append(line)
    return "\n".join([*lines, *([] if done else [f"[{table}]", f"{key} = {value}"])])


def _holes(path):
    with path.open("wb") as file:
        file.truncate(1 << 40)
