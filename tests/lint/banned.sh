#!/bin/bash
# Functions that nobody may call, and words that no file may hold.
set -uo pipefail

cd "$(dirname "$0")/../.." || exit 1
failed=0

# ban PATTERN REASON: in C code, outside of comments and strings.
ban() {
    local found
    found=$(find common proxy agent bench tests -name '*.[ch]' -print0 |
        xargs -0 awk -v pattern="$1" '
            { line = $0 }
            FNR == 1 { inside = 0 }
            {
                gsub(/"([^"\\]|\\.)*"/, "\"\"", line)
                gsub(/\/\*([^*]|\*[^\/])*\*\//, "", line)
                sub(/\/\/.*/, "", line)
                if (inside) {
                    if (!sub(/^.*\*\//, "", line)) next
                    inside = 0
                }
                if (sub(/\/\*.*/, "", line)) inside = 1
                if (line ~ pattern)
                    print FILENAME ":" FNR ": " $0
            }')
    if [[ -n $found ]]; then
        echo "$found"
        echo "banned: $2"
        failed=1
    fi
}

call() {
    printf '(^|[^a-zA-Z0-9_.>])(%s)[ ]*\\(' "$1"
}

ban "$(call 'strcpy|strcat|stpcpy|sprintf|vsprintf|gets')" \
    'no bound: use memcpy with a length, snprintf or a bt_buf'
ban "$(call 'strtok|strtok_r')" 'changes its input: use bt_str_next_item'
ban "$(call 'atoi|atol|atoll|atof')" 'hides errors: use bt_str_to_u64'
ban "$(call 'alloca')" 'unbounded stack'
ban "$(call 'gethostbyname|inet_ntoa|localtime|gmtime|ctime|asctime|rand|srand')" \
    'not safe with threads, or not random'
ban "$(call 'system|popen')" 'no shell from C'

# words PATTERN REASON: in any text file that belongs to the project.
words() {
    local found
    found=$(grep -rnIE "$1" . --exclude-dir=.git --exclude=.git --exclude-dir=build \
        --exclude-dir=.venv --exclude-dir=.cache --exclude-dir=__pycache__ \
        --exclude-dir=.pytest_cache --exclude=banned.sh --exclude-dir=found)
    if [[ -n $found ]]; then
        echo "$found"
        echo "banned: $2"
        failed=1
    fi
}

words '\b(TODO|FIXME|XXX)\b' 'file an issue in place of a note in the code'
words '/work/|/root/|/home/[a-z]+/' 'paths of one machine'
words 'https?://[a-z0-9.-]*(artifactory|nexus|pypi-mirror|registry\.internal)' \
    'hosts of one network'

exit "$failed"
