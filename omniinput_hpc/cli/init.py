"""Write an input file for a model: ``omniinput init MODEL``.

A pilot of a minute chooses the settings. MODEL is a Hugging Face folder or name, a folder of an
image classifier, a file of weights, or a ``module:function``. No existing file is overwritten.
"""

from __future__ import annotations

import argparse
import logging
import shlex
import time
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import tomli_w

from omniinput_hpc import models
from omniinput_hpc.cli import arguments, common
from omniinput_hpc.config import CausalLm, Config, input_file
from omniinput_hpc.config.output import Difference
from omniinput_hpc.errors import EXIT_COMPLETE, StopRun, UserError
from omniinput_hpc.parallel.comm import World
from omniinput_hpc.parallel.signals import request
from omniinput_hpc.parallel.stopping import StopCheck
from omniinput_hpc.pilot import commented, draws, model_table, proposal, question
from omniinput_hpc.pilot.proposal import Aim
from omniinput_hpc.pilot.question import QUESTIONS
from omniinput_hpc.sampling import build
from omniinput_hpc.text import duration, sentence, shown_path

log = logging.getLogger("omniinput_hpc")

PROGRAM = "omniinput init"
SECONDS = 60.0
"""Approximate duration of the pilot."""
SETTABLE = proposal.GIVEN
"""Tables whose keys may be given with --set; the pilot chooses the rest."""
TABLES = ", ".join(f"[{name}]" for name in SETTABLE)
CHOSEN = ("rounds", "burn_in")
"""Keys of [run] that may not be given, since the pilot chooses them."""


MODEL_HELP = """a folder, a name on the hub, a Potts model (*.dat, *.npz), a file of weights
(*.gguf; *.safetensors with --set model.factory=module:function), or
module:function for your own model (docs/tutorial.md, section 7)"""


def main(
    argv: Sequence[str] | None = None, world: World | None = None, program: str = PROGRAM
) -> int:
    """Run the program and return its exit code; `program` is the command as typed."""
    return common.main(partial(_run, program=program), argv, world)


def _run(world: World, argv: Sequence[str] | None, program: str) -> int:
    args = world.together(lambda: _arguments(world, argv, program))
    if world.size > 1:
        raise UserError("init runs in one process: start it without mpirun")
    begin = time.monotonic()
    name = args.output.stem if args.output else model_table.name_of(args.model)
    output = args.output or Path(f"{name}.toml")
    _check_output(output)
    from omniinput_hpc.models.checked import NonFiniteOutput  # imports torch

    config = _first_config(args)
    config, notes = _with_beginning(config, args)
    about = models.preflight(config)
    built = build.build(world, config, about.get("folder"))
    stopping = StopCheck(request, world, None)
    aim = Aim(args.errors, args.hours, args.end, args.method)
    try:
        found = proposal.make(world, built, aim, args.seconds, stopping)
    except StopRun as stop:
        stop.outcome = "nothing was written"
        raise
    except NonFiniteOutput as error:
        raise UserError(f"{args.model}: {error}") from None
    if args.side:
        found = replace(found, side=args.side)
    g = built.geometry
    written_by = (
        f"Written by `{program} {shlex.quote(args.model)}` after a pilot of "
        f"{duration(time.monotonic() - begin)} on {built.device}: {g.n_sites} sites of "
        f"{g.n_values:,} values."
    )
    notes += map(sentence, models.about_tokens(built.config))
    run_file = config.run.output if _is_set(args, "run.output") else f"runs/{name}.h5"
    text = commented.text(found, run_file, aim, [written_by, *notes])
    input_file.parse(text, str(output))  # raises if the text is not a valid input
    _write(output, text)
    for line in [*notes, *commented.summary(found)]:
        print(line)
    # the script starts a process per core; a wheel has none
    start = "bash jobscripts/local.sh" if Path("jobscripts/local.sh").is_file() else "omniinput run"
    print(f"{output} is written. Next: {start} {shown_path(output)}")
    return EXIT_COMPLETE


def _first_config(args: argparse.Namespace) -> Config:
    """Return the input from which the model is built, or raise a UserError."""
    for assignment in args.set:
        table, _, key = assignment.partition("=")[0].strip().partition(".")
        if table not in SETTABLE or (table == "run" and key in CHOSEN):
            raise UserError(
                f"--set {assignment}: init accepts keys of {TABLES}, except {', '.join(CHOSEN)}; "
                "change the others in the file that it writes"
            )
    options = {name: getattr(args, name) for names in QUESTIONS.values() for name in names}
    asked = question.tables(args.question, options)
    own = _is_set(args, "model.factory")
    table = model_table.of(args.model, args.kind, args.length, own=own)
    text = tomli_w.dumps(proposal.first_input(table, asked))
    return input_file.parse(text, args.model, args.set)


