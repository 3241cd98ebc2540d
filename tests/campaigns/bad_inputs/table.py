"""Broken input files and command lines: how each is called, and what its message must hold."""

from __future__ import annotations

import shutil
from pathlib import Path

import h5py
from run_tools import LATTICE, ROOT

LONG = "a" * 300
CHANGES = {
    # [run]
    "run.output=runs/a.csv": "run.output",
    "run.output=3": "run.output",
    "run.output={folder}": "is a folder",
    "run.output={toml}/run.h5": "is not a folder",
    "run.output={other}": "not an omniinput_hpc run",
    "run.output={text}": "not a readable HDF5",
    f"run.output={LONG}.h5": "cannot be used: File name too long",
    "run.seed=-1": "run.seed",
    "run.seed=4294967296": "run.seed",
    "run.seed=1.5": "run.seed",
    "run.rounds=0": "run.rounds",
    "run.rounds=ten": "run.rounds",
    "run.rounds=true": "run.rounds",
    "run.rondes=3": 'run.rondes: unknown key (did you mean "rounds"?)',
    "run.burn_in=-1": "run.burn_in",
    "run.threads=0": "run.threads",
    "run.device=gpu": "run.device",
    "run.writer=hdf5": "run.writer",
    # [model]
    "model.kind=causal_lm": 'did you mean "causal-lm"?',
    "model.kind=3": "model.kind",
    "model.factory=toy_models": "model.factory",
    "model.factory=nowhere:make": "no module nowhere",
    "model.factory=toy_models:nothing": "has no function",
    "model.options.colour=3": "model.options",
    "model.options=3": "model.options",
    "model.factory=toy_models:wrong_shape": "float32 [8]",
    "model.factory=toy_models:no_sites": "n_sites",
    # [sampler]
    "sampler.method=tempering": "sampler.method",
    "sampler.walkers=0": "sampler.walkers",
    "sampler.walkers=2.5": "sampler.walkers",
    "sampler.walkers=many": 'sampler.walkers: expected a whole number of at least 1, or "auto"',
    "sampler.walkers=true": "sampler.walkers",
    "sampler.steps=0": "sampler.steps",
    "sampler.exchanges=0": "sampler.exchanges",
    "sampler.exchanges=2000000000": "sampler.exchanges",
    "sampler.method=ancestral": "samples.every",
    "sampler.method=wang-landau": "run.burn_in",
    # [ladder]
    "ladder.betas=[]": "ladder.betas",
    "ladder.betas=[1.0, 0.0, 2.0, 3.0]": "ladder: expected betas in strictly ascending order",
    "ladder.betas=[0.0, inf, 1.0, 2.0]": "ladder.betas[1]",
    "ladder.betas=[nan]": "ladder.betas[0]",
    "ladder.betas=1.0": "ladder.betas",
    "ladder.betas=[0.0, 1.0, 2.0]": "3 rungs",
    "ladder.rungs=4": "ladder: give either betas or rungs",
    "ladder.tune=yes": "ladder.tune",
    "ladder.anchors=1": "ladder.anchors",
    "ladder.kappa=[1.0, 1.0, 1.0, 1.0]": "both kappa and z0",
    "ladder.kappa=[-1.0, 1.0, 1.0, 1.0]": "ladder.kappa[0]",
    "ladder.z0=[0.0]": "both kappa and z0",
    # [kernel]
    "kernel.name=metropols": 'did you mean "metropolis"?',
    "kernel.sites=0": "kernel.sites",
    "kernel.sites=7": "kernel.sites = 7",
    "kernel.step_size=1.0": "kernel.step_size: unknown key",
    "kernel.name=gibbs-with-gradients": "needs a model with output_and_gradient",
    "kernel.name=discrete-langevin": "needs a model with output_and_gradient",
    "kernel.name=lm-conditional": "needs an autoregressive model with conditional_logits",
    "kernel.name=mixture": "kernel.parts: missing",
    # [bins], [samples], others
    "bins.lower=9.0": "bins: lower = 9 must be below upper",
    "bins.lower=nan": "bins.lower",
    "bins.width=0.0": "bins.width",
    "bins.width=0.24": "bins: the range",
    "bins.width=1e-9": "bins:",
    "samples.every=0": "samples.every",
    "samples.every=16": "samples.every = 16",
    "sample.every=3": 'sample: unknown key (did you mean "samples"?)',
    "wang_landau.windows=2": "[wang_landau] is for sampler.method",
    # the command line itself
    "rounds=3": "--set rounds=3",
    "run.rounds": "--set run.rounds",
    "run.seed.x=3": "--set run.seed.x: seed is not a table",
}
"""``--set`` of the lattice model's input file, each alone; "{...}" names a place (see `places`)."""

