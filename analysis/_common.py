"""What the scripts on run files share: arguments of scores, and reading them."""

from __future__ import annotations

import argparse
from pathlib import Path

from _script import beside, run_script

from omniinput_hpc.annotation.join import Joined, join_scores
from omniinput_hpc.errors import UserError
from omniinput_hpc.estimators.density.density import Density
from omniinput_hpc.estimators.precision_recall.curves import FEWEST_INPUTS, FEWEST_LANES
from omniinput_hpc.estimators.precision_recall.from_scores import ScoredCurve, scored_curve
from omniinput_hpc.runfile.reader import RunReader

__all__ = ["beside", "run_script", "scored_of", "scores_arguments"]


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
