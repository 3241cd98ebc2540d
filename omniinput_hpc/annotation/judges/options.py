"""From a command line's words to a judge."""

from __future__ import annotations

import argparse
from pathlib import Path

from omniinput_hpc.annotation.judges import Judge
from omniinput_hpc.annotation.judges.rule import RuleJudge
from omniinput_hpc.annotation.tasks import TaskSet, key_path, read_key
from omniinput_hpc.errors import UserError

KINDS = ("causal-lm", "sequence-classifier", "image-classifier", "fid")
WANTED = {
    "causal-lm": ("model", "template"),
    "sequence-classifier": ("model", "label"),
    "image-classifier": ("model", "label"),
    "fid": ("model", "reference"),
}
ANSWERS = (" no", " yes")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of judges."""
    parser.add_argument("--judge", required=True, metavar="KIND",
                        help=f"module:function, {', '.join(KINDS)}")  # fmt: skip
    parser.add_argument("--name", help="of the score file (default: the kind's, or the function's)")
    parser.add_argument("--of", choices=["values", "shown"], default="values", help="a rule is of")
    parser.add_argument("--model", metavar="PATH", help="folder, or hub name")
    parser.add_argument("--factory", metavar="module:function",
                        help="of a network on pictures, with weights --model")  # fmt: skip
    parser.add_argument("--template", type=Path, metavar="FILE", help="prompt that holds {text}")
    parser.add_argument("--answers", nargs="+", default=ANSWERS, help="worst to best (no yes)")
    parser.add_argument("--label", type=int, help="the class whose probability is the score")
    parser.add_argument("--reference", metavar="PATH", help="pictures for fid: see README")
    parser.add_argument("--dtype", choices=["float32", "bfloat16", "float16"], default="float32")
    parser.add_argument("--device", choices=["auto", "cpu", "cuda"], default="auto")
    parser.add_argument("--batch", type=int, default=16, help="tasks at once (default 16)")


def check(options: argparse.Namespace) -> None:
    """Check that a judge has what it wants.

    Raises
    ------
    UserError
        A kind that is not known, or one that lacks an option.
    """
    if options.judge not in KINDS and ":" not in options.judge:
        raise UserError(f"--judge {options.judge}: expected module:function, {', '.join(KINDS)}")
    for name in WANTED.get(options.judge, ()):
        if getattr(options, name) is None:
            raise UserError(f"--judge {options.judge} wants --{name}")
    if options.batch < 1:
        raise UserError("--batch must be 1 or more")


def make_judge(options: argparse.Namespace, tasks: TaskSet) -> Judge:
    """Return the judge that checked options name (not ``fid``: that is no judge of a task).

    Raises
    ------
    UserError, EstimateError
        It cannot be made.
    """
    if options.judge not in KINDS:
        beside = key_path(tasks.path)
        key = read_key(beside, tasks.tasks_id) if options.of == "values" else None
        return RuleJudge(options.judge, options.of, key)
    wanted = "image" if options.judge == "image-classifier" else "text"
    if tasks.kind != wanted:
        raise UserError(
            f"--judge {options.judge} judges {wanted}s; {tasks.path} holds {tasks.kind}s"
        )
    device = choose_device(options.device)
    if options.judge == "image-classifier":
        from omniinput_hpc.annotation.judges.networks import PictureClassifierJudge

        return PictureClassifierJudge(options.model, options.label, device, options.factory)
    from omniinput_hpc.annotation.judges import language

    if options.judge == "sequence-classifier":
        return language.TextClassifierJudge(options.model, options.label, options.dtype, device)
    try:
        template = options.template.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        raise UserError(f"--template {options.template} cannot be read: {reason}") from None
    template = template.removesuffix("\n")
    return language.LanguageModelJudge(
        options.model, template, options.answers, options.dtype, device
    )


def choose_device(wanted: str) -> str:
    """Return the device; torch keeps the threads that the environment gives it."""
    import torch

    if wanted == "cuda" and not torch.cuda.is_available():
        raise UserError("--device cuda: torch sees no GPU here")
    return "cuda" if wanted != "cpu" and torch.cuda.is_available() else "cpu"
