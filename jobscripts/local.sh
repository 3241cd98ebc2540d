#!/usr/bin/env bash
# Runs an input file on this machine and analyses the run, all set-up included (see setup.sh):
#
#     bash jobscripts/local.sh inputs/toy.toml [further arguments of python -m omniinput_hpc]
#
#     RANKS=2                 how many MPI ranks (default: 4, 2 or 1: as the cores and the rungs allow; without mpirun: 1)
#     RULE=module:function    scores inputs, in place of the input file's [analysis] rule
#
# What is drawn stands in the input file's table [analysis] (--set analysis.rule=... overrides it):
# `rule` gives the precision-recall curve, `side` the confident end of z (left out: what the model's
# kind has), `test_data` the outputs of test sets. Where the input's folder holds exact/NAME.csv (the
# exact truth), the pictures show it, unless --set or RULE changes what it is the truth of.
# Exit code: the program's own (2 bad input, 75 stopped early: run again to resume), or the analysis's.
set -euo pipefail

if [[ $# == 0 || $1 == -* ]]; then
    echo "usage: [RANKS=2] [RULE=module:function] bash $0 INPUT.toml [arguments of python -m omniinput_hpc]" >&2
    exit 2
fi
# shellcheck source-path=SCRIPTDIR source=setup.sh
source "$(dirname "${BASH_SOURCE[0]}")/setup.sh"
setup ""

show_and_run() { printf '+'; printf ' %q' "$@"; echo; "$@" </dev/null; }

input=$1 cores=$(env -u OMP_NUM_THREADS -u OMP_THREAD_LIMIT nproc)
# What the input says: the number of equal parts of the work, and what to draw. Empty if it is not valid, which the
# program then reports; only the number if the analysis would fail.
mapfile -d '' -t said < <("$python" - "$@" <<'PYTHON'
import argparse
import os
import sys
from contextlib import redirect_stdout
from pathlib import Path

from omniinput_hpc.config import Analysis
from omniinput_hpc.errors import UserError
from omniinput_hpc.results.rules import check_analysis
from omniinput_hpc.runfile import given_input

parser = argparse.ArgumentParser(allow_abbrev=False, add_help=False, exit_on_error=False)
parser.add_argument("input", type=Path)
parser.add_argument("--set", action="append", default=[])
try:
    args, _ = parser.parse_known_args()
    config = given_input.load(args.input, args.set)
except (UserError, argparse.ArgumentError):
    sys.exit()
print(config.n_shares, end="\0")
wanted, tables = config.analysis or Analysis(), ("model", "output", "law", "space", "bins")
wanted = wanted.model_copy(update={"rule": os.environ.get("RULE") or wanted.rule})
try:
    with redirect_stdout(sys.stderr):
        check_analysis(config.model_copy(update={"analysis": wanted}))
except UserError as error:
    sys.exit(f"local.sh: {error}")
try:
    plain = given_input.load(args.input)
    same = all(getattr(plain, name) == getattr(config, name) for name in tables)
    same = same and (plain.analysis or Analysis()).rule == wanted.rule
except UserError:  # it is complete only with --set
    same = False
run = Path(config.run.output).absolute() if config.run.output.startswith("-") else config.run.output
for word in (run, wanted.rule or "", wanted.side or "", wanted.test_data or "", "same" if same else ""):
    print(word, end="\0")  # a name may hold line ends
PYTHON
)
[[ ${#said[@]} != 1 ]] || exit 2
for ranks in 4 2 1; do
    if ((ranks <= cores && ${said[0]:-1} % ranks == 0)); then break; fi
done
code=0 launch=()
if [[ ${#mpirun[@]} != 0 ]]; then
    launch=("${mpirun[@]}" -n "${RANKS:-$ranks}")
elif [[ ${RANKS:-1} != 1 ]]; then
    echo "RANKS=$RANKS needs mpirun, and there is none here: submit jobscripts/run.sbatch, or leave RANKS out" >&2
    exit 2
fi
show_and_run "${launch[@]}" "$python" -m omniinput_hpc "$@" || code=$?
[[ $code != 75 ]] || { printf 'stopped early, everything is saved; to resume: bash'; printf ' %q' "$0" "$@"; echo; }
[[ $code == 0 ]] || exit "$code"
case " $* " in *' --check '* | *' --help '* | *' -h '*) exit 0 ;; esac

run=${said[1]} rule=${said[2]} side=${said[3]} test_data=${said[4]}
exact=$(dirname "$input")/exact/$(basename "$input" .toml).csv
truth=() given=()
[[ ! $side ]] || given+=(--side "$side")
[[ ! $test_data ]] || given+=(--test-sets "$test_data")
if [[ -f $exact && ${said[5]} ]]; then
    truth=(--exact "$exact")
elif [[ -f $exact ]]; then
    echo "note: $exact is not shown, since --set or RULE changes the model, the bins or the rule"
fi

show_and_run "$python" -m omniinput_hpc reweight "$run" "${truth[@]}"
if [[ $rule ]]; then
    show_and_run "$python" -m omniinput_hpc precision-recall "$run" --rule "$rule" "${given[@]}" "${truth[@]}"
fi
if [[ $test_data ]]; then
    show_and_run "$python" -m omniinput_hpc overlay "$run" --test-sets "$test_data" --output "${run%.*}.overlay.png"
fi
echo "the pictures:"
for picture in "${run%.*}".*.png; do
    [[ ! -f $picture ]] || echo "  $picture"
done
