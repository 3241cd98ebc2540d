# shellcheck shell=bash
# What a job does under SLURM, from each start to its end or its next start. Sourced by run.sbatch and
# array.sbatch, which set ${python[@]} and $mpi and call
#
#     run_and_requeue INPUT.toml [ARGUMENT of python -m omniinput_hpc]...
#
# Before the time limit SLURM sends SIGUSR1 to the batch script (--signal=B:USR1@120); SIGTERM announces
# preemption. Either is passed on to the program, which stops, everything committed, and exits with 75.
# Then the job is queued again, and its next start resumes it; so it is after a failure (a GPU's error,
# say) of a job that has committed rounds. It is not queued again after exit codes 0 (complete) and 2 (bad
# input), after scancel, after a failure at its first start before a round was committed or where committed
# rounds are gone, and when two restarts in a row committed nothing. RUN.h5.slurm keeps the count of those
# between two starts.
set -euo pipefail
: "${SLURM_JOB_ID:?this is a job script: sbatch $0}" "${mpi:?}" "${python[0]:?}"

max_idle_restarts=2

# Not SLURM_JOB_ID: one member of an array has the whole array's, and scontrol would requeue all of them.
job=${SLURM_ARRAY_JOB_ID:+${SLURM_ARRAY_JOB_ID}_$SLURM_ARRAY_TASK_ID}
job=${job:-$SLURM_JOB_ID}
restarts=${SLURM_RESTART_COUNT:-0}
signal='' # the last one that came
interrupted=''

say() { printf '%(%F %T)T job %s, start %d: %s\n' -1 "$job" $((restarts + 1)) "$*"; }

pick() { # INPUT...: prints the input of this member of the array
    local index=${SLURM_ARRAY_TASK_ID:?this is not an array job: sbatch --array=0-$(($# - 1))}
    if ((index >= $#)); then
        echo "array index $index, but there are $# input files, counted from 0" >&2
        return 2
    fi
    ((SLURM_ARRAY_TASK_COUNT == $#)) ||
        echo "warning: --array has $SLURM_ARRAY_TASK_COUNT numbers, but there are $# input files" >&2
    echo "${@:index+1:1}"
}

on_signal() { # NAME
    signal=$1
    interrupted=yes
    say "SIG$1: asking the run to stop"
    # srun hands SIGUSR1 to all ranks; SIGTERM would end it. $! is there as soon as srun is.
    [[ ! ${!-} ]] || kill -USR1 "$!" 2>/dev/null || true
}

wait_for() { # PID: returns its exit code, whatever signals come meanwhile
    local code
    while
        interrupted=''
        code=0
        wait "$1" || code=$? # 138 where SIGUSR1 interrupts it; bash remembers the code of what has ended
        [[ $interrupted ]]
    do :; done
    return "$code"
}

committed() { # INPUT.toml [ARGUMENT]...: prints "ROUNDS RUN.h5", burn-in counted; nothing for bad input
    "${python[@]}" - "$@" <<'PYTHON' || true
import argparse, os, sys
from pathlib import Path
from omniinput_hpc.errors import UserError
from omniinput_hpc.runfile import given_input
from omniinput_hpc.runfile.reader import open_run

parser = argparse.ArgumentParser(allow_abbrev=False)
parser.add_argument("input", type=Path)
parser.add_argument("--set", action="append", default=[])
args, _ = parser.parse_known_args()
try:
    config = given_input.load(args.input, args.set)
    path, rounds = config.run.output, 0
    if os.path.exists(path):
        with open_run(path) as run:
            rounds = run.rounds + run.burn_in_committed
except UserError:  # the run itself says what is wrong
    sys.exit()
print(rounds, path)
PYTHON
}

ended_from_outside() { # by scancel, which requeueing would undo; not by the time limit
    local state
    state=$(scontrol show job --oneliner "$job") || return 1
    [[ $state != *JobState=RUNNING* && $state != *Reason=TimeLimit* ]]
}

requeue() { # CODE BEFORE RUN.h5 INPUT.toml [ARGUMENT]...
    local code=$1 before=$2 note=$3.slurm now whose='' idle=0 remedy
    read -r now _ <<<"$(committed "${@:4}")" || true
    now=${now:-0}
    remedy="A round must fit into --time: lower sampler.exchanges or sampler.steps, or raise --time"
    if [[ $code != 75 ]]; then
        say "exit code $code: a failure, see the message above"
        remedy="Committed rounds are safe, and sbatch resumes the run"
    fi
    if ((now <= before && restarts > 0)); then
        [[ ! -f $note ]] || read -r whose idle <"$note" || true
        [[ $whose == "$job" ]] || idle=0
        idle=$((idle + 1))
    fi
    if ended_from_outside; then
        say "stopped, $now rounds committed; the job was cancelled or preempted: not queued again"
    elif [[ $code != 75 ]] && ((now == 0 || now < before || (now == before && restarts == 0))); then
        say "not queued again: $now rounds are committed; before this start it was $before"
    elif ((idle >= max_idle_restarts)); then
        say "stopped, and not queued again: $idle restarts in a row committed no round. $remedy"
    else
        say "stopped, $now rounds committed; queueing it again"
        echo "$job $idle" >"$note"
        trap '' USR1 TERM # SLURM ends this script now
        scontrol requeue "$job" && return
        say "scontrol requeue failed; to resume, submit it again"
    fi
    rm -f "$note"
}

run_and_requeue() { # INPUT.toml [ARGUMENT]...
    local code=0 before output
    trap 'on_signal USR1' USR1
    trap 'on_signal TERM' TERM
    read -r before output <<<"$(committed "$@")" || true
    before=${before:-0} output=${output:-omniinput-$job}
    say "$SLURM_NTASKS ranks on $SLURM_JOB_NODELIST, $before rounds committed before: $*"

    # srun takes it from nowhere else since SLURM 22.05
    [[ ! ${SLURM_CPUS_PER_TASK-} ]] || export SRUN_CPUS_PER_TASK=$SLURM_CPUS_PER_TASK
    if [[ $signal ]]; then
        code=75
    else
        # With kill-on-bad-exit the first rank that exits with 75 would end the others; wait ends those
        # that hang after one was killed.
        srun --mpi="$mpi" --kill-on-bad-exit=0 --wait=60 "${python[@]}" -m omniinput_hpc "$@" &
        wait_for "$!" || code=$?
    fi
    if [[ $signal && $code -gt 128 ]]; then
        say "exit code $code: some ranks were killed before they could stop"
        code=75
    fi

    case $code in
        0) say "complete" ;;
        2) say "exit code 2, bad input: not queued again" ;;
        *) requeue "$code" "$before" "$output" "$@" ;;
    esac
    [[ $code != 0 && $code != 2 ]] || rm -f "$output.slurm"
    return "$code"
}
