#!/bin/bash
# Installs what is missing, builds, and runs the tests. See --help.
set -uo pipefail

root=$(cd "$(dirname "$0")/.." && pwd)
cd "$root" || exit 1
# shellcheck source=deploy/packages.sh
source deploy/packages.sh

standard="unit flow asan tsan fuzz"
known="$standard lint vllm vllm-full"

usage() {
    cat <<'TEXT'
usage: tests/run.sh [--no-install] [SUITE]… [-- PYTEST ARGUMENT…]

suites (default: all down to fuzz):
  unit   units of the release build (ctest)
  flow   real processes of the release build, real clients (pytest)
  asan   units and flows under the address and undefined-behaviour sanitizers
  tsan   units and the threaded flows under the thread sanitizer
  fuzz   every fuzz target for FUZZ_SECONDS (default 15) from FUZZ_SEED
  lint   formatter, analyzers and the project's own lints
  vllm   two stock vLLM engines behind the proxy (2.5 GB of download into
         .cache/vllm); vllm-full: the same at full size

examples:
  tests/run.sh                             unit, flow, asan, tsan and fuzz
  tests/run.sh unit                        one suite
  tests/run.sh flow -- -k handoff -x       what pytest shall run

environment:
  JOBS           compilers and tests at once (default: the processors)
  FUZZ_SECONDS   time for each fuzz target
  FUZZ_SEED      where its random numbers begin (1: a run that can be repeated;
                 0: elsewhere each time, for a long search)
  BATON_PATIENCE factor on the deadlines of the release flows (2; 1 is exact,
                 for a quiet machine)

Missing Debian packages are installed where the user may (root or sudo), and
Python packages into .venv; --no-install leaves both as they are. Builds lie in
build/. The last line says how many tests passed and failed; the exit status is
0 if none failed.
TEXT
}

jobs=${JOBS:-$(nproc)}
fuzz_seconds=${FUZZ_SECONDS:-15}
fuzz_seed=${FUZZ_SEED:-1}
install=yes
suites=()
pytest_args=()

while (($# > 0)); do
    case $1 in
    --help | -h)
        usage
        exit 0
        ;;
    --no-install) install=no ;;
    --)
        shift
        pytest_args=("$@")
        break
        ;;
    *)
        if [[ " $known " != *" $1 "* ]]; then
            echo "tests/run.sh: $1: no such suite; one of: $known" >&2
            exit 2
        fi
        suites+=("$1")
        ;;
    esac
    shift
