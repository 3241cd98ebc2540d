"""The command ``omniinput VERB``, also available as ``python -m omniinput_hpc VERB``.

A verb's module is imported when it is called: this file imports neither MPI nor torch nor numpy.
"""

from __future__ import annotations

import difflib
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import import_module

from omniinput_hpc.errors import EXIT_BAD_INPUT, EXIT_COMPLETE
from omniinput_hpc.parallel import launched
from omniinput_hpc.parallel.signals import request
from omniinput_hpc.plugins import collect_rarely
from omniinput_hpc.text import __version__, print_any_text

OFFLINE, RUN = "omniinput_hpc.cli.verbs", "omniinput_hpc.cli.run"


@dataclass(frozen=True)
class Verb:
    """A verb: its description, and the module with its ``main(arguments, program)``.

    Attributes
    ----------
    what : its line in the list of verbs
    module : its module, if that imports MPI or torch; "": the module of its name in `cli.verbs`
    stops : whether SIGTERM, SIGUSR1 and SIGINT ask it to stop cleanly
    """

    what: str
    module: str = ""
    stops: bool = False


def _run_verb(what: str) -> Verb:
    return Verb(what, RUN, stops=True)


GROUPS = {
    "Before a run": {
        "example": Verb("copy an input file and its model to this folder"),
        "init": Verb("try a model for some minutes and write an input file for it",
                     "omniinput_hpc.cli.init", stops=True),
        "check": _run_verb("check an input file, try its model, print the plan"),
        "doctor": _run_verb("check this machine and a folder"),
        "benchmark": Verb("compare all sampling methods on models whose density is known",
                          "omniinput_zoo.benchmark.command"),
    },
    "Runs (also under mpirun)": {
        "run": _run_verb("sample a model's whole input space, or resume after the last round"),
        "rescore": Verb("evaluate a run's recorded samples with another model",
                        "omniinput_hpc.cli.rescore", stops=True),
        "enumerate": Verb("evaluate every input of a small space", "omniinput_hpc.cli.enumerate"),
        "census": Verb("find every input of an autoregressive model with an output up to Z",
                       "omniinput_zoo.census.command", stops=True),
    },
    "Run files": {
        "verify": _run_verb("check that a run file is consistent"),
        "salvage": _run_verb("recover the rounds of a damaged run file"),
    },
    "Estimates": {
        "reweight": Verb("how many inputs get each output: the density"),
        "precision-recall": Verb("the precision-recall curve over all inputs"),
        "diagnose": Verb("how well a run mixes, and what to change"),
        "representatives": Verb("some inputs of each bin of the output"),
        "average": Verb("the mean of an observable at each output"),
        "joint": Verb("the joint density of the output and an observable"),
        "observe": Verb("compute an observable of all recorded inputs, once"),
        "test-sets": Verb("evaluate a model on test sets: outputs, AUPR, AUROC",
                          "omniinput_hpc.cli.test_sets"),
        "overlay": Verb("draw the densities of several runs in one picture"),
        "report": Verb("one HTML page about one or more runs"),
        "explore": Verb("serve this page with all recorded inputs of a run"),
        "export": Verb("results and inputs for Every Eval Ever, Inspect, Hugging Face's datasets"),
    },
    "Scores of people and judges": {
        "choose": Verb("draw the inputs to be scored"),
        "annotate": Verb("serve the page where a person scores them"),
        "judge": Verb("let a program score them"),
        "scores": Verb("export and import scores: CSV, Label Studio, Inspect"),
        "agreement": Verb("how far judges agree with people"),
        "annotators": Verb("how far people agree, and whether more scores would change the curve"),
        "next-scores": Verb("where further scores help most"),
        "bank": Verb("collect scores of several runs, and weigh them for any of their models"),
    },
    "Two models or more": {
        "compare": Verb("compare curves of models, or two runs of one model"),
        "normalize": Verb("put the densities of two models on one scale"),
        "difference": Verb("how far the outputs of two models differ, over the inputs of either"),
        "changes": Verb("outputs of another model for a run's independent draws"),
    },
}  # fmt: skip
VERBS = {name: verb for group in GROUPS.values() for name, verb in group.items()}
WITHOUT_MPI = ("verify", "salvage")
"""Verbs for which `cli.verbs` also has a module that works in one process without MPI."""


