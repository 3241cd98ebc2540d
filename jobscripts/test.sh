#!/usr/bin/env bash
# All checks and tests, set-up included (see setup.sh): bash jobscripts/test.sh [--all]
#
# With --all also what is slow and guards one thing each: damage and kills (most of tests/campaigns), the
# job scripts under a real SLURM, README's first command with MPI from PyPI, the page in a browser, a
# full disk, memory, tests marked `release`, three ranks. Run it before a release, and after a change
# to what these guard.
#
# Every stage runs, even after one has failed; the last line names those that failed, and the exit
# code is then 1. The reports (one junit file per rank) are kept only on failure.
set -euo pipefail
# shellcheck source-path=SCRIPTDIR source=setup.sh
source "$(dirname "${BASH_SOURCE[0]}")/setup.sh"

all=${1:-}
if [[ $all != '' && $all != --all ]]; then
    echo "usage: bash jobscripts/test.sh [--all]" >&2
    exit 2
fi
only_with_all=(
    tests/campaigns/{bad_inputs,bit_flips,faults,hostile,hostile_inputs,kills,lane_blocks,lost_file,salvage}
    tests/campaigns/test_{annotation_page,offline_verbs}.py tests/annotation/test_browser.py
    tests/config/test_stand_ins.py
    tests/kernels/test_memory.py
    tests/runfile/test_full_disk.py
)

mpi_sizes=(2 4)
# their tests split worlds of each smaller size off, so that the largest size holds the others
largest_only=(tests/mpi/test_{same_bits,shared_census,shared_rescore}.py)
[[ ! $all ]] || mpi_sizes=(2 3 4) largest_only=()
mpi_limit=1500     # seconds for each mpirun
mpi_test_limit=400 # seconds for one MPI test
failed=()

stage() { # stage NAME COMMAND...
    local start=$SECONDS code=0
    printf -- '--- %s\n' "$1"
    "${@:2}" </dev/null || code=$?
    end_stage "$1" "$code" $((SECONDS - start))
}

end_stage() { # end_stage NAME CODE SECONDS
    local result=passed
    if [[ $2 != 0 ]]; then
        result="FAILED (exit code $2)"
        failed+=("$1")
    fi
    printf -- '--- %s: %s after %d s\n\n' "$1" "$result" "$3"
}

# A stage beside those between `begin` and `finish`: what it prints comes when it has ended. In the
# background a shell ignores SIGINT, which its commands undo (env --default-signal).
declare -A job
begin() { # begin NAME COMMAND...
    (
        local start=$SECONDS code=0
        "${@:2}" </dev/null >"$reports/$1.log" 2>&1 || code=$?
        echo $((SECONDS - start)) >"$reports/$1.seconds"
        exit "$code"
    ) &
    job[$1]=$!
}

finish() { # finish NAME
    local code=0
    wait "${job[$1]}" || code=$?
    printf -- '--- %s (ran alongside the above)\n' "$1"
    cat "$reports/$1.log"
    end_stage "$1" "$code" "$(cat "$reports/$1.seconds")"
}

# One worker per core, and so one thread of torch's each: two that share a core would wait for each
# other. A file is one worker's, since its tests share fixtures.
serial_pytest() {
    local left_out=(tests/gpu tests/mpi tests/slurm tests/wheels)
    local some=()
    [[ $all ]] || left_out+=("${only_with_all[@]}") some=(-m "not release")
    env --default-signal=INT OMP_NUM_THREADS=1 "$python" -m pytest -p no:cacheprovider -n 2 --dist loadfile \
        --durations=25 --durations-min=1 --junitxml="$reports/serial.xml" "${left_out[@]/#/--ignore=}" "${some[@]}" tests
}

# One rank: only rank 0 writes to the terminal. The first failure ends a rank (-x), since its
# neighbours would wait for it in the next test; pytest-timeout then ends theirs.
# shellcheck disable=SC2016
rank_pytest='
rank=${PMI_RANK:-${OMPI_COMM_WORLD_RANK:-${PMIX_RANK:-${SLURM_PROCID:?the launcher names no rank}}}}
[ "$rank" = 0 ] || exec >"$2/rank-$rank.log" 2>&1
python=$1 folder=$2 limit=$3
shift 3
exec "$python" -u -m pytest --with-mpi -x -p no:cacheprovider --timeout="$limit" \
    --timeout-method=thread --junitxml="$folder/rank-$rank.xml" "$@" tests/mpi'

without_mpi_information="sed -u '/= MPI Information =/,/^mpi4py config:/d'" # pytest-mpi's 20 lines

