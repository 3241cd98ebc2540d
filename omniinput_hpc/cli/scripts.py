"""Error handling and common arguments of the offline verbs, and so of the scripts in analysis/.

Needs neither MPI nor torch. Functions import estimators only if needed, since scipy loads slowly.
"""

from __future__ import annotations

import argparse
import math
import os
import shlex
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import copy_context
from pathlib import Path
from typing import TYPE_CHECKING, Any

from omniinput_hpc.cli import arguments
from omniinput_hpc.cli.arguments import called, positive_count
from omniinput_hpc.errors import EXIT_BAD_INPUT, EXIT_COMPLETE, UserError
from omniinput_hpc.estimators import EstimateError
from omniinput_hpc.text import LN10, print_any_text

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from omniinput_hpc.results.curves import CurveOptions
    from omniinput_hpc.results.record import Record
    from omniinput_hpc.results.result import Written
    from omniinput_hpc.runfile.reader import RunReader


def run_script(main: Callable[[list[str]], int | None], arguments: list[str] | None = None) -> int:
    """Return the exit code of a script's main; for a user's mistake print one line and return 2.

    What it sets for its figures (`plots.look`) ends with it.
    """
    print_any_text()
    try:
        given = sys.argv[1:] if arguments is None else arguments
        return copy_context().run(main, given) or EXIT_COMPLETE
    except (UserError, EstimateError) as error:
        message = str(error)
        if getattr(error, "can_be_read", False):
            message += "; use --damaged to read it anyway"
    except BrokenPipeError:  # as by `| head`, which has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return EXIT_COMPLETE
    except OSError as error:
        message = f"{error.filename}: " if error.filename else ""
        message += str(error.strerror or error)
    except MemoryError as error:
        message = f"there is not enough memory for these files: {error}"
    print(f"error: {message}", file=sys.stderr)
    return EXIT_BAD_INPUT


