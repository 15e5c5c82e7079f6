#!/bin/bash
# Each header compiles alone, twice included; the agent's public header also
# as C11 and C++17 without the project's include path.
set -uo pipefail

cd "$(dirname "$0")/../.." || exit 1
cc=${CC:-cc}
cxx=${CXX:-c++}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
failed=0
flags=(-std=c11 -D_GNU_SOURCE -Wall -Wextra -Wpedantic -Werror -fsyntax-only
    -I. -Iagent/include)
for library in jansson libfabric libevent_core libcares yaml-0.1 check; do
    read -ra more < <(pkg-config --cflags "$library" 2>/dev/null) || true
    flags+=("${more[@]}")
done

# alone NAME COMMAND…: COMMAND takes a file that is nothing but the header.
alone() {
    local name=$1 suffix=$2 text=$3
    shift 3
    printf '%s\n' "$text" >"$work/alone.$suffix"
    if ! "$@" "$work/alone.$suffix"; then
        echo "headers: $name does not stand alone ($*)"
        failed=1
    fi
}

while IFS= read -r header; do
    include=$(printf '#include "%s"\n#include "%s"\ntypedef int none;\n' \
        "$header" "$header")
    alone "$header" c "$include" "$cc" "${flags[@]}"
done < <(find common proxy agent bench tests -name '*.h' | sort)

public=$(printf '#include <baton/agent.h>\nint main(void);\nint main(void) { return 0; }\n')
if [[ -f agent/include/baton/agent.h ]]; then
    alone agent.h c "$public" "$cc" -std=c11 -Wall -Wextra -Wpedantic -Werror \
        -fsyntax-only -Iagent/include
    alone agent.h cc "${public/int main(void);/}" "$cxx" -std=c++17 -Wall \
        -Wextra -Wpedantic -Werror -fsyntax-only -Iagent/include
fi

exit "$failed"
