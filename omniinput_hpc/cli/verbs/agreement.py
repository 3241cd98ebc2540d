"""Compare judges (programs that score) with people, in each bin of the output.

Without scores of people the judges are compared with each other. Writes RUN.agreement.csv and .png:
mean scores, bias, Krippendorff's alpha, rank correlation.
"""

from __future__ import annotations

from pathlib import Path

from omniinput_hpc.annotation.join import join_scores
from omniinput_hpc.cli.scripts import (
    add_bank,
    add_figure_options,
    add_key,
    finish,
    new_parser,
    recorded_run,
)
from omniinput_hpc.errors import UserError
from omniinput_hpc.estimators.density.density import density_of_run
from omniinput_hpc.estimators.precision_recall.agreement import compare_with_people
from omniinput_hpc.plots import look
from omniinput_hpc.results.banked import labels_for
from omniinput_hpc.results.names import claim_name, words_of
from omniinput_hpc.results.scores import AgreementResult


def main(arguments: list[str], program: str = "agreement.py") -> None:
    """Read, compare, write, and print the results over all bins."""
    parser = new_parser(program, __doc__, "runs/toy.h5 --scores runs/toy.scores.*.jsonl")
    add, files = parser.add_argument, "score files of people and of judges"
    source = parser.add_mutually_exclusive_group(required=True)
    source.add_argument("--scores", type=Path, nargs="+", metavar="FILE", help=files)
    add_bank(source)
    add_key(parser)
    add("--fid", type=Path, metavar="RUN.fid.csv", help="FID of each bin, from omniinput judge")
    add("--fid-run", type=int, help="number of the run in that file, if it holds several")
    add_figure_options(parser)
    options = parser.parse_args(arguments)
    look.use([[options.run]], options.label, options.title, options.style)
    with recorded_run(program, arguments, options) as (record, run):
        if run.rounds == 0:
            raise UserError(f"{options.run} holds no committed round yet")
        if options.bank:
            density = density_of_run(run.data)
            joined = labels_for(options.bank, [run], density, people_first=False)
        else:
            joined = join_scores(run.fingerprint, options.scores, options.key, run.n_sites)
    found = compare_with_people(joined.scored, joined.judges)
    fid = (options.fid, options.fid_run) if options.fid else None
    result = AgreementResult([run], [], joined, found, fid)
    tag = claim_name(
        record, ".agreement.csv", words_of(None, options.scores or [], bank=options.bank)
    )
    finish(record, result, tag)
