# shellcheck shell=bash
# Makes .venv with everything the program needs: bash jobscripts/setup.sh [EXTRA]. EXTRA is one of setup.cfg's
# extras, e.g. judges, or several with commas. Sourced by local.sh and test.sh, which call
#
#     setup [EXTRA]
#
# and get $python and the launcher "${mpirun[@]}", empty where there is none: clusters may start ranks by srun
# alone. A set-up that is up to date is left alone. It starts no ranks, so it can run on a login node.
# Set by whoever calls the scripts, all optional:
#
#     OMNIINPUT_MPI=system   mpi4py and h5py built with the mpicc and the parallel HDF5 found here
#     OMNIINPUT_MPI=wheel    MPICH and a plain h5py from PyPI (needs neither root nor a compiler)
#     PYTHON=python3.12      the Python that .venv is made with
#
# Without OMNIINPUT_MPI: what .venv was made with, else system where possible, else wheel.

# pip: Python's own, unless it does not keep --no-binary's wheels
build_tools=('pip>=23.1' setuptools numpy cython pkgconfig)

cflags='-O1 -g0' # halves the time that the generated C takes to compile; neither package computes much

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
venv=$root/.venv
python=$venv/bin/python
lock=$root/jobscripts/constraints.txt # exact versions; its h5py builds with HDF5 1.10.7 and later
log=$venv/setup.log

say() { printf 'setup: %s\n' "$*"; }
die() { printf 'setup: error: %s\n' "$*" >&2; exit 1; }

logged() { # logged MESSAGE COMMAND...: one line for the reader, all output to the log
    local start=$SECONDS
    printf 'setup: %s ...' "$1"
    # 9 is the lock: nothing that a command may leave running shall hold it
    if "${@:2}" >>"$log" 2>&1 </dev/null 9>&-; then
        printf ' %d s\n' $((SECONDS - start))
    else
        printf ' failed\n'
        die_with_log "$1 failed"
    fi
}

die_with_log() {
    printf 'The last lines of %s:\n' "$log" >&2
    tail -n 20 "$log" >&2
    die "$*"
}

pip() { "$python" -m pip --disable-pip-version-check --no-input "$@"; }

pip_install() { pip install --constraint "$lock" "$@"; }

find_python() { # sets base_python
    local candidate
    if [[ -x $python ]]; then
        base_python=$python
        return
    fi
    for candidate in ${PYTHON:-python3 python3.14 python3.13 python3.12 python3.11}; do
        base_python=$(command -v "$candidate") || continue
        "$base_python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' || continue
        "$base_python" -c 'import venv, ensurepip' 2>/dev/null ||
            die "$base_python lacks venv or ensurepip: install them (Debian, Ubuntu: apt-get install python3-venv)"
        return
    done
    die "no Python 3.11 or later found (looked for ${PYTHON:-python3, python3.11 to python3.14}):" \
        "install one, load its module, or name it: PYTHON=/path/to/python3.11"
}

has_headers() { [[ -f $("$base_python" -c 'import sysconfig; print(sysconfig.get_path("include"))')/Python.h ]]; }

find_system_mpi() { # sets mpicc, hdf5 (what h5py's build is told) and launcher, which may be empty
    local prefix name
    mpicc=$(command -v mpicc || true)
    for prefix in "${HDF5_DIR:-}" "${HDF5_ROOT:-}" "${EBROOTHDF5:-}" \
        "$(h5pcc -showconfig 2>/dev/null | sed -n 's/.*Installation point: *//p')"; do
        if [[ $mpicc && $prefix ]] && grep -qs 'define H5_HAVE_PARALLEL 1' "$prefix"/include/H5pubconf*.h; then
            hdf5=HDF5_DIR=$prefix
            launcher=$(dirname "$mpicc")/mpirun
            [[ -x $launcher ]] || launcher=$(command -v mpirun || command -v mpiexec || true)
            return
        fi
    done
    name=$(debian_mpi) # Debian, Ubuntu: the MPI that plain mpirun stands for
    launcher=$(command -v "mpirun.$name" || true)
    mpicc=$(command -v "mpicc.$name") &&
        hdf5=HDF5_PKGCONFIG_NAME=hdf5-$name && pkg-config --exists "hdf5-$name" 2>/dev/null
}

