"""The table of judges, and the command-line options from which one is built."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from omniinput_hpc.annotation.judges import Judge
from omniinput_hpc.annotation.judges.rule import RuleJudge
from omniinput_hpc.annotation.tasks import Kind, TaskSet, key_path, read_key
from omniinput_hpc.errors import UserError
from omniinput_hpc.untrusted.files import read_text

Options = argparse.Namespace
MAX_TEMPLATE_BYTES = 1 << 20


def _causal_lm(options: Options, device: str) -> Judge:
    from omniinput_hpc.annotation.judges.language import LanguageModelJudge

    template = read_text(options.template, "template", MAX_TEMPLATE_BYTES).removesuffix("\n")
    return LanguageModelJudge(options.model, template, options.answers, options.dtype, device)


def _sequence_classifier(options: Options, device: str) -> Judge:
    from omniinput_hpc.annotation.judges.language import TextClassifierJudge

    return TextClassifierJudge(options.model, vars(options)["class"], options.dtype, device)


def _image_classifier(options: Options, device: str) -> Judge:
    from omniinput_hpc.annotation.judges.networks import PictureClassifierJudge

    return PictureClassifierJudge(options.model, vars(options)["class"], device, options.factory)


@dataclass(frozen=True)
class JudgeKind:
    """A row of the table of judges: the kind of tasks it scores, and the options it requires.

    `build` makes the judge from checked options and a device. It is None for FID, which gives a
    number per bin instead of scores (`judges.fid`).
    """

    tasks: Kind
    required: tuple[str, ...]
    build: Callable[[Options, str], Judge] | None


JUDGES = {
    "causal-lm": JudgeKind("text", ("model", "template"), _causal_lm),
    "sequence-classifier": JudgeKind("text", ("model", "class"), _sequence_classifier),
    "image-classifier": JudgeKind("image", ("model", "class"), _image_classifier),
    "fid": JudgeKind("image", ("model", "reference"), None),
}
"""By name; any other name is a rule, module:function."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of judges."""
    add, kinds = parser.add_argument, f"module:function, {', '.join(JUDGES)}"
    add("--judge", required=True, metavar="KIND", help=kinds)
    add("--name", help="name of the score file (default: that of the kind or function)")
    of = "what a rule's function takes (default: %(default)s)"
    add("--of", choices=["values", "shown"], default="values", help=of)
    add("--model", metavar="PATH", help="folder, or name on the hub")
    factory = "makes a network on pictures, with the weights in --model"
    add("--factory", metavar="module:function", help=factory)
    add("--template", type=Path, metavar="FILE", help="the prompt, with {text} for the text")
    add("--answers", nargs="+", default=(" no", " yes"), help="worst to best (default: no yes)")
    add("--class", type=int, help="number of the class whose probability is the score")
    add("--reference", metavar="PATH", help="pictures for fid: see docs/scoring.md")
    dtype, device = "number type of the judge (default: %(default)s)", "(default: %(default)s)"
    add("--dtype", choices=["float32", "bfloat16", "float16"], default="float32", help=dtype)
    add("--device", choices=["auto", "cpu", "cuda"], default="auto", help=device)
    add("--batch", type=int, default=16, help="tasks per batch (default: %(default)s)")


def check(options: Options) -> None:
    """Raise a UserError if the judge is unknown or lacks an option that it requires."""
    kind = JUDGES.get(options.judge)
    if kind is None and ":" not in options.judge:
        raise UserError(f"--judge {options.judge}: expected module:function or {', '.join(JUDGES)}")
    for name in kind.required if kind else ():
        if getattr(options, name) is None:
            raise UserError(f"--judge {options.judge} requires --{name}")
    if options.batch < 1:
        raise UserError("--batch must be 1 or more")


def make_judge(options: Options, tasks: TaskSet) -> Judge:
    """Return the judge that checked options name.

    Raises a UserError if a file or function is missing, or does not fit the judge or the tasks.
    """
    kind = JUDGES.get(options.judge)
    if kind is None:
        by_values = options.of == "values"
        key = read_key(key_path(tasks.path), tasks.tasks_id) if by_values else None
        return RuleJudge(options.judge, options.of, key)
    if tasks.kind != kind.tasks:
        raise UserError(
            f"--judge {options.judge} scores {kind.tasks}s; {tasks.path} holds {tasks.kind}s"
        )
    assert kind.build is not None  # FID has its own command
    return kind.build(options, choose_device(options.device))


def choose_device(requested: str) -> str:
    """Return the device; the environment determines torch's number of threads."""
    import torch

    if requested == "cuda" and not torch.cuda.is_available():
        raise UserError("--device cuda: torch sees no GPU here")
    return "cuda" if requested != "cpu" and torch.cuda.is_available() else "cpu"