done
if ((${#suites[@]} == 0)); then
    read -ra suites <<<"$standard"
fi

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
passed=0
failed=0
times=()

# part TEXT COMMAND…: runs it and notes its time.
part() {
    local name=$1 begin=$SECONDS status=0
    shift
    echo "==== $name"
    "$@" || status=$?
    times+=("$(printf '%5d s  %s' $((SECONDS - begin)) "$name")")
    return "$status"
}

# build PRESET ARGUMENT…: configures and builds; one failed test if it does not.
build() {
    local preset=$1 generator=()
    shift
    if [[ ! -f build/$preset/CMakeCache.txt ]] && command -v ninja >/dev/null; then
        generator=(-G Ninja)
    fi
    if ! cmake --preset "$preset" "${generator[@]}" >"$work/configure" 2>&1; then
        tail -40 "$work/configure"
        failed=$((failed + 1))
        return 1
    fi
    if ! cmake --build "build/$preset" -j "$jobs" "$@" >"$work/build" 2>&1; then
        grep -E -A12 'error|FAILED|undefined reference' "$work/build" | head -80
        echo "build/$preset does not build"
        failed=$((failed + 1))
        return 1
    fi
}

# units PRESET ARGUMENT…: ctest over the units; counts its tests.
units() {
    local preset=$1 line all bad
    shift
    ctest --test-dir "build/$preset" -L unit -j "$jobs" --output-on-failure \
        --no-tests=error "$@" 2>&1 | tee "$work/ctest" | grep -v '^ *Start '
    line=$(grep -E 'tests failed out of' "$work/ctest" | tail -1)
    if [[ ! $line =~ ([0-9]+)\ tests\ failed\ out\ of\ ([0-9]+) ]]; then
        echo "ctest of build/$preset ran no test"
        failed=$((failed + 1))
        return 1
    fi
    bad=${BASH_REMATCH[1]} all=${BASH_REMATCH[2]}
    passed=$((passed + all - bad))
    failed=$((failed + bad))
    ((bad == 0))
}

# count WORD FILE: the number before the word in pytest's last line.
count() {
    tail -1 "$2" | grep -oE "[0-9]+ $1" | grep -oE '^[0-9]+' || echo 0
}

# flows PRESET PATIENCE ARGUMENT…: pytest over that build's programs. PATIENCE
# stretches the tests' deadlines: 1 is what is promised, and needs a quiet
# machine.
flows() {
    local preset=$1 patience=$2 bad
    shift 2
    BATON_BUILD=$root/build/$preset BATON_PATIENCE=$patience \
        "${test_python:-.venv/bin/python}" -m pytest -q -p no:cacheprovider --timeout 600 \
        --durations 10 "$@" "${pytest_args[@]}" 2>&1 | tee "$work/pytest"
    bad=$(($(count failed "$work/pytest") + $(count error "$work/pytest")))
    passed=$((passed + $(count passed "$work/pytest")))
    if ! grep -qE '(passed|failed|error|deselected|skipped).* in ' "$work/pytest"; then
        bad=$((bad + 1)) # it did not come to its end
    fi
    failed=$((failed + bad))
    ((bad == 0))
}

make_venv() {
    local stamp=.venv/requirements.txt
    if [[ -x .venv/bin/python ]] && cmp -s tests/flow/requirements.txt "$stamp"; then
        return 0
    fi
    if [[ $install == no ]]; then
        echo "the flow tests need .venv; run without --no-install" >&2
        return 1
    fi
    python3 -m venv .venv &&
        .venv/bin/python -m pip -q --disable-pip-version-check install \
            --only-binary :all: -r tests/flow/requirements.txt &&
        cp tests/flow/requirements.txt "$stamp"
}

prepare_flows() {
    packages_promtool "$root/.cache/promtool" ||
        echo "promtool could not be had; its test will say so"
    if ! make_venv; then
        failed=$((failed + 1))
        return 1
    fi
}

suite_unit() {
    part "build release" build release && part "unit: release" units release
}

suite_flow() {
    part "build release" build release && prepare_flows &&
        part "flow: release" flows release "${BATON_PATIENCE:-2}" tests/flow
}

# It moves 200 prompts for each provider; the sanitizers see the same code in
# the rest of its file, in a tenth of the time.
two_hundred=tests/flow/test_text.py::test_two_hundred_prompts_give_the_lone_engines_text

suite_asan() {
    export ASAN_OPTIONS=detect_stack_use_after_return=1:abort_on_error=0
    export UBSAN_OPTIONS=print_stacktrace=1
    part "build asan" build asan || return 1
    part "unit: asan" units asan
    prepare_flows &&
        part "flow: asan" flows asan 3 tests/flow --deselect "$two_hundred"
}

# Units with more than one thread, and flows that keep three workers busy.
threaded=(control hold hold_stress link log loop metrics pull reactor region)
threaded_flows=(tests/flow/test_text.py::test_sixteen_at_once_do_not_mix
    tests/flow/test_unheld.py::test_a_hundred_handoffs_with_cancels_leave_nothing
    tests/flow/test_unheld.py::test_a_short_cut_of_the_link_loses_no_handoff
    tests/flow/test_unheld.py::test_client_gone_while_decode_streams
    tests/flow/test_fleet.py)

# The thread sanitizer wants addresses where it expects them, so its suite
# runs in a second shell without their random layout, where that is allowed.
suite_tsan() {
    export TSAN_OPTIONS=halt_on_error=0:second_deadlock_stack=1
    if [[ -f tests/support/tsan.supp ]]; then
        TSAN_OPTIONS+=:suppressions=$root/tests/support/tsan.supp
    fi
    part "build tsan" build tsan --target baton-proxy baton-engine \
        "${threaded[@]/#/test_}" && prepare_flows || return 1
    if [[ ${BATON_TSAN_INNER:-} != yes ]] && setarch -R true 2>/dev/null; then
        BATON_TSAN_INNER=yes setarch -R bash "$0" --no-install tsan \
            -- "${pytest_args[@]}" | tee "$work/tsan"
        local line
        line=$(tail -1 "$work/tsan")
        if [[ $line =~ ^([0-9]+)\ passed,\ ([0-9]+)\ failed ]]; then
            passed=$((passed + BASH_REMATCH[1]))
            failed=$((failed + BASH_REMATCH[2]))
        else
            failed=$((failed + 1))
        fi
        return
    fi
    local names
    names=$(
        IFS='|'
        echo "${threaded[*]}"
    )
    part "unit: tsan" units tsan -R "^unit\.test_($names)\$"
    BATON_WORKERS=3 part "flow: tsan" flows tsan 4 "${threaded_flows[@]}"
}

fuzz_one() {
    local target=$1 name
    name=$(basename "$target")
    mkdir -p "$work/corpus/$name"
    local seeds=tests/fuzz/corpus/${name#fuzz_}
    [[ -d $seeds ]] || seeds=
    if "$target" "$work/corpus/$name" ${seeds:+"$seeds"} -timeout=20 \
        -rss_limit_mb=2048 -max_total_time="$fuzz_seconds" -seed="$fuzz_seed" \
        -artifact_prefix="$work/" >"$work/fuzz" 2>&1; then
        tail -1 "$work/fuzz"
        passed=$((passed + 1))
    else
        tail -60 "$work/fuzz"
        mkdir -p build/fuzz/found
        cp "$work"/crash-* "$work"/timeout-* "$work"/oom-* "$work"/leak-* \
            build/fuzz/found/ 2>/dev/null
        echo "$name failed; its input lies in build/fuzz/found"
        failed=$((failed + 1))
        return 1
    fi
}

suite_fuzz() {
    part "build fuzz" build fuzz --target fuzzers || return 1
    local target found=no
    for target in build/fuzz/tests/fuzz/fuzz_*; do
        [[ -f $target && -x $target ]] || continue
        found=yes
        part "fuzz: $(basename "$target")" fuzz_one "$target"
    done
    if [[ $found == no ]]; then
        echo "no fuzz target was built"
        failed=$((failed + 1))
    fi
}

# Real engines: vLLM in an environment of its own, its models made here.
suite_vllm() {
    local test_python=${BATON_VLLM_VENV:-$root/.cache/vllm/venv}/bin/python
    part "build release" build release --target baton baton-proxy || return 1
    if [[ $install == yes ]] && ! { part "vllm: install" deploy/vllm.sh install tests &&
        part "vllm: models" deploy/vllm.sh models; }; then
        failed=$((failed + 1))
        return 1
    fi
    if [[ ! -x $test_python ]]; then
        echo "no vLLM: $test_python is missing; run without --no-install," \
            "or deploy/vllm.sh install tests" >&2
        failed=$((failed + 1))
        return 1
    fi
    part "vllm" flows release "${BATON_PATIENCE:-2}" -c tests/vllm/pytest.ini \
        tests/vllm --timeout 1500 "$@"
}

suite_vllm-full() {
    suite_vllm --full
}

lint_one() {
    if cmake --build build/lint -j "$jobs" --target "$1" >"$work/lint" 2>&1; then
        passed=$((passed + 1))
    else
        # clang-tidy is told to be quiet and still names each file.
        grep -vE '^\[[0-9]+/[0-9]+\]|^ninja:|/clang-tidy[^ ]* |^[0-9]+ warnings? gen' \
            "$work/lint" | head -200
        failed=$((failed + 1))
        return 1
    fi
}

suite_lint() {
    part "build lint" build lint || return 1
    local check
    for check in format-check layers headers symbols banned tables cppcheck tidy; do
        part "lint: $check" lint_one "$check"
    done
}

if [[ $install == yes ]]; then
    groups=(build)
    [[ ${suites[*]} =~ flow|asan|tsan|fuzz ]] && groups+=(test)
    [[ ${suites[*]} =~ vllm ]] && groups+=(test)
    [[ ${suites[*]} =~ lint ]] && groups+=(lint)
    part "packages" packages_install "${groups[@]}" || exit 1
fi
for suite in "${suites[@]}"; do
    "suite_$suite"
done

echo "==== times"
printf '%s\n' "${times[@]}"
echo "$passed passed, $failed failed"
((failed == 0))
