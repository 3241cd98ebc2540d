#!/usr/bin/env bash
# The tests that need a GPU, on a machine with one and no network: bash jobscripts/test_gpu.sh [PART...]
#
#     right     outputs and whole runs: GPU against CPU, exact laws, same bytes twice, killed, on two ranks
#     speed     moves per second, shares of the measured matrix peak, the host's share, profiles
#     memory    out of memory, memory given back, what recorded graphs take
#
# in this order without a PART; each is ended after 9 minutes, all three are to take 25 at most. Every figure
# is printed, and kept in PART.json, beside PART.log and profile-SHAPE-KERNEL.txt, in $OUT if it is set, else in
# gpu-results/. The exit code is 1 if a test failed. Options and words beside parts:
#
#     --tiny    small models, on the CPU where there is no GPU: tries the tests themselves, says nothing of speed
#     wheels    where there is a network: downloads into .whl/ what a Python with torch, transformers and
#               pytest may lack (36 MB; transformers 5.18 and later record graphs of all decoders, older
#               ones do not). Take .whl along with the tree; WHEELS_FOR=3.12 names the Python there.
#
# Python is $PYTHON; or, where there is a folder .whl, the plain python3 with the wheels before its own
# packages, in a folder of its own under $TMPDIR; or .venv's. Without an MPI launcher the test of two ranks is
# skipped and says so; .whl brings MPICH.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

part_limit=540 # seconds
declare -A tests=(
    [right]='tests/gpu/test_outputs.py tests/gpu/test_runs.py'
    [speed]='tests/gpu/test_speed.py'
    [memory]='tests/gpu/test_memory.py'
)
alone=('mpi4py==4.1.*' mpich h5py xxhash tomli-w arviz-stats 'transformers>=5.18' regex) # needs are there

fetch_wheels() {
    local platforms=() n
    for n in 28 27 17; do platforms+=(--platform "manylinux_2_${n}_x86_64"); done
    platforms+=(--platform manylinux2014_x86_64 --platform manylinux1_x86_64)
    local pip=("${PYTHON:-python3}" -m pip download -q --only-binary=:all: --implementation cp
        --python-version "${WHEELS_FOR:-3.12}" "${platforms[@]}" -d .whl)
    rm -rf .whl
    "${pip[@]}" pydantic # with what it needs, of versions that fit
    "${pip[@]}" --no-deps "${alone[@]}"
    du -sh .whl
}

with_wheels() { # sets python: python3's own packages, and the wheels before them
    local env=${TMPDIR:-/tmp}/omniinput-gpu-$EUID site key
    python=$env/bin/python
    key=$(command -v python3; cksum .whl/*.whl)
    if [[ $key != "$(cat "$env/stamp" 2>/dev/null)" ]]; then
        rm -rf "$env"
        python3 -m venv --without-pip "$env"
        site=$("$python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
        python3 -m pip --python "$python" install -q --no-index --no-deps --no-compile .whl/*.whl
        # only now: pip would leave out what python3 has already, an mpi4py of another MPI for one
        python3 -c 'import site, sys; print(*site.getsitepackages(), *[p for p in sys.path if p.endswith("-packages")], sep="\n")' \
            >"$site/packages-of-python3.pth"
        echo "$key" >"$env/stamp"
    fi
    PATH=$env/bin:$PATH
}

parts=()
export OMNIINPUT_GPU_TINY=0
for word in "$@"; do
    case $word in
        --tiny) OMNIINPUT_GPU_TINY=1 ;;
        wheels) fetch_wheels; exit ;; # set -e would not hold in `fetch_wheels && exit`
        right | speed | memory) parts+=("$word") ;;
        *) echo "test_gpu.sh: '$word' is not one of right, speed, memory, wheels, --tiny" >&2; exit 2 ;;
    esac
done
[[ ${#parts[@]} != 0 ]] || parts=(right speed memory)

python=${PYTHON:-}
if [[ -z $python && -d .whl ]]; then with_wheels; fi
[[ -n $python ]] || { [[ -x .venv/bin/python ]] && python=.venv/bin/python || python=python3; }
if [[ $OMNIINPUT_GPU_TINY == 0 ]] && ! "$python" -c 'import sys, torch; sys.exit(not torch.cuda.is_available())'; then
    echo "test_gpu.sh: $python sees no GPU here, so nothing was tested (--tiny tries the tests on a CPU)" >&2
    exit 1
fi
out=${OUT:-gpu-results}
mkdir -p "$out"
export OMP_NUM_THREADS=1 PYTHONUNBUFFERED=1

failed=()
for part in "${parts[@]}"; do
    start=$SECONDS code=0
    # shellcheck disable=SC2086
    OMNIINPUT_GPU_PART=$part timeout -s INT -k 10 "$part_limit" "$python" -m pytest -s -v \
        -p no:cacheprovider --durations=10 ${tests[$part]} </dev/null 2>&1 | tee "$out/$part.log" || code=$?
    [[ $code == 0 ]] || failed+=("$part")
    echo "===== $part: exit code $code after $((SECONDS - start)) s; $out/$part.json ====="
done
if [[ ${#failed[@]} != 0 ]]; then
    echo "===== FAILED: ${failed[*]} ====="
    exit 1
fi
