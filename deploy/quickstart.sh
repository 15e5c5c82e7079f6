#!/bin/bash
# From a checkout to a streamed answer over a real handoff. See --help.
set -euo pipefail

root=$(cd "$(dirname "$0")/.." && pwd)
cd "$root"
# shellcheck source=deploy/packages.sh
source deploy/packages.sh
# shellcheck source=deploy/programs.sh
source deploy/programs.sh

usage() {
    cat <<'TEXT'
usage: deploy/quickstart.sh [--keep] [--no-install]

Installs what is missing (Debian packages, as root or by sudo), builds
build/release, and starts on this machine:

    curl ──► baton-proxy ──► 2 prefill engines (baton-engine)
                  │                  ║ KV blocks, one-sided reads
                  └────────► 2 decode engines  (baton-engine)

then streams one chat answer through them and shows the handoff's time line.

  --keep         leave it running, and say how to use and how to end it
  --no-install   leave the system's packages as they are

BATON_BUILD=DIR uses the programs of that build folder and builds nothing.
TEXT
}

install=yes
for argument in "$@"; do
    case $argument in
    --keep) keep=yes ;;
    --no-install) install=no ;;
    --help | -h)
        usage
        exit 0
        ;;
    *)
        echo "quickstart: $argument: unknown; --help says what there is" >&2
        exit 2
        ;;
    esac
done

programs_begin quickstart

# What to do when a step fails.
advise() {
    case $step in
    installing*)
        echo "Try: apt-get update, then this again; or install by hand and" \
            "add --no-install: $(packages_missing build | xargs)"
        ;;
    building)
        echo "Try: rm -rf build/release, then this again. If packages are" \
            "missing, leave --no-install out."
        ;;
    *)
        echo "Try this again. A second time the same: file an issue with" \
            "these logs."
        ;;
    esac
}

start_engine() {
    local name=$1 role=$2 address
    programs_start "$engine" --listen 127.0.0.1:0 --role "$role" \
        --agents "$agents" --key-file "$work/agent.key" \
        --prefill-rate 40000 --decode-step 40000 >"$work/$name.log" 2>&1
    wait_for 20 "$name is ready" grep -q 'ready on' "$work/$name.log"
    address=$(address_of "$work/$name.log")
    flags+=("--$role" "http://$address")
    echo "$name: http://$address (pid $!)"
}

