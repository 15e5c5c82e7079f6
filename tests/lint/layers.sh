#!/bin/bash
# The direction of #include, and one door for each third-party library.
#
#   proxy  ->  common          agent/src     ->  common
#   bench  ->  common, agent.h agent/engine  ->  common, <baton/agent.h>
#   tests  ->  anything
#
# proxy and agent/src never meet but in agent/link, which says what both sides
# of the link must agree on; common includes nothing above.
set -uo pipefail

cd "$(dirname "$0")/../.." || exit 1
failed=0

complain() {
    echo "layers: $1"
    failed=1
}

# Lines "file:line:#include "folder/…"" of one folder's own includes.
own() {
    grep -rnE '^[[:space:]]*#[[:space:]]*include[[:space:]]*"' "$1" \
        --include='*.c' --include='*.h' --include='*.def' 2>/dev/null
}

# may FOLDER PATTERN: includes with quotes must match the pattern.
may() {
    local line
    while IFS= read -r line; do
        [[ -n $line ]] && complain "$line: $1 may include $2 alone"
    done < <(own "$1" | grep -vE "include[[:space:]]*\"($2)[/\"]" |
        grep -vE "$(allowed_beside "$1")")
}

# Within agent/src and agent/engine a file may name its neighbours shortly.
allowed_beside() {
    case $1 in
    agent/*) echo 'include[[:space:]]*"[a-z0-9_]+\.(h|def)"' ;;
    *) echo '^$' ;;
    esac
}

may common common
may agent/link 'common'
may proxy 'proxy|agent/link|common'
may agent/src 'agent/src|agent/link|common|baton'
may agent/engine 'agent/engine|common'
may agent/example 'agent/example'
# The bench knows the right answer of an engine from the engine's own model.
may bench 'bench|common|agent/engine/model.h'

# Only engines, examples, benches and the library itself know the agent's API.
while IFS= read -r line; do
    complain "$line: only agent and bench include <baton/agent.h>"
done < <(grep -rnE '#[[:space:]]*include[[:space:]]*<baton/' common proxy \
    --include='*.c' --include='*.h' 2>/dev/null)

# door LIBRARY HEADER-PATTERN FILE-PATTERN: who may include a library.
door() {
    local line
    while IFS= read -r line; do
        [[ ${line%%:*} =~ ^($3)$ ]] ||
            complain "$line: $1 has other doors ($3)"
    done < <(grep -rnE "#[[:space:]]*include[[:space:]]*<($2)" common proxy \
        agent bench --include='*.c' --include='*.h' 2>/dev/null)
}

door libevent 'event2?[./]' 'common/(loop|stream[a-z_]*)\.[ch]'
door llhttp 'llhttp' 'common/http_parse\.c'
door libyaml 'yaml\.h' 'common/conf_yaml\.c'
door OpenSSL 'openssl/' 'common/(stream_tls|net|proof)\.c|proxy/[a-z_]+\.c|agent/src/(link|id|card|wire)[a-z_]*\.[ch]'
door jansson 'jansson' '(proxy|agent/src|agent/engine|bench)/[a-z_]+\.[ch]'
door libfabric 'rdma/' 'agent/src/(fabric|peer|region|pull|reactor|channel)[a-z_]*\.[ch]|bench/(micro_pull|raw)[a-z_]*\.c'
door dlopen 'dlfcn' 'agent/src/mem_[a-z]+\.c'

exit "$failed"