def main(argv: Sequence[str] | None = None, program: str = "omniinput") -> int:
    """Call a verb and return its exit code; `program` is the name of the command in messages.

    ``python -m omniinput_hpc`` also accepts arguments without a verb.
    """
    collect_rarely()
    print_any_text()
    given = list(sys.argv[1:] if argv is None else argv)
    name = given[0].replace("_", "-") if given else ""
    if name in VERBS:
        return call(name, given[1:], f"{program} {name}")
    if program != "omniinput":
        return _with_extra_run(VERBS["run"], given, {})
    if name in ("-h", "--help"):
        print(help_text(program))
        return EXIT_COMPLETE
    if name == "--version":
        print(f"omniinput_hpc {__version__}")
        return EXIT_COMPLETE
    problem = f"unknown command {given[0]}{_meant(given[0])}" if given else "no command given"
    print(f"{program}: {problem}\n{program} --help lists all commands", file=sys.stderr)
    return EXIT_BAD_INPUT


def call(name: str, arguments: list[str], program: str) -> int:
    """Call a verb by its name and return its exit code."""
    verb = VERBS[name]
    if verb.module:
        options = {"program": program}
        if verb.module == RUN:
            options["verb"] = name
        if not (name in WITHOUT_MPI and _missing(verb, arguments)):
            return _with_extra_run(verb, arguments, options)
    from omniinput_hpc.cli.scripts import run_script

    module = import_module(f"{OFFLINE}.{name.replace('-', '_')}")
    return run_script(lambda words: module.main(words, program), arguments)


def _with_extra_run(verb: Verb, arguments: list[str], options: dict[str, str]) -> int:
    """Call the ``main`` of a verb whose module imports MPI or torch."""
    problem = _missing(verb, arguments)
    if problem:
        print(f"error: {problem}", file=sys.stderr)
        return EXIT_BAD_INPUT
    if verb.stops:  # again: MPICH's initialization installs a SIGUSR1 handler that hangs
        request.install()
    code: int = import_module(verb.module).main(arguments, **options)
    if verb.stops:  # at shutdown the interpreter restores handlers that would kill it
        request.ignore()
    return code


def _missing(verb: Verb, arguments: list[str]) -> str:
    """Import a verb's module; return "", or which library is missing and how to install it."""
    if verb.stops:  # a signal during the slow import of torch and mpi4py would kill
        request.install()
        if verb.module not in sys.modules:
            launched.announce_imports(arguments)
    try:
        import_module(verb.module)
    except ModuleNotFoundError as error:
        from omniinput_hpc.cli.scripts import how_to_install  # imports numpy

        return f"{error.name} is not installed: {how_to_install('run')}"
    except (ImportError, RuntimeError) as error:  # which one depends on how mpi4py was built
        if "mpi" not in str(error).lower():
            raise
        return (
            f"mpi4py finds no MPI library ({error}): load the MPI that it was built with, or "
            "install one: python -m pip install mpich"
        )
    return ""


def help_text(program: str) -> str:
    """Return the list of verbs."""
    width = max(map(len, VERBS)) + 2
    what = "Sample a model's whole input space; estimate its density, precision and recall."
    lines = [f"usage: {program} VERB ...", "", what]
    for title, verbs in GROUPS.items():
        lines += ["", f"{title}:"]
        lines += [f"  {name:{width}}{verb.what}" for name, verb in verbs.items()]
    lines += [
        "", f"{program} VERB --help describes a verb, with an example and defaults.",
        f"{program} --version shows the version.",
        "", "example:", f"  {program} check inputs/toy.toml",
    ]  # fmt: skip
    return "\n".join(lines)


def _meant(word: str) -> str:
    if word.endswith(".toml"):
        return f"; did you mean: run {word}"
    close = difflib.get_close_matches(word.replace("_", "-"), VERBS, n=1)
    return f"; did you mean: {close[0]}" if close else ""
