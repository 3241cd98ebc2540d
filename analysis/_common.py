"""What the scripts share: how they fail, name their files, and read scores."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # works without installing, too

from omniinput_hpc.errors import EXIT_BAD_INPUT, EXIT_COMPLETE, UserError
from omniinput_hpc.estimators import EstimateError

if TYPE_CHECKING:
    from omniinput_hpc.annotation.join import Joined
    from omniinput_hpc.estimators.density.density import Density
    from omniinput_hpc.estimators.precision_recall.from_scores import ScoredCurve
    from omniinput_hpc.runfile.reader import RunReader


def run_script(main: Callable[[list[str]], None], arguments: list[str] | None = None) -> int:
    """Call a script's main and return its exit code: 2 and one plain line for a user's mistake."""
    try:
        main(sys.argv[1:] if arguments is None else arguments)
    except (UserError, EstimateError) as error:
        print(f"error: {error}", file=sys.stderr)
        return EXIT_BAD_INPUT
    except OSError as error:
        where = f"{error.filename}: " if error.filename else ""
        print(f"error: {where}{error.strerror or error}", file=sys.stderr)
        return EXIT_BAD_INPUT
    except MemoryError as error:
        print(f"error: there is not enough memory for these files: {error}", file=sys.stderr)
        return EXIT_BAD_INPUT
    return EXIT_COMPLETE


def new_parser(description: str | None, example: str) -> argparse.ArgumentParser:
    """Return a parser whose help ends with an example, given as the script's arguments."""
    return argparse.ArgumentParser(
        description=description,
        epilog=f"example:\n  python analysis/%(prog)s {example}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )


def beside(run_path: Path, ending: str) -> Path:
    """Return the path of a result: ``runs/toy.h5`` and ``.pr.csv`` give ``runs/toy.pr.csv``."""
    return run_path.with_name(run_path.stem + ending)


def add_score_options(
    parser: argparse.ArgumentParser, rule: bool = False, required: bool = True
) -> None:
    """Add the options of scripts that read scores, or that score by a rule."""
    # here, not above: a script that needs no estimates starts without waiting for scipy
    from omniinput_hpc.estimators.precision_recall.curves import FEWEST_INPUTS, FEWEST_LANES

    source = parser.add_mutually_exclusive_group(required=required)
    if rule:
        source.add_argument(
            "--rule", metavar="MODULE:FUNCTION",
            help="a Python function that scores inputs, int64 [n, D], from 0 to 1",
        )  # fmt: skip
    source.add_argument(
        "--scores", type=Path, nargs="+", metavar="FILE",
        help="score files, RUN.scores.NAME.jsonl, one per annotator",
    )  # fmt: skip
    parser.add_argument(
        "--key", type=Path, metavar="FILE", help="key of the tasks (default: beside the scores)"
    )
    parser.add_argument(
        "--side", choices=["low", "high"], default="low",
        help="which outputs are the model's confident ones (default: low)",
    )  # fmt: skip
    parser.add_argument(
        "--fewest-inputs", type=int, default=FEWEST_INPUTS, metavar="N",
        help="scored inputs that a bin must have (default: %(default)s)",
    )  # fmt: skip
    parser.add_argument(
        "--fewest-lanes", type=int, default=FEWEST_LANES, metavar="N",
        help="independent lanes that these must come from (default: %(default)s)",
    )  # fmt: skip


def curve_from_scores(
    run: RunReader, density: Density, options: argparse.Namespace
) -> tuple[Joined, ScoredCurve]:
    """Read the score files that the options name; return them and the curve they give.

    Raises
    ------
    UserError, EstimateError
        Files that do not belong to the run, people and judges together, or too few scores.
    """
    from omniinput_hpc.annotation.join import join_scores
    from omniinput_hpc.estimators.precision_recall.from_scores import scored_curve

    joined = join_scores(run.fingerprint, options.scores, options.key)
    judges = [n for n, j in zip(joined.scored.annotators, joined.judges, strict=True) if j]
    if judges and len(judges) < len(joined.judges):
        raise UserError(
            f"scores of people and of judges ({', '.join(judges)}) are not averaged: leave the "
            "judges' files out, or compare them with people by agreement.py"
        )
    least = (options.fewest_inputs, options.fewest_lanes)
    return joined, scored_curve(density, joined.scored, options.side, *least)