mpi_pytest() { # mpi_pytest SIZE
    local code=0 folder=$reports/mpi-$1 log_of_rank left_out=()
    [[ $1 == "${mpi_sizes[-1]}" ]] || left_out=("${largest_only[@]/#/--ignore=}")
    mkdir "$folder"
    # the filter is inside the limit, too: a rank left over would keep its input open
    timeout -k 10 "$mpi_limit" bash -o pipefail -c "\"\$@\" | $without_mpi_information" - \
        "${mpirun[@]}" -n "$1" sh -c "$rank_pytest" sh "$python" "$folder" "$mpi_test_limit" \
        "${left_out[@]}" || code=$?
    case $code in 124 | 137) echo "mpirun -n $1 did not end within $mpi_limit s" ;; esac
    if [[ $code != 0 ]]; then
        for log_of_rank in "$folder"/rank-*.log; do
            printf -- '--- the end of %s\n' "$log_of_rank"
            eval "$without_mpi_information" <"$log_of_rank" | tail -n 40
        done
    fi
    return "$code"
}

browser_not_run=''
install_browser() { # for tests/annotation; they skip themselves, and the last line says so, without it
    if [[ $EUID == 0 ]] && command -v apt-get >/dev/null && ! command -v chromedriver >/dev/null; then
        echo "installing chromium and chromium-driver with apt-get"
        apt_install chromium chromium-driver >>"$log" 2>&1 || true
    fi
    command -v chromedriver >/dev/null || browser_not_run="no chromium and chromium-driver here"
    [[ -z $browser_not_run ]] || echo "BROWSER TESTS NOT RUN: $browser_not_run"
}

slurm_pytest() { # the job scripts under a real SLURM; about six minutes, mostly asleep
    local check=("$python" tests/slurm/cluster.py --check)
    if [[ $EUID == 0 ]] && command -v apt-get >/dev/null && ! "${check[@]}" >/dev/null; then
        echo "installing slurm-wlm and munge with apt-get"
        apt_install slurm-wlm munge >>"$log" 2>&1 || true
    fi
    if ! "${check[@]}" >"$reports/slurm-not-run"; then
        [[ -s $reports/slurm-not-run ]] || echo "the check failed" >"$reports/slurm-not-run"
        echo "NOT RUN: $(cat "$reports/slurm-not-run")"
        return 0
    fi
    : >"$reports/slurm-not-run"
    # SIGINT: the tests end their SLURM; -rP: the log of the job that was stopped and went on
    env --default-signal=INT timeout -s INT -k 30 2400 \
        "$python" -m pytest -rP --junitxml="$reports/slurm.xml" tests/slurm
}

wheels_pytest() { # README's first command by MPICH from PyPI
    env --default-signal=INT OMP_NUM_THREADS=1 "$python" -m pytest -p no:cacheprovider --durations=5 tests/wheels
}

check_counts() {
    local left_out=()
    [[ $all ]] || left_out=(--left-out "${only_with_all[@]}" --largest-only "${largest_only[@]}")
    "$python" tests/mpi/check_counts.py "$reports" "${mpi_sizes[@]}" "${left_out[@]}" | tee "$reports/counts"
}

setup test
[[ ${#mpirun[@]} != 0 ]] || die "the MPI tests need mpirun, and there is none here"
cd "$root"
reports=$(mktemp -d "${TMPDIR:-/tmp}/omniinput-tests.XXXXXX")
# else each process that a test starts compiles the package anew, or writes into the tests' folders;
# kept from run to run: the libraries' takes half a minute
unset PYTHONDONTWRITEBYTECODE
export PYTHONPYCACHEPREFIX=$venv/bytecode

if [[ $all ]]; then
    install_browser
    begin "SLURM tests" slurm_pytest # mostly asleep
    begin "README's first command by wheels" wheels_pytest
fi
stage "ruff check" "$python" -m ruff check .
stage "ruff format" "$python" -m ruff format --check .
stage "mypy" "$python" -m mypy
stage "documentation site" "$python" -m sphinx -q -W --keep-going -c docs/site -d "$reports/pages" . "$reports/site"
stage "serial tests" serial_pytest
if [[ $all ]]; then
    finish "README's first command by wheels"
    finish "SLURM tests"
fi
for size in "${mpi_sizes[@]}"; do
    stage "MPI tests on $size ranks" mpi_pytest "$size"
done
stage "test counts" check_counts

if [[ ${#failed[@]} != 0 ]]; then
    echo "the reports: $reports"
    printf -v names ', %s' "${failed[@]}"
    echo "===== FAILED: ${names:2} (${SECONDS} s) ====="
    exit 1
fi
slurm_not_run=$(cat "$reports/slurm-not-run" 2>/dev/null || true)
echo "===== $(tail -n 1 "$reports/counts")${slurm_not_run:+; SLURM tests not run: $slurm_not_run}${browser_not_run:+; browser tests not run: $browser_not_run}; ${SECONDS} s ====="
rm -r "$reports"
rm -rf "$PYTHONPYCACHEPREFIX${TMPDIR:-/tmp}"/pytest-of-* # of modules that tests made
