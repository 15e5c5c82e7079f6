#!/bin/bash
# The agent's shared library exports baton_* and nothing else.
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
if [[ -n $others ]]; then
    echo "symbols: $library exports what is not its interface:"
    echo "$others"
    exit 1
fi
