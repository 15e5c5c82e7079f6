#!/bin/bash
# What `cmake --install` leaves is enough for others:
#
#   install.sh package BUILD VERSION
#       installs BUILD; a project finds it by find_package and by pkg-config,
#       links it shared and static, and runs
#   install.sh parts BUILD VERSION
#       configures proxy and library each alone, without what only the other
#       one needs
set -euo pipefail

what=${1:?usage: install.sh package|parts BUILD VERSION}
build=$2
version=$3
source=$(cd "$(dirname "$0")/../.." && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
prefix=$work/prefix

fail() {
    echo "install: $*" >&2
    exit 1
}

# quiet COMMAND…: its output is of interest only if it fails.
quiet() {
    "$@" >"$work/log" 2>&1 || {
        cat "$work/log" >&2
        fail "failed: $*"
    }
}

package() {
    local libdir consumer=$source/tests/unit/data/consumer
    quiet cmake --install "$build" --prefix "$prefix"
    libdir=$(dirname "$(find "$prefix" -name libbaton.so)")
    for program in baton-proxy baton-engine baton-bench; do
        "$prefix/bin/$program" --help >/dev/null || fail "$program does not run"
    done
    [[ $(readelf -d "$libdir/libbaton.so") == *"soname: [libbaton.so.0]"* ]] ||
        fail "no versioned soname"

    quiet cmake -S "$consumer" -B "$work/consumer" -DCMAKE_PREFIX_PATH="$prefix"
    quiet cmake --build "$work/consumer"
    for program in shared static; do
        [[ $("$work/consumer/$program") == "$version" ]] ||
            fail "the $program consumer says no $version"
    done
    "$work/consumer/cxx" || fail "the C++ consumer fails"
    # What is ours stays ours: nothing but the interface can clash.
    [[ -z $(nm -g --defined-only "$libdir/libbaton.a" |
        awk 'NF == 3 && $3 !~ /^baton_/') ]] ||
        fail "libbaton.a has other names than baton_*"

    # The .pc names the prefix that was configured; here it is another one.
    export PKG_CONFIG_PATH=$libdir/pkgconfig
    local -a pc=(pkg-config "--define-variable=prefix=$prefix")
    local -a flags
    [[ $("${pc[@]}" --modversion baton) == "$version" ]] || fail "no version"
    read -ra flags <<<"$("${pc[@]}" --cflags --libs baton)"
    quiet cc -std=c11 "$consumer/main.c" -o "$work/by_pc" "${flags[@]}" \
        "-Wl,-rpath,$libdir"
    [[ $("$work/by_pc") == "$version" ]] || fail "by pkg-config: no $version"
}

# configure NAME "PACKAGES" OPTION…: with no other packages in sight.
configure() {
    local name=$1 packages=$2 dir
    shift 2
    mkdir "$work/$name.pc"
    for package in $packages; do
        dir=$(pkg-config --variable=pcfiledir "$package")
        ln -s "$dir/$package.pc" "$work/$name.pc/"
    done
    PKG_CONFIG_LIBDIR=$work/$name.pc PKG_CONFIG_PATH='' quiet cmake -S "$source" \
        -B "$work/$name" -DBATON_TESTS=OFF "$@"
    cmake --build "$work/$name" --target help >"$work/targets"
}

parts() {
    configure proxy "libevent_core libcares jansson yaml-0.1 openssl libssl libcrypto" \
        -DBATON_AGENT=OFF -DBATON_ENGINE=OFF -DBATON_BENCH=OFF
    grep -qw baton-proxy "$work/targets" || fail "the proxy alone: no proxy"
    configure library "libfabric openssl libssl libcrypto" -DBATON_PROXY=OFF \
        -DBATON_ENGINE=OFF -DBATON_BENCH=OFF
    grep -qw baton_static "$work/targets" || fail "the library alone: none"
    ! grep -qw llhttp "$work/targets" || fail "the library alone wants llhttp"
    if cmake -S "$source" -B "$work/none" -DBATON_AGENT=OFF >"$work/log" 2>&1; then
        fail "an engine without libbaton was configured"
    fi
    grep -q "BATON_ENGINE needs BATON_AGENT" "$work/log" || fail "no reason"
}

"$what"
