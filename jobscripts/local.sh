#!/usr/bin/env bash
# Runs an input file on this machine and analyses the run, all set-up included (see setup.sh):
#
#     bash jobscripts/local.sh inputs/toy.toml [further arguments of python -m omniinput_hpc]
#
#     RANKS=2                 how many MPI ranks (default 4)
#     RULE=module:function    scores inputs, for the precision-recall curve; default: the input
#                             file's comment "# rule = module:function", if it has one; with
#                             "# side = high", high outputs are the confident ones
#
# Where the input's folder holds exact/NAME.csv (the exact truth), the pictures show it too.
# Exit code: the program's own (2 bad input, 75 stopped early: run again to go on), or the analysis's.
set -euo pipefail

if [[ $# == 0 || $1 == -* ]]; then
    echo "usage: [RANKS=4] [RULE=module:function] bash $0 INPUT.toml [arguments of python -m omniinput_hpc]" >&2
    exit 2
fi
# shellcheck source-path=SCRIPTDIR source=setup.sh
source "$(dirname "${BASH_SOURCE[0]}")/setup.sh"
setup ""

show_and_run() { printf '+ %s\n' "$*"; "$@" </dev/null; }

input=$1
code=0
show_and_run "${mpirun[@]}" -n "${RANKS:-4}" "$python" -m omniinput_hpc "$@" || code=$?
[[ $code != 75 ]] || echo "stopped early, all is saved; to go on: bash $0 $*"
[[ $code == 0 ]] || exit "$code"
case " $* " in *' --check '* | *' --help '* | *' -h '*) exit 0 ;; esac

run=$("$python" - "$@" <<'PYTHON'
import sys, tomllib

with open(sys.argv[1], "rb") as file:
    output = tomllib.load(file)["run"]["output"]
for argument in sys.argv[2:]:
    key, _, value = argument.removeprefix("--set=").partition("=")
    if key.strip() == "run.output":
        output = value.strip().strip("'\"")
print(output)
PYTHON
)
name=$(basename "$input" .toml)
exact=$(dirname "$input")/exact/$name.csv
truth=()
[[ ! -f $exact ]] || truth=(--exact "$exact")
rule=${RULE:-$(sed -nE 's/^# *rule *= *([A-Za-z0-9_.]+:[A-Za-z0-9_]+) *$/\1/p' "$input" | head -n 1)}

side=$(sed -nE 's/^# *side *= *(low|high) *$/\1/p' "$input" | head -n 1)

show_and_run "$python" "$root/analysis/reweight.py" "$run" "${truth[@]}"
if [[ $rule ]]; then
    show_and_run "$python" "$root/analysis/precision_recall.py" "$run" --rule "$rule" --side "${side:-low}" "${truth[@]}"
fi
echo "the pictures:"
for picture in "${run%.h5}".*.png; do
    [[ ! -f $picture ]] || echo "  $picture"
done