debian_mpi() {
    local default
    default=$(readlink /etc/alternatives/mpirun || true)
    case $default in *.openmpi) echo openmpi ;; *) echo mpich ;; esac
}

apt_install() {
    export DEBIAN_FRONTEND=noninteractive
    apt-get update && apt-get install -y --no-install-recommends -o DPkg::Lock::Timeout=300 "$@"
}

choose_mpi() { # sets flavour, mpirun and mpi, the text that .venv/mpi-flavour keeps
    local packages=(gcc pkg-config)
    flavour=${OMNIINPUT_MPI:-$(sed -n 's/^flavour = //p' "$venv/mpi-flavour" 2>/dev/null || true)}
    case $flavour in wheel | system | '') ;; *) die "OMNIINPUT_MPI is '$flavour', not system or wheel" ;; esac
    if [[ $flavour != wheel ]] && ! { find_system_mpi && has_headers; }; then
        if [[ $EUID == 0 ]] && command -v apt-get >/dev/null; then
            case $(debian_mpi) in
                openmpi) packages+=(openmpi-bin libopenmpi-dev libhdf5-openmpi-dev) ;;
                mpich) packages+=(mpich libmpich-dev libhdf5-mpich-dev) ;;
            esac
            has_headers || packages+=(python3-dev)
            logged "installing ${packages[*]} with apt-get" apt_install "${packages[@]}"
            find_system_mpi || die "apt-get succeeded, but no mpicc with a parallel HDF5 was found"
            has_headers || die "$base_python has no Python.h: install its headers"
        elif [[ $flavour == system ]]; then
            die "no mpicc with a parallel HDF5 and Python's headers here: load the modules that provide them" \
                "(mpicc on the PATH; HDF5_DIR, or h5pcc on the PATH), or set OMNIINPUT_MPI=wheel"
        else
            say "no mpicc with a parallel HDF5 and Python's headers here, and only root could install them:" \
                "using the mpich wheel from PyPI (rank 0 will write the run file)"
            flavour=wheel
        fi
    fi
    if [[ $flavour == wheel ]]; then
        launcher=$venv/bin/mpirun
        mpi="flavour = wheel"
    else
        flavour=system
        mpi="flavour = system"$'\n'"mpicc = $mpicc"$'\n'"version = $(mpi_version)"$'\n'"hdf5 = $hdf5"
    fi
    mpirun=(${launcher:+"$launcher"})
    if [[ $flavour == system && $launcher && $("$launcher" --version 2>/dev/null) =~ 'Open MPI'|OpenRTE ]]; then
        mpirun+=(--oversubscribe)
        [[ $EUID != 0 ]] || mpirun+=(--allow-run-as-root)
    fi
    mpi+=$'\n'"mpirun = ${mpirun[*]}"
}

mpi_version() {
    echo '#include <mpi.h>' | "$mpicc" -E -dM -x c - | sort |
        sed -nE 's/^#define (MPICH_VERSION|I_MPI_VERSION|OMPI_(MAJOR|MINOR|RELEASE)_VERSION) //p' | tr -d '"' | tr '\n' ' '
}