KERNELS = {
    "a part of no name": ('name = "mixture"\nparts = [{ sites = 1, name = "gibbs" }]', "parts[0]"),
    "no parts": ('name = "mixture"\nparts = []', "kernel.parts"),
    "a part of no weight": (
        'name = "mixture"\nparts = [{ name = "metropolis", weight = 0.0 }]',
        "kernel.parts[0].weight",
    ),
    "a mixture in a mixture": ('name = "mixture"\nparts = [{ name = "mixture" }]', "parts[0].name"),
    "a part without gradients": (
        'name = "mixture"\nparts = [{ name = "discrete-langevin" }]',
        "needs a model with output_and_gradient",
    ),
    "a part without conditionals": (
        'name = "mixture"\nparts = [{ name = "lm-conditional" }]',
        "needs an autoregressive model with conditional_logits",
    ),
    "a step too small": ('name = "discrete-langevin"\nstep_size = 0.0', "kernel.step_size"),
    "a proposal of one beta": (
        'name = "discrete-langevin"\nproposal_beta = [1.0]',
        "kernel.proposal_beta",
    ),
    "a proposal upside down": (
        'name = "discrete-langevin"\nproposal_beta = [2.0, 1.0]',
        "kernel.proposal_beta",
    ),
    "weights of nothing": ('name = "lm-conditional"\nweights = { site = 0.0 }', "kernel.weights"),
    "weights of another name": (
        'name = "lm-conditional"\nweights = { sites = 1.0 }',
        "kernel.weights.sites: unknown key",
    ),
    "lengths upside down": (
        'name = "lm-conditional"\nblock_lengths = [8, 2]',
        "kernel.block_lengths",
    ),
}
"""Tables ``[kernel]`` of the lattice model's input file."""

WANG_LANDAU = {
    "empty windows": ("windows = []", "wang_landau: windows is empty"),
    "windows apart": ("windows = [[0.0, 1.0], [2.0, 3.0]]", "do not overlap"),
    "a window upside down": ("windows = [[2.0, 1.0]]", "low must be below high"),
    "a window beyond the bins": ("windows = [[100.0, 101.0]]", "wang_landau.windows"),
    "too many windows": ("windows = 40", "wang_landau.windows = 40"),
    "all overlap": ("overlap = 1.0", "wang_landau.overlap"),
    "flatness": ("flatness = 1.5", "wang_landau.flatness"),
    "ln f upside down": ("ln_f_first = 0.001\nln_f_last = 0.01", "ln_f_last"),
    "no schedule": ('schedule = "t"', "wang_landau.schedule"),
    "a proposal without beta": ('proposal = "range"', "proposal_beta"),
    "tuned": ("\n[ladder]\nbetas = [0.0]\ntune = true", "ladder.tune"),
}
"""Tables ``[wang_landau]`` of a run by that method."""

TEXTS = {
    "no TOML": ("[run", "not valid TOML"),
    "two of a key": ("a = 1\na = 2", "not valid TOML"),
    "nothing": ("", "run: missing"),
    "no text": (b"\xff\xfe\x00", "not a text file"),
    "nested deeply": ("a = " + "[" * 30_000, "not valid TOML"),
    "tables that are none": ("run = 3\nmodel = 4", "run: expected a table"),
}
"""Whole input files."""

MODELS = {
    "no folder": ("inputs/toy.toml", "model.path=nowhere", "model.path = nowhere"),
    "an empty folder": ("inputs/toy.toml", "model.path={empty}", "no config.json"),
    "too long": ("inputs/toy.toml", "model.length=9", "model.length = 9"),
    "too short": ("inputs/toy.toml", "model.length=1", "model.length"),
    "no dtype": ("inputs/toy.toml", "model.dtype=float8", "model.dtype"),
    "a prefix of no token": ("inputs/toy.toml", "model.prefix=[99999]", "model.prefix"),
    "a python model's key": ("inputs/toy.toml", "model.factory=a:b", "model.factory: unknown key"),
    "no label": ("inputs/digits-mlp.toml", "model.label=-1", "model.label"),
    "a class that is not there": ("inputs/digits-mlp.toml", "model.label=99", "model.label"),
    "no sign": ("inputs/digits-mlp.toml", "model.sign=0", "model.sign"),
    "no target": ("inputs/digits-mlp.toml", "model.target=logits", "model.target"),
    "a shape too many": (
        "inputs/digits-mlp.toml",
        "model.shape=[8, 8]",
        "shape and n_values are in",
    ),
    "no images' folder": ("inputs/digits-mlp.toml", "model.path=nowhere", "model.path"),
    "no classifier": ("inputs/distilbert-66.toml", "model.path=nowhere", "model.path = nowhere"),
    "no class": ("inputs/distilbert-66.toml", "model.target=-1", "model.target"),
}
"""Other kinds of models: an input file, a change of it, and the word."""