def _is_set(args: argparse.Namespace, key: str) -> bool:
    return any(one.partition("=")[0].strip() == key for one in args.set)


def _with_beginning(config: Config, args: argparse.Namespace) -> tuple[Config, list[str]]:
    """Return the input with the tokens that begin every text as its prefix, and a note.

    A prefix that the input already has is kept.
    """
    from omniinput_hpc.models.language import token_notes

    options = config.model
    if not isinstance(options, CausalLm) or options.prefix is not None:
        return config, []
    begins = token_notes.beginning_of(options)
    if begins is None:
        return config, []
    update: dict[str, Any] = {"prefix": begins.prefix}
    chosen = args.length is not None or _is_set(args, "model.length")
    if not chosen and options.length < model_table.LENGTH:  # it fills all positions
        update["length"] = max(options.length - len(begins.ids), 2)
    note = (
        f"The tokenizer begins every text with {begins.name}: model.prefix puts it before inputs."
    )
    changed: dict[str, Any] = {"model": options.model_copy(update=update)}
    output = config.output
    if isinstance(output, Difference) and isinstance(output.other, CausalLm):
        other = output.other.model_copy(update=update)
        changed["output"] = output.model_copy(update={"other": other})
    return config.model_copy(update=changed), [note]


def _check_output(output: Path) -> None:
    if output.suffix != ".toml":
        raise UserError(f"--output {output}: the name must end with .toml")
    if output.exists() or output.is_symlink():
        raise UserError(f"{output} exists; choose another --output, or move it away")
    if not output.parent.is_dir():
        raise UserError(f"--output {output}: the folder {output.parent} does not exist")


def _write(output: Path, text: str) -> None:
    try:
        with output.open("x", encoding="utf-8") as file:
            file.write(text)
    except FileExistsError:
        raise UserError(f"{output} exists; choose another --output, or move it away") from None
    except OSError as error:
        raise UserError(f"{output} cannot be written: {error.strerror}") from None


def _add_question(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument_group("a question (docs/questions.md)").add_argument
    add("--question", choices=QUESTIONS, help="what the density is to tell (default: the losses)")
    add("--targets", nargs="+", metavar="TOKEN", help="next: texts of one token each")
    add("--after", metavar="TEXT", help="next: fixed text between an input and the target")
    add("--text", help="text: the text that follows an input")
    add("--other", metavar="MODEL", help="difference: the model to compare with")
    add("--pattern", metavar="REGEX", help="pattern: matches the whole text of each input")


def _arguments(world: World, argv: Sequence[str] | None, program: str) -> argparse.Namespace:
    words = "Try a model for one to three minutes, and write an input file for it."
    parser = arguments.new_parser(program, words, "inputs/models/english --output my.toml")
    add = parser.add_argument
    add("model", metavar="MODEL", help=MODEL_HELP)
    add("--kind", choices=model_table.KINDS, help="kind of model (default: from its files)")
    add("--length", type=arguments.positive_count, help="tokens of an input (default: 25)")
    add("--output", type=Path, metavar="FILE.toml", help="file to write (default: MODEL's name)")
    aim = parser.add_mutually_exclusive_group()
    aim.add_argument(
        "--errors",
        type=arguments.positive_seconds,
        default=Aim.errors,
        metavar="E",
        help="typical standard error of ln g to aim for (default: %(default)s)",
    )
    aim.add_argument(
        "--hours",
        type=arguments.positive_seconds,
        metavar="H",
        help="or the hours that one process may compute; two processes take half as long",
    )
    only = "make the ladder for this end of z only; the run then costs about half (default: both)"
    add("--end", choices=("low", "high"), help=only)
    how = "chains, or independent draws (default: draws for a language model on a CPU, unless the "
    how += "pilot finds that they are worth little, as for long texts; else chains)"
    add("--method", choices=("parallel-tempering", draws.METHOD), help=how)
    add("--side", choices=("low", "high"), help="the confident end of z (default: from its kind)")
    add(
        "--seconds",
        type=arguments.positive_seconds,
        default=SECONDS,
        help="approximate duration of the pilot (default: %(default)g)",
    )
    add(
        "--set",
        action="append",
        default=[],
        metavar="table.key=value",
        help=f"a key of {TABLES}, except rounds and burn_in, which the pilot chooses; for example "
        "model.target=1 or run.output=runs/my.h5",
    )
    _add_question(parser)
    return arguments.parse(parser, world.rank, argv)
