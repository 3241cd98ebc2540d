#!/usr/bin/env bash
# Makes a figure or table of the papers again, and one HTML page with ours beside the published numbers:
#
#     bash jobscripts/reproduce.sh                        # the list: what can be made here, and what needs a GPU
#     bash jobscripts/reproduce.sh NAME [--data FOLDER]   # sets up .venv, makes it, prints the page's path
#
#     RANKS=2     how many MPI ranks a run has (default 2)
#
# FOLDER holds MNIST's IDX files, and those of Fashion-MNIST, Kuzushiji, EMNIST and QMNIST in its folders fashion, kuzushiji,
# emnist and qmnist; without them these tables have stand-ins, and the page says so. A step that
# is finished is not made again; a run that was stopped resumes. What is made stands in inputs/reproduce/plan.toml.
# Exit code: 0 done, 2 bad input, 75 stopped early (run again to resume), else that of the step that failed.
set -euo pipefail

# shellcheck source-path=SCRIPTDIR source=setup.sh
source "$(dirname "${BASH_SOURCE[0]}")/setup.sh"

for word in "$@"; do
    if [[ $word == --data=/* ]] || [[ $word != --data=* ]]; then continue; fi
    die "write --data FOLDER, with a space"
done
arguments=() previous=
for word in "$@"; do # a folder is the caller's, the work is done in the repository's
    if [[ $previous == --data && $word != /* ]]; then word=$PWD/$word; fi
    arguments+=("$word") previous=$word
done

if [[ $# == 0 || " $* " == *' --list '* || " $* " == *' --help '* || " $* " == *' -h '* ]]; then
    find_python # no set-up: the list needs Python alone
    cd "$root"
    exec "$base_python" -m omniinput_hpc.report.reproduce "${arguments[@]}"
fi
setup judges,gguf # FID; the GGUF file of SmolLM2
cd "$root"
export OMP_NUM_THREADS=1
launch=() # one rank where there is no mpirun
if [[ ${#mpirun[@]} != 0 ]]; then launch=("${mpirun[@]}" -n "${RANKS:-2}"); fi
words=$([[ ${#launch[@]} == 0 ]] || printf '%q ' "${launch[@]}")
OMNIINPUT_MPIRUN=${words% } exec "$python" -m omniinput_hpc.report.reproduce "${arguments[@]}"