def other_bins_of(text: str) -> NDArray[np.float64]:
    """Parse LOWER:UPPER:WIDTH from the command line into bin edges, float64 [B + 1]."""
    from omniinput_hpc.estimators.density.other_bins import edges_of

    try:
        return edges_of(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def check_output(
    output: Path | None, inputs: Sequence[Path | None], ending: str = "", option: str = "--output"
) -> None:
    """Raise a UserError if `option` would replace a file that is read, or is named like a run file.

    `output` is None if the option was not given. Its name must end with `ending`.
    """
    if output is None:
        return
    asked = f"{option} {output}"
    if not output.name.endswith(ending):
        raise UserError(f"{asked}: the name must end with {ending}")
    if not output.name or output.is_dir():
        raise UserError(f"{asked}: expected the name of a file")
    if any(path is not None and output.resolve() == path.resolve() for path in inputs):
        raise UserError(f"{asked} is one of the input files; choose another name")
    if output.suffix in (".h5", ".hdf5"):
        raise UserError(f"{asked} is named like a run file; choose another name")


def how_to_install(extra: str) -> str:
    """Return the command that installs an extra, from a clone or a wheel (it is on no index)."""
    if (Path(__file__).parents[2] / "setup.cfg").is_file():
        return f"python -m pip install '.[{extra}]' in the folder of the repository"
    return f"python -m pip install 'FILE.whl[{extra}]', with the package's own wheel"


@contextmanager
def with_extra(name: str) -> Iterator[None]:
    """Turn a missing library into a `UserError` that names the extra to install."""
    try:
        yield
    except ModuleNotFoundError as error:
        raise UserError(f"{error.name} is not installed: {how_to_install(name)}") from None


def new_parser(
    program: str,
    description: str | None,
    example: str,
    files: str = "the run file",
    nargs: int | str | None = None,
    of_tasks: bool = False,
) -> argparse.ArgumentParser:
    """Return a parser whose first argument is ``run``, a run file, or ``tasks``, a task file.

    `program` and `example` are as in `arguments.new_parser`. For run files the parser also has
    --damaged, whose value `on_damage` is an argument of `reader.open_run`.
    """
    kind = argparse.ArgumentParser
    parser = arguments.new_parser(program, description, example, more="", kind=kind)
    if of_tasks:
        help_ = "task file written by omniinput choose"
        parser.add_argument("tasks", type=Path, metavar="TASKS.jsonl", help=help_)
    else:
        parser.add_argument("run", type=run_file, nargs=nargs, metavar="RUN.h5", help=files)
        add_damaged(parser)
    where = f"folder for the results (default: that of {'TASKS.jsonl' if of_tasks else 'RUN.h5'})"
    parser.add_argument("--results", type=Path, metavar="FOLDER", help=where)
    return parser


def run_file(text: str) -> Path:
    """Parse the path of a run file from the command line."""
    if not Path(text).name:  # "", ".", "/"
        raise UserError(f"expected a run file, found {text!r}")
    if text.endswith(".toml"):
        raise UserError(f"{text} is an input file: give the file of its run, RUN.h5")
    return Path(text)


def results_folder(options: argparse.Namespace) -> Path | None:
    """Return the folder of --results, made if missing; None if the option is not given."""
    folder: Path | None = getattr(options, "results", None)
    if folder is not None:
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise UserError(f"--results {folder} cannot be made: {error.strerror}") from None
    return folder


def in_results(options: argparse.Namespace, path: Path) -> Path:
    """Return the path next to which results are written: `path`, or its name in --results.

    Raises a UserError if that folder is not writable, unless --output names another place.
    """
    given = results_folder(options)
    folder = given or path.parent
    elsewhere = getattr(options, "output", None) is not None
    if folder.is_dir() and not elsewhere and not os.access(folder, os.W_OK | os.X_OK):
        remedy = "choose another folder" if given else "choose one for the results with --results"
        raise UserError(f"the folder {folder} cannot be written; {remedy}")
    return folder / path.name


def add_damaged(parser: argparse.ArgumentParser) -> None:
    """Add --damaged; its value `on_damage` is an argument of `reader.open_run`."""
    from omniinput_hpc.runfile import checked_datasets

    parser.add_argument(
        "--damaged",
        dest="on_damage",
        action="store_const",
        const=checked_datasets.warn,
        default=checked_datasets.refuse,
        help="read a damaged file anyway, and only warn of data that do not match their checksums",
    )


def add_range(parser: argparse.ArgumentParser, words: str, **options: Any) -> None:
    """Add --range LOW HIGH, a range of outputs, with `words` as its help."""
    add = parser.add_argument
    add("--range", type=float, nargs=2, metavar=("LOW", "HIGH"), help=words, **options)


def add_shown_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of scripts that show inputs of each bin."""
    from omniinput_hpc.results.representatives import PER_BIN

    add_range(parser, "show inputs with outputs from LOW to HIGH")
    add = parser.add_argument
    add("--width", type=float, help="width of their bins (default: at most 12 bins)")
    add("--per-bin", type=int, default=PER_BIN, help="inputs shown per bin (default: %(default)s)")
    add("--mask", action="store_true", help="mask addresses and phone numbers")
    render = "show a python model's inputs with its own render function; runs its code"
    add("--render", action="store_true", help=render)


def add_figure_options(parser: argparse.ArgumentParser, by_rule: bool = False) -> None:
    """Add the options of all verbs that draw figures; `plots.look.use` takes their values.

    With `by_rule` also --width, that of the bins of curves by a rule or bank (`curve_options`).
    """
    add, name = parser.add_argument, "name of a run in legends and titles (default: its file's "
    name += "name); if several runs are shown, once for each, in their order"
    add("--label", action="append", default=[], metavar="NAME", help=name)
    above = "title of the figures (default: model, space and rounds of each run)"
    add("--title", metavar="TEXT", help=above)
    look = "matplotlib style, a file or a name such as ggplot: fonts, lines, colours, grid"
    add("--style", metavar="STYLE", help=look)
    if by_rule:
        apart = "distance between the thresholds of a curve by a rule or a bank: a multiple of the "
        apart += "width of the run's bins (default: this width; for a bank: that of its tasks)"
        add("--width", dest="curve_width", type=float, metavar="WIDTH", help=apart)


def add_score_options(
    parser: argparse.ArgumentParser, rule: bool = False, required: bool = True, judge: bool = True
) -> None:
    """Add the options of scripts that read scores, also with a judge's, or that score by a rule."""
    from omniinput_hpc.estimators.precision_recall.curves import FEWEST_INPUTS, FEWEST_LANES

    add, source = parser.add_argument, parser.add_mutually_exclusive_group(required=required)
    if rule:
        called = "what is right: regex:PATTERN or contains:TEXT (in an input's text), words:FILE "
        called += "(all its words are in FILE: /usr/share/dict/words, for example), or a Python "
        called += "function that scores inputs, int64 [n, D], from 0 to 1, or texts if its "
        called += "argument is called texts"
        source.add_argument("--rule", metavar="RULE", help=called)
    files = "score files, RUN.scores.NAME.jsonl, one per annotator"
    source.add_argument("--scores", type=Path, nargs="+", metavar="FILE", help=files)
    add_bank(source)
    if judge:
        files = "a judge's scores of all tasks, corrected by those of people, who scored a random "
        files += "part of them"
        add("--judge-scores", type=Path, nargs="+", metavar="FILE", help=files)
    add_key(parser)
    side = "the end of z where the model is confident (default: as stored in the run)"
    add("--side", choices=["low", "high"], help=side)
    inputs, number = "scored inputs that a bin must have (default: %(default)s)", positive_count
    add("--fewest-inputs", type=number, default=FEWEST_INPUTS, metavar="N", help=inputs)
    lanes = "independent lanes that these must come from (default: %(default)s)"
    add("--fewest-lanes", type=number, default=FEWEST_LANES, metavar="N", help=lanes)
    trust = "also use bins in which the run has not equilibrated; figures and results report this"
    add("--trust-unequilibrated", action="store_true", help=trust)
    if rule:
        over = "range of recall for the AUPR, as 10^LOW:10^HIGH or as LOW:HIGH of ln recall; if "
        over += "that is negative, write --recall-range=-9:-2 (default: the curve's own ends)"
        add("--recall-range", type=recall_range, metavar="LOW:HIGH", help=over)


def add_bank(parser: argparse._ActionsContainer) -> None:
    """Add --bank."""
    words = "labels of any runs, weighed for this run's model (omniinput bank)"
    parser.add_argument("--bank", type=Path, metavar="BANK.jsonl", help=words)


def recall_range(text: str) -> tuple[float, float]:
    """Return a range of ln recall from LOW:HIGH of the command line, ln or powers of ten."""
    try:
        low, high = (
            float(word.removeprefix("10^")) * (LN10 if word.startswith("10^") else 1.0)
            for word in text.split(":")
        )
    except ValueError:
        low = high = 0.0
    if not -math.inf < low < high < math.inf:
        problem = f"expected LOW:HIGH, as 10^2:10^9 or, of ln recall, as 5:20, found {text!r}"
        raise argparse.ArgumentTypeError(problem)
    return low, high


def add_threshold_options(parser: argparse.ArgumentParser) -> None:
    """Add the options for chosen thresholds and test sets."""
    add = parser.add_argument
    chosen = "report precision and recall at an output, or at SET:Q, the quantile Q of a test set"
    add("--threshold", action="append", default=[], metavar="Z", help=chosen)
    sets = "outputs of test sets (omniinput test-sets)"
    add("--test-sets", type=Path, metavar="FILE.csv", help=sets)


def add_key(parser: argparse.ArgumentParser) -> None:
    """Add --key."""
    beside_scores = "key of the tasks (default: next to the scores)"
    parser.add_argument("--key", type=Path, metavar="FILE", help=beside_scores)


def new_record(
    program: str, arguments: Sequence[str], options: argparse.Namespace, run_path: Path
) -> Record:
    """Return the record of an analysis: its command, its options and the place of its results."""
    from omniinput_hpc.results.record import Record
    from omniinput_hpc.runfile import checked_datasets

    verb = program.split()[-1].removesuffix(".py").rpartition(".")[2].replace("_", "-")
    given = dict(vars(options))
    if "results" in given:  # the folder does not change the results
        del given["results"]
        run_path = in_results(options, run_path)
    if "on_damage" in given:
        given["damaged"] = given.pop("on_damage") is checked_datasets.warn
    return Record(run_path, verb, f"{called(program)} {shlex.join(map(str, arguments))}", given)


@contextmanager
def recorded_run(
    program: str, arguments: Sequence[str], options: argparse.Namespace
) -> Iterator[tuple[Record, RunReader]]:
    """Begin the record of an analysis of one run, and open this run."""
    from omniinput_hpc.runfile.reader import open_run

    record = new_record(program, arguments, options, options.run)
    with open_run(options.run, options.on_damage) as run:
        record.add_run(run)
        yield record, run


def finish(record: Record, result: Written, tag: str = "", more: Sequence[str] = ()) -> None:
    """Write a result's files and its part of RUN.results.json; print its lines and the files.

    `tag` follows the result's name in those of its files; `more` is printed between.
    """
    record.notes = result.lines()
    files = result.write(record, tag)
    record.save()
    print("\n".join([*record.notes, *more, *files]))


def curve_options(options: argparse.Namespace) -> CurveOptions:
    """Return the values of the options that `add_score_options` adds."""
    from omniinput_hpc.results.curves import CurveOptions

    rule, fewest = getattr(options, "rule", None), (options.fewest_inputs, options.fewest_lanes)
    given, ends = options.scores or [], getattr(options, "recall_range", None)
    trust, width = options.trust_unequilibrated, getattr(options, "curve_width", None)
    bank = options.bank
    if width is not None and rule is None and bank is None:
        raise UserError(
            "--width is for a curve by a rule or a bank: the bins of scores are those of their "
            "tasks (choose)"
        )
    judges = getattr(options, "judge_scores", None) or []
    if judges and not given:
        raise UserError("--judge-scores: give also --scores, of the people who correct the judge")
    return CurveOptions(
        rule, given, options.key, options.side, fewest, ends, trust, width, judges, bank
    )
