"""What the analysis scripts share: how they fail, and how they name and write their files."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # works without installing, too

from omniinput_hpc.annotation.join import Joined, join_scores
from omniinput_hpc.errors import EXIT_BAD_INPUT, EXIT_COMPLETE, UserError
from omniinput_hpc.estimators import EstimateError
from omniinput_hpc.estimators.density import Density
from omniinput_hpc.estimators.precision_recall import FEWEST_INPUTS, FEWEST_LANES
from omniinput_hpc.estimators.scored import ScoredCurve, scored_curve
from omniinput_hpc.run_reader import RunReader


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


def beside(run_path: Path, ending: str) -> Path:
    """Return the path of a result: ``runs/toy.h5`` and ``.pr.csv`` give ``runs/toy.pr.csv``."""
    return run_path.with_name(run_path.stem + ending)


def scores_arguments(
    parser: argparse.ArgumentParser, rule: bool = False, required: bool = True
) -> None:
    """Add the arguments of scripts that read scores."""
    source = parser.add_mutually_exclusive_group(required=required)
    if rule:
        source.add_argument("--rule", metavar="MODULE:FUNCTION", help="scores inputs")
    source.add_argument(
        "--scores", type=Path, nargs="+", metavar="FILE", help="RUN.scores.NAME.jsonl of annotators"
    )
    parser.add_argument("--key", type=Path, help="of the tasks (default: beside the scores)")
    parser.add_argument("--side", choices=["low", "high"], default="low", help="the confident end")
    parser.add_argument(
        "--fewest-inputs", type=int, default=FEWEST_INPUTS, help="scored inputs that a bin needs"
    )
    parser.add_argument(
        "--fewest-lanes", type=int, default=FEWEST_LANES, help="lanes that these must come from"
    )


def scored_of(
    run: RunReader, density: Density, options: argparse.Namespace
) -> tuple[Joined, ScoredCurve]:
    """Read the score files that the arguments name, and return them and the curve they give."""
    joined = join_scores(run.fingerprint, options.scores, options.key)
    judges = [n for n, j in zip(joined.scored.annotators, joined.judges, strict=True) if j]
    if judges and len(judges) < len(joined.judges):
        raise UserError(
            f"scores of people and of judges ({', '.join(judges)}) are not averaged: leave the "
            "judges' files out, or set them beside people by agreement.py"
        )
    least = (options.fewest_inputs, options.fewest_lanes)
    return joined, scored_curve(density, joined.scored, options.side, *least)