# Milliseconds and rates of the newest handoff, from the admin's JSON: one
# member a line, the newest first under "recent".
time_line() {
    awk '
        /"recent":/ { inside = 1 }
        inside && match($0, /"[a-z_]+": /) {
            name = substr($0, RSTART + 1, RLENGTH - 4)
            value = substr($0, RSTART + RLENGTH)
            gsub(/[",]/, "", value)
            if (!(name in have)) have[name] = value
        }
        function at(name, text) {
            if (have[name] == "null" || have[name] == "") return
            printf "  %9.3f ms  %s\n", have[name] / 1000, text | "sort -sn"
        }
        END {
            if (have["handoff"] == "") { print "  no handoff is shown"; exit 1 }
            printf "  handoff %s, %d tokens\n", have["handoff"], have["tokens"]
            printf "  %9.3f ms  prefill asked: %s\n", 0, have["prefill"]
            fflush() # the steps are sorted by their time
            at("held_at_us", "its blocks are held")
            at("prefilled_at_us", sprintf("prefill answered, after %.3f ms of work", have["prefill_us"] / 1000))
            at("decode_at_us", "decode asked: " have["decode"])
            at("pulling_at_us", "reading begins")
            seconds = have["read_us"] / 1e6
            at("pulled_at_us", sprintf("%d blocks, %.2f MB read over %s in %.3f ms: %.2f GB/s (%d reads)", have["blocks_read"], have["bytes"] / 1e6, have["provider"], have["read_us"] / 1000, seconds > 0 ? have["bytes"] / 1e9 / seconds : 0, have["runs"]))
            at("release_at_us", "release told to prefill: " have["release"])
            at("ended_at_us", "its blocks are free again")
            close("sort -sn")
            if (have["first_token_us"] + 0 > 0)
                printf "  time to first token, seen by the proxy: %.3f ms\n", have["first_token_us"] / 1000
        }'
}

# Events as they arrive, with the milliseconds since the request: the first
# one whole, of the others what is new in them.
show_events() {
    local line delta begin_us=${EPOCHREALTIME/[.,]/} now_us shown=0
    while IFS= read -r line; do
        [[ -n $line ]] || continue
        now_us=${EPOCHREALTIME/[.,]/}
        delta=$line
        if ((shown > 0)) && [[ $line == *'"delta":'* ]]; then
            delta="data: … \"delta\":${line#*\"delta\":}"
        fi
        printf '%6d ms  %s\n' $(((now_us - begin_us) / 1000)) "$delta"
        shown=$((shown + 1))
    done
}

handoff_ended() {
    curl -fsS "http://$admin/handoffs" | grep -q '"ended_at_us": [0-9]'
}

begin=$SECONDS
if [[ $install == yes ]]; then
    step="installing packages"
    packages_install build
fi

build=${BATON_BUILD:-}
if [[ -z $build ]]; then
    build=build/release
    step="building"
    say "building $build"
    generator=()
    if [[ ! -f $build/CMakeCache.txt ]] && command -v ninja >/dev/null; then
        generator=(-G Ninja)
    fi
    if ! cmake --preset release "${generator[@]}" >"$work/configure.log" 2>&1 ||
        ! cmake --build "$build" -j "$(nproc)" \
            --target baton-proxy baton-engine >"$work/build.log" 2>&1; then
        exit 1
    fi
    rm -f "$work/configure.log" "$work/build.log"
    echo "built in $((SECONDS - begin)) s"
fi
proxy=$build/proxy/baton-proxy
engine=$build/agent/engine/baton-engine

step="starting the engines and the proxy"
say "starting two prefill engines, two decode engines and the proxy"
(umask 077 && head -c 32 /dev/urandom | base64 >"$work/agent.key")
agents=unix:$work/agents # the engines know it before the proxy is there
flags=()
for name in prefill-1 prefill-2; do
    start_engine "$name" prefill
done
for name in decode-1 decode-2; do
    start_engine "$name" decode
done

programs_start "$proxy" --listen 127.0.0.1:0 --admin 127.0.0.1:0 \
    --agents "$agents" --agent-key "$work/agent.key" \
    --connector baton "${flags[@]}" >"$work/access.log" 2>"$work/proxy.log"
wait_for 20 "the proxy is ready" grep -q 'ready on' "$work/proxy.log"
address=$(address_of "$work/proxy.log")
admin=$(admin_of "$work/proxy.log")
echo "proxy: http://$address, admin http://$admin (pid $!)"
wait_for 30 "prefill and decode engines are introduced" \
    curl -fsS "http://$address/ready"
echo "ready: every prefill engine was introduced to every decode engine"

step="streaming an answer"
say "one chat request, streamed (each event as it arrives)"
page=$(printf 'The quick start of Baton sends a page of text to be read. %.0s' {1..150})
cat >"$work/request.json" <<JSON
{"model": "baton", "stream": true, "max_tokens": 24, "messages": [
  {"role": "system", "content": "$page"},
  {"role": "user", "content": "Say something about it."}]}
JSON
echo "\$ curl -N http://$address/v1/chat/completions -d @request.json   # $(wc -c <"$work/request.json") bytes"
curl -NsS --fail-with-body --max-time 60 "http://$address/v1/chat/completions" \
    -H 'Content-Type: application/json' -d "@$work/request.json" |
    tee "$work/answer.txt" | show_events
grep -q '^data: \[DONE\]' "$work/answer.txt"

step="reading the handoff's time line"
say "the handoff's time line (http://$admin/handoffs)"
wait_for 10 "the handoff has ended" handoff_ended
curl -fsS "http://$admin/handoffs" >"$work/handoffs.json"
time_line <"$work/handoffs.json"
say "the proxy's access log"
wait_for 10 "the access log has the request" grep -q chat/completions "$work/access.log"
grep chat/completions "$work/access.log" | tail -1

say "how to go on"
if [[ $keep == yes ]]; then
    cat <<TEXT
It keeps running:
  curl http://$address/v1/models
  curl http://$admin/metrics
  curl http://$admin/engines
  logs are in $work
End it with
  kill ${programs_pids[*]}
TEXT
    disown -a
else
    cat <<TEXT
Everything is ended now. deploy/quickstart.sh --keep leaves it running;
build/release/proxy/baton-proxy --help lists every setting, conf/ has examples,
tests/run.sh runs the tests.
TEXT
fi
