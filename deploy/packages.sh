# shellcheck shell=bash disable=SC2034
# The packages of Debian 12 that Baton is built and tested with, and how they
# are installed. Sourced by deploy/quickstart.sh and tests/run.sh:
#
#   packages_install build          to build and run
#   packages_install test lint      to test, to lint

packages_build="
    build-essential cmake ninja-build pkg-config
    libevent-dev libc-ares-dev libjansson-dev libyaml-dev libssl-dev libxxhash-dev
    libfabric-dev node-llhttp check ca-certificates curl"
packages_test="
    python3 python3-venv iproute2 procps util-linux
    clang libclang-rt-dev llvm"
packages_lint="
    clang clang-format clang-tidy cppcheck"

packages_has() {
    [[ $(dpkg-query -W -f '${db:Status-Status}' "$1" 2>/dev/null) == installed ]]
}

# Prints the packages of the named groups that are not installed.
packages_missing() {
    local group name list
    for group in "$@"; do
        list="packages_$group"
        for name in ${!list}; do
            packages_has "$name" || echo "$name"
        done
    done | sort -u
}

packages_as_root() {
    if [[ $(id -u) == 0 ]]; then
        "$@"
    else
        sudo -n "$@"
    fi
}

packages_can_install() {
    [[ $(id -u) == 0 ]] || sudo -n true 2>/dev/null
}

# Installs what is missing of the named groups; says what to type where it
# cannot. On a system without apt the build itself names what it lacks.
packages_install() {
    local missing
    if ! command -v apt-get >/dev/null || ! command -v dpkg-query >/dev/null; then
        echo "no apt-get here: install by hand what the build says is missing" >&2
        return 0
    fi
    mapfile -t missing < <(packages_missing "$@")
    if ((${#missing[@]} == 0)); then
        return 0
    fi
    if ! packages_can_install; then
        echo "packages are missing, and this user may not install them. Run:" >&2
        echo "  sudo apt-get install --no-install-recommends ${missing[*]}" >&2
        return 1
    fi
    echo "installing: ${missing[*]}"
    packages_as_root apt-get -qq -o=Dpkg::Use-Pty=0 update >/dev/null &&
        packages_as_root env DEBIAN_FRONTEND=noninteractive \
            apt-get -qq -y -o=Dpkg::Use-Pty=0 install \
            --no-install-recommends "${missing[@]}" >/dev/null
}

# promtool alone, unpacked into the folder $1: the package that has it would
# start a server on this machine. Sets PATH.
packages_promtool() {
    if command -v promtool >/dev/null; then
        return 0
    fi
    if [[ ! -x $1/usr/bin/promtool ]]; then
        mkdir -p "$1" && (
            cd "$1" && apt-get -qq download prometheus >/dev/null &&
                dpkg-deb -x prometheus_*.deb . && rm -f prometheus_*.deb
        ) || return 1
    fi
    PATH="$1/usr/bin:$PATH"
    export PATH
}
