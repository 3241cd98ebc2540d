# shellcheck shell=bash
# What a job does under SLURM, from each start to its end or its next start. Sourced by run.sbatch,
# array.sbatch and python.sbatch, which set ${python[@]} and $mpi and call
#
#     run_and_requeue WORD...         # Python's arguments: -m omniinput_hpc INPUT.toml
#
# Before the time limit SLURM sends SIGUSR1 to the batch script (--signal=B:USR1@120); SIGTERM announces
# preemption. Either is passed on to a command that can resume (a run, rescore, census, judge), which
# stops, everything committed, and exits with 75 or is ended by the signal. Then the job is queued again, and
# its next start resumes it; so it is after a failure (a GPU's error, say) of a job that has committed
# something. It is not queued again after exit codes 0 (complete) and 2 (bad input), after scancel, after a
# failure at its first start before anything was committed or where committed rounds are gone, and when two
# restarts in a row committed nothing. FILE.slurm, next to the command's result, keeps the count of those
# between two starts. Other commands, such as trainings, have the time until the limit and are not queued again.
set -euo pipefail
: "${SLURM_JOB_ID:?this is a job script: sbatch $0}" "${mpi:?}" "${python[0]:?}"

max_idle_restarts=2

# Not SLURM_JOB_ID: one member of an array has the whole array's, and scontrol would requeue all of them.
job=${SLURM_ARRAY_JOB_ID:+${SLURM_ARRAY_JOB_ID}_$SLURM_ARRAY_TASK_ID}
job=${job:-$SLURM_JOB_ID}
restarts=${SLURM_RESTART_COUNT:-0}
signal='' # the last one that came
interrupted=''
ranks=many now=0 unit=rounds file='' # see `committed`

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
    if [[ $unit == - ]]; then
        say "SIG$1: this command cannot resume, and goes on until it is ended"
        return 0 # without 0, that of what the signal interrupted
    fi
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

committed() { # WORD...: sets ranks, now, unit and file as cli/committed.py explains
    ranks=many now=0 unit=rounds file=
    read -r ranks now unit file <<<"$("${python[@]}" -m omniinput_hpc.cli.committed "$@")" || true
    ranks=${ranks:-many} now=${now:-0} unit=${unit:-rounds} # an error in there leaves them empty
    [[ $unit != - ]] || file=''
}

ended_from_outside() { # by scancel, which requeueing would undo; not by the time limit
    local state
    state=$(scontrol show job --oneliner "$job") || return 1
    [[ $state != *JobState=RUNNING* && $state != *Reason=TimeLimit* ]]
}

requeue() { # CODE BEFORE OUTPUT WORD...
    local code=$1 before=$2 note=$3.slurm whose='' idle=0 remedy
    committed "${@:4}"
    remedy="A round must fit into --time: lower sampler.exchanges or sampler.steps, or raise --time"
    [[ $unit == rounds ]] || remedy="Raise --time"
    if [[ $code != 75 ]]; then
        say "exit code $code: a failure, see the message above"
        remedy="Committed $unit are safe, and sbatch resumes the run"
    fi
    if ((now <= before && restarts > 0)); then
        [[ ! -f $note ]] || read -r whose idle <"$note" || true
        [[ $whose == "$job" ]] || idle=0
        idle=$((idle + 1))
    fi
    if ended_from_outside; then
        say "stopped, $now $unit committed; the job was cancelled or preempted: not queued again"
    elif [[ $code != 75 ]] && ((now == 0 || now < before || (now == before && restarts == 0))); then
        say "not queued again: $now $unit are committed; before this start it was $before"
    elif ((idle >= max_idle_restarts)); then
        say "stopped, and not queued again: $idle restarts in a row committed no $unit. $remedy"
    else
        say "stopped, $now $unit committed; queueing it again"
        { mkdir -p "$(dirname "$note")" && echo "$job $idle" >"$note"; } || true # the run may not have made it yet
        trap '' USR1 TERM # SLURM ends this script now
        scontrol requeue "$job" && return
        say "scontrol requeue failed; to resume, submit it again"
    fi
    rm -f "$note"
}

run_and_requeue() { # WORD...
    local code=0 before output launch=(srun --mpi="$mpi" --kill-on-bad-exit=0 --wait=60)
    trap 'on_signal USR1' USR1
    trap 'on_signal TERM' TERM
    committed "$@"
    before=$now output=${file:-omniinput-$job}
    # This job made the run file at an earlier start: it is not another one's.
    if [[ " $* " == *' --restart'[\ =]'never '* && -f $output.slurm ]] && grep -q "^$job " "$output.slurm"; then
        set -- "$@" --restart auto
    fi
    if [[ $unit == - ]]; then
        say "$SLURM_NTASKS rank(s) on $SLURM_JOB_NODELIST: $*"
    else
        say "$SLURM_NTASKS rank(s) on $SLURM_JOB_NODELIST, $before $unit committed before: $*"
    fi
    if [[ $ranks == one && $SLURM_NTASKS != 1 ]]; then
        say "warning: this command is one process, and leaves the other $((SLURM_NTASKS - 1)) idle"
        launch+=(--ntasks=1 --nodes=1)
    fi

    # srun takes it from nowhere else since SLURM 22.05
    [[ ! ${SLURM_CPUS_PER_TASK-} ]] || export SRUN_CPUS_PER_TASK=$SLURM_CPUS_PER_TASK
    if [[ $signal && $unit != - ]]; then
        code=75
    else
        # With kill-on-bad-exit the first rank that exits with 75 would end the others; wait ends those
        # that hang after one was killed.
        "${launch[@]}" "${python[@]}" "$@" &
        wait_for "$!" || code=$?
    fi
    if [[ $signal && $code -gt 128 && $unit != - ]]; then
        say "exit code $code: some ranks were killed before they could stop"
        code=75
    fi

    case $code in
        0) say "complete" ;;
        2) say "exit code 2, bad input: not queued again" ;;
        *) if [[ $unit == - ]]; then
            say "exit code $code: not queued again, since this command cannot resume"
        else
            requeue "$code" "$before" "$output" "$@"
        fi ;;
    esac
    [[ $code != 0 && $code != 2 ]] || rm -f "$output.slurm"
    return "$code"
}