LINES = {
    "no such file": (["nowhere.toml"], "nowhere.toml"),
    "a folder": (["."], "is a directory"),
    "a name that is too long": ([f"{LONG}.toml"], "cannot be read: File name too long"),
    "a run file of such a name": ([f"{LONG}.h5"], "cannot be read: File name too long"),
    "no argument": ([], "required"),
    "an unknown option": (["{toml}", "--fast"], "--fast"),
    "two files": (["{toml}", "{toml}"], "unrecognized arguments"),
    "restart maybe": (["{toml}", "--restart", "maybe"], "--restart"),
    "restart require": (["{toml}", "--restart", "require"], "--restart require"),
    "walltime soon": (["{toml}", "--max-walltime", "soon"], "--max-walltime"),
    "walltime negative": (["{toml}", "--max-walltime", "-1"], "--max-walltime"),
    "walltime nan": (["{toml}", "--max-walltime", "nan"], "--max-walltime"),
    "a run file that is none": (["{other}"], "not an omniinput_hpc run"),
    "verify nothing": (["--verify", "nowhere.h5"], "nowhere.h5"),
    "verify text": (["--verify", "{text}"], "not a readable HDF5"),
    "rescore without verify": (["{toml}", "--rescore", "10"], "--rescore"),
    "rescore none": (["--verify", "{other}", "--rescore", "-1"], "--rescore"),
}
"""Command lines."""


def places(folder):
    """Make what the command lines name; return the places by name."""
    folder = Path(folder)
    found = {"toml": folder / "lattice.toml", "out": folder / "out.h5"}
    found["toml"].write_text(LATTICE.format(output=found["out"]))
    for name in ("empty", "folder"):
        found[name] = folder / (name + ".h5" * (name == "folder"))
        found[name].mkdir()
    found["text"], found["other"] = folder / "text.h5", folder / "other.h5"
    found["text"].write_text("hello")
    with h5py.File(found["other"], "w") as file:
        file["data"] = [1, 2, 3]
    return found


def cases(found):
    """Return every case, by name: the arguments, and a word of its message."""
    table = {}

    def file(name, content):
        path = found["toml"].with_name(f"{len(table)}.toml")
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return path

    lattice = found["toml"].read_text()
    for change, word in CHANGES.items():
        table[f"--set {change}"] = (["{toml}", "--set", change], word)
    for name, (text, word) in KERNELS.items():
        table[f"[kernel] {name}"] = ([file(name, f"{lattice}\n[kernel]\n{text}\n")], word)
    flat = lattice.replace("[sampler]", '[sampler]\nmethod = "wang-landau"')
    flat = flat.replace("burn_in = 3", "burn_in = 8")
    ladder = flat[flat.index("[ladder]") : flat.index("[bins]")]
    for name, (text, word) in WANG_LANDAU.items():
        base = flat.replace(ladder, "") if "[ladder]" in text else flat
        table[f"[wang_landau] {name}"] = ([file(name, f"{base}\n[wang_landau]\n{text}\n")], word)
    for name, (text, word) in TEXTS.items():
        table[f"a file: {name}"] = ([file(name, text)], word)
    for name, (path, change, word) in MODELS.items():
        words = [ROOT / path, "--set", change, "--set", "run.output={out}"]
        table[f"[model] {name}"] = (words, word)
    for name, (words, word) in LINES.items():
        table[f"line: {name}"] = (words, word)
    without = "ladder.betas=[0.0, 1.0, 2.0, 3.0]"
    words = ["sampler.method=ancestral", "samples.every=1", "ladder.anchors=true", without]
    table["ancestral without conditionals"] = (
        ["{toml}", *(part for one in words for part in ("--set", one))],
        "conditional",
    )
    return {
        name: ([str(word).format(**found) if "{" in str(word) else str(word) for word in words], w)
        for name, (words, w) in table.items()
    }


def is_refused(code, text, word):
    """Whether this was bad input, told in one plain message that holds the word."""
    return code == 2 and word in text and "Traceback" not in text and text.count("hpc: ") == 1


def left_alone(found):
    """Whether nothing was made or changed beside what was there."""
    return not found["out"].exists() and not shutil.os.path.exists(f"{found['out']}.lock")