install_mpi() { # mpi4py and h5py on one and the same MPI
    local cache none_else=(--no-deps --ignore-installed) # not those of another .venv that this one sees
    local locked=(--constraint "$lock")
    rm -f "$venv/mpi-flavour"
    pip uninstall -y mpi4py h5py mpich >>"$log" 2>&1 # what another MPI left
    if [[ $flavour == wheel ]]; then
        logged "installing MPICH, mpi4py and h5py from PyPI" \
            pip_install --only-binary=mpich,mpi4py,h5py "${none_else[@]}" mpich mpi4py h5py
    else
        # pip keeps the wheels it built, but not for which MPI: so each MPI has a cache of its own
        cache=${XDG_CACHE_HOME:-~/.cache}/omniinput_hpc/pip-$(cksum <<<"$mpicc $(mpi_version) $hdf5" | cut -d ' ' -f 1)
        logged "building mpi4py with $mpicc (up to 2 minutes)" env MPICC="$mpicc" CFLAGS="$cflags" \
            "$python" -m pip --no-input --cache-dir "$cache" install "${locked[@]}" "${none_else[@]}" --no-binary=mpi4py mpi4py
        logged "building h5py with parallel HDF5, $hdf5 (up to 2 minutes)" \
            env CC="$mpicc" HDF5_MPI=ON "$hdf5" CFLAGS="$cflags" "$python" -m pip --no-input --cache-dir "$cache" \
            install "${locked[@]}" --no-build-isolation "${none_else[@]}" --no-binary=h5py h5py
    fi
}

verify_mpi() { # without MPI_Init, which a login node may refuse
    "$python" - "$flavour" "$venv" <<'PYTHON' || die "the MPI in $venv does not fit: remove that folder and start again"
import re, sys
import mpi4py
mpi4py.rc.initialize = False
from mpi4py import MPI
import h5py

flavour, venv = sys.argv[1:]
with open("/proc/self/maps") as maps:
    libraries = sorted(set(re.findall(r"/\S*/lib(?:mpi|mpich)\.so\S*", maps.read())))
if len(libraries) > 1:
    sys.exit(f"setup: error: two MPI libraries in one process: {', '.join(libraries)}")
if h5py.get_config().mpi != (flavour == "system"):
    sys.exit(f"setup: error: flavour {flavour}, but h5py.get_config().mpi is {h5py.get_config().mpi}")
if flavour == "wheel" and not all(library.startswith(venv) for library in libraries):
    sys.exit(f"setup: error: mpi4py took {libraries[0]}, not the MPI in {venv}")
version = re.split(r"[\n,\0]", MPI.Get_library_version().replace("Version:", ""))[0]
print(f"setup: {' '.join(version.split())}; h5py {h5py.__version__}, HDF5 {h5py.version.hdf5_version}",
      "with MPI" if flavour == "system" else "without MPI")
PYTHON
    [[ ${#mpirun[@]} != 0 ]] || say "no mpirun here: ranks are started by jobs (sbatch jobscripts/run.sbatch)"
    say "no ranks were started: the first run checks that its launcher fits this MPI"
}

install_all() { # EXTRA
    if [[ ! -x $python ]]; then
        rm -f "$venv"/mpi-flavour "$venv"/stamp-*
        logged "making $venv with $base_python" "$base_python" -m venv "$venv"
    fi
    # first, and locked: a range fetches several GB of CUDA packages
    "$python" -c 'import torch' 2>/dev/null || logged "installing torch" pip_install torch
    if [[ $mpi != "$(cat "$venv/mpi-flavour" 2>/dev/null)" ]]; then
        logged "installing the build tools" pip_install "${build_tools[@]}"
        install_mpi
    fi
    logged "installing omniinput_hpc and what it needs" \
        pip install --constraint <(grep -v '^torch==' "$lock") --no-build-isolation --editable "${root}[run${1:+,$1}]"
    verify_mpi
    echo "$mpi" >"$venv/mpi-flavour"
}

setup() { # [EXTRA]
    local key stamp=$venv/stamp-${1:-base} start=$SECONDS
    mkdir -p "$venv"
    {
        flock -n 9 || { say "waiting for another set-up of $venv"; flock 9; }
        find_python
        choose_mpi
        key=$(echo "$mpi"; cd "$root" && pwd && cksum setup.cfg jobscripts/setup.sh "$lock")
        if [[ ! -x $python || $key != "$(cat "$stamp" 2>/dev/null)" ]]; then
            install_all "${1:-}"
            echo "$key" | tee "$stamp" >"$venv/stamp-base"
            say "ready after $((SECONDS - start)) s; the log is $log"
        fi
    } 9>"$venv/lock"
}

if [[ ${BASH_SOURCE[0]} == "$0" ]]; then
    set -euo pipefail
    setup "${1:-}"
fi
