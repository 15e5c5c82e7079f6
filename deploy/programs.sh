# shellcheck shell=bash
# The programs that a script starts on this machine: their begin, the waiting
# for them, and their end, whatever becomes of the script. Sourced by
# deploy/quickstart.sh, deploy/vllm.sh and bench/replay.sh:
#
#   programs_begin NAME                a folder $work; from now on the script's
#                                      end is that of its programs
#   programs_start COMMAND… >F 2>F     its pid is $!
#   programs_start_group COMMAND… >F   the same, with all that it starts
#   wait_for SECONDS WHAT COMMAND…     until the command succeeds
#   address_of LOG, admin_of LOG       where it listens, by its ready line
#
# The script says in `step` what it is doing, for the case that it fails (empty:
# it speaks for itself), in `keep` whether the programs outlive it (yes, no),
# and may have a function `advise`, what to do about a failure. It keeps to one
# $(…) a command: a signal between two of them makes bash 5.2 leave with 2.

step="begin"
keep=no
programs_pids=()
programs_groups=()
programs_signalled=no

say() {
    printf '\n── %s\n' "$1"
}

programs_begin() {
    programs_script=$1
    work=$(mktemp -d "${TMPDIR:-/tmp}/baton-$1.XXXXXX") || exit 1
    # The report goes where the script writes, wherever a program does.
    exec {programs_out}>&1 {programs_err}>&2
    trap programs_on_exit EXIT
    programs_take_signals
}

# A signal must not come between a start and the note of its pid.
programs_hold_signals() {
    trap 'programs_signalled=yes' HUP INT TERM
}

programs_take_signals() {
    trap 'exit 130' HUP INT TERM
    [[ $programs_signalled == no ]] || exit 130
}

programs_start() {
    programs_hold_signals
    "$@" {programs_out}>&- {programs_err}>&- &
    programs_pids+=($!)
    programs_take_signals
}

# In a session of its own, for a program that does not always end its children.
programs_start_group() {
    programs_hold_signals
    setsid "$@" {programs_out}>&- {programs_err}>&- &
    programs_groups+=($!)
    programs_take_signals
}

programs_group_lives() {
    [[ -n $(pgrep -g "$1" -r R,S,D,T 2>/dev/null) ]]
}

# programs_kill SIGNAL PID: a group is -PID; it has none before its setsid.
programs_kill() {
    kill "-$1" -- "$2" 2>/dev/null || kill "-$1" -- "${2#-}" 2>/dev/null
}

# programs_end_one END PID LIVES…: waits for it, and kills it at END.
programs_end_one() {
    local end=$1 pid=$2
    shift 2
    while "$@" 2>/dev/null && ((SECONDS < end)); do
        sleep 0.1
    done
    programs_kill KILL "$pid"
}

# Ends what was started, by its pid or group: asks, and kills after 10 s.
programs_end() {
    local pid end=$((SECONDS + 10))
    for pid in "${programs_groups[@]/#/-}" "${programs_pids[@]}"; do
        programs_kill TERM "$pid"
    done
    for pid in "${programs_groups[@]}"; do
        programs_end_one "$end" "-$pid" programs_group_lives "$pid"
    done
    for pid in "${programs_pids[@]}"; do
        programs_end_one "$end" "$pid" kill -0 "$pid"
    done
    for pid in "${programs_groups[@]}" "${programs_pids[@]}"; do
        wait "$pid" 2>/dev/null
    done
    programs_groups=()
    programs_pids=()
}

# The ends of the logs, then what failed and what to do.
programs_report() {
    local log
    for log in "$work"/*.log; do
        [[ -s $log ]] || continue
        echo "── end of $log"
        tail -25 "$log"
    done
    echo "$programs_script: failed at: $step" >&2
    echo "The logs above say why; they stay in $work." >&2
    if declare -F advise >/dev/null; then
        advise >&2
    fi
}

programs_on_exit() {
    local status=$?
    # Nothing cuts this short, not even an output that nobody reads.
    trap '' HUP INT PIPE TERM
    set +e
    exec 1>&"$programs_out" 2>&"$programs_err"
    if ((status != 0)) && [[ -n $step ]]; then
        programs_report
        programs_end
    elif ((status != 0)) || [[ $keep == no ]]; then
        programs_end
        rm -rf "$work"
    fi
    exit "$status"
}

# Fails when the time is over, or a program has ended.
wait_for() {
    local end=$((SECONDS + $1)) what=$2 pid
    shift 2
    until "$@" >/dev/null 2>&1; do
        for pid in "${programs_pids[@]}" "${programs_groups[@]}"; do
            if ! kill -0 "$pid" 2>/dev/null; then
                echo "a program ended while waiting: $what" >&2
                return 1
            fi
        done
        if ((SECONDS >= end)); then
            echo "not within the time: $what" >&2
            return 1
        fi
        sleep 0.1
    done
}

# The addresses in a program's ready line, where the system chose the ports.
address_of() {
    sed -n 's/^[a-z-]*: ready on \([^ ]*\).*/\1/p' "$1" | head -1
}

admin_of() {
    sed -n 's/.*ready on.*(admin \([^ ,)]*\).*/\1/p' "$1" | head -1
}
