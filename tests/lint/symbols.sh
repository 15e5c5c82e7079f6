#!/bin/bash
# The agent's shared library exports baton_* and nothing else, each in the node
# of a version, and all that its header promises.
#
#   tests/lint/symbols.sh LIBRARY
set -uo pipefail

library=${1:?usage: symbols.sh LIBRARY}
exported=$(nm -D --defined-only "$library" | awk '{print $3}' | sed 's/@.*//')
others=$(grep -vE '^(baton_[a-z0-9_]+|BATON_[A-Z0-9_.]+)$' <<<"$exported")

if [[ -z $exported ]]; then
    echo "symbols: $library exports nothing"
    exit 1
fi
bare=$(nm -D --defined-only "$library" | awk '{print $3}' | grep '^baton_' |
    grep -v '@@BATON_')
promised=$(grep -oE '\b(baton_[a-z0-9_]+)\(' \
    "$(dirname "$0")/../../agent/include/baton/agent.h" | tr -d '(' | sort -u)
missing=$(comm -23 <(grep -vx 'baton_poll' <<<"$promised") \
    <(sort -u <<<"$exported"))
if [[ -n $bare$missing ]]; then
    echo "symbols: $library has these without a version, or not at all:"
    echo "$bare$missing"
    exit 1
fi
if [[ -n $others ]]; then
    echo "symbols: $library exports what is not its interface:"
    echo "$others"
    exit 1
fi
