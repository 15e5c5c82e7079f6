#!/bin/bash
# Whether the example configurations agree with the table of settings:
#
#   tests/lint/tables.sh PROXY [--write]
#
# conf/baton.yaml is what the program prints (--write makes it so), and every
# example passes the program's own check.
set -euo pipefail

root=$(cd "$(dirname "$0")/../.." && pwd)
proxy=${1:?usage: tables.sh PROXY [--write]}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
failed=0

complete() {
    "$proxy" --print-config --with-help \
        --admin 127.0.0.1:9090 \
        --agents 0.0.0.0:9400 --agent-key /etc/baton/agent.key \
        --prefill http://10.0.0.1:8000 --decode http://10.0.0.2:8000
}

if [[ ${2:-} == --write ]]; then
    complete >"$work/baton.yaml"
    cp "$work/baton.yaml" "$root/conf/baton.yaml"
fi

complete >"$work/baton.yaml"
if ! diff -u "$root/conf/baton.yaml" "$work/baton.yaml"; then
    echo "tables: conf/baton.yaml differs from what baton-proxy prints;" \
        "run tests/lint/tables.sh $proxy --write"
    failed=1
fi

# The examples name a key file that exists on no test machine.
(umask 077 && head -c 32 /dev/urandom | base64 >"$work/agent.key")
for file in "$root"/conf/*.yaml; do
    if ! "$proxy" --config "$file" --agent-key "$work/agent.key" --check \
        >/dev/null; then
        echo "tables: ${file#"$root"/} is refused"
        failed=1
    fi
done

exit "$failed"
