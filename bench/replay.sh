#!/bin/bash
# Replays a trace against a proxy with two prefill and two decode engines on
# loopback, checks every answer, and prints the report. See --help.
set -uo pipefail

root=$(cd "$(dirname "$0")/.." && pwd)
# shellcheck source=deploy/programs.sh
source "$root/deploy/programs.sh"

if [[ ${1:-} == --help || ${1:-} == -h ]]; then
    cat <<'TEXT'
usage: bench/replay.sh [BATON-BENCH ARGUMENT…]

Starts baton-proxy (connector baton, one worker) and four baton-engines from
BUILD (default build/release) on free loopback ports, runs baton-bench against
them, and ends them all. Without arguments: 60 s of the Azure conversation trace,
lengths as given up to 16,000 tokens, every answer checked against the known one,
report as JSON on standard output. The exit status is baton-bench's.
TEXT
    exit 0
fi

build=${BUILD:-$root/build/release}
programs_begin replay
step="" # what is printed is the report

# start NAME PROGRAM ARGUMENT…: until it says that it is ready
start() {
    local name=$1
    shift
    programs_start "$@" >"$work/$name.out" 2>"$work/$name.log"
    wait_for 10 "$name" grep -q 'ready on' "$work/$name.log" 2>/dev/null && return
    echo "replay: $name is not ready:" >&2
    cat "$work/$name.log" >&2
    exit 1
}

[[ -x $build/bench/baton-bench ]] || {
    echo "replay: no build in $build; make one: cmake --preset release && cmake --build --preset release" >&2
    exit 2
}

(umask 077 && od -An -N32 -tx1 /dev/urandom | tr -d ' \n' >"$work/agent.key")
agents=unix:$work/agents
flags=()
for engine in prefill-1 prefill-2 decode-1 decode-2; do
    role=${engine%-*}
    start "$engine" "$build/agent/engine/baton-engine" --listen 127.0.0.1:0 \
        --role "$role" --agents "$agents" --key-file "$work/agent.key"
    flags+=("--$role" "http://$(address_of "$work/$engine.log")")
done
start proxy "$build/proxy/baton-proxy" --listen 127.0.0.1:0 --admin 127.0.0.1:0 \
    --agents "$agents" --agent-key "$work/agent.key" --workers 1 \
    --connector baton --set log.access=off "${flags[@]}"
listen=$(address_of "$work/proxy.log")
admin=$(admin_of "$work/proxy.log")
wait_for 10 "all are introduced" curl -sf "http://$listen/ready" 2>/dev/null

(($# > 0)) || set -- --trace "$root/bench/traces/azure_conv_15min.csv" \
    --duration 60s --max-input 16000 --check --samples-above 0 --json -
# In the background, so that a signal need not wait for its end.
programs_start "$build/bench/baton-bench" --url "http://$listen" \
    --admin "$admin" "$@"
wait $!
