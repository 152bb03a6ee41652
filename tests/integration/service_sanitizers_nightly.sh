#!/usr/bin/env bash
# The job server under AddressSanitizer with UndefinedBehaviorSanitizer, and under ThreadSanitizer (presets `address` and `thread`): its unit
# tests, then a server of each kind under malformed requests, jobs that are cancelled, killed and adopted, and 16 clients at once while two
# jobs train. What is not the server (planning, training) is the release build's. A report of a sanitizer is a failure wherever it appears.
#   service_sanitizers_nightly.sh [address|thread]...
# shellcheck source=tests/support/service.sh
. "${DISTSETUP_SOURCE:?}/tests/support/service.sh"
service_config
release=$DISTSETUP_BIN
compiler=$(command -v clang++ || command -v g++)

no_reports() {  # WHAT
  local report
  for report in "$work"/reports/*; do
    [[ ! -e $report ]] || fail "$1: a report" "$(head -n 80 "$report")"
  done
}

[[ $# -gt 0 ]] || set -- address thread
for preset in "$@"; do
  folder=$DISTSETUP_SOURCE/build/$preset
  [[ -e $folder/build.ninja ]] || (cd "$DISTSETUP_SOURCE" && cmake --preset "$preset" -DCMAKE_CXX_COMPILER="$compiler" -DDISTSETUP_TESTS=ON) >"$work/configure.log" 2>&1 ||
    fail "configuring $preset" "$(tail -n 20 "$work/configure.log")"
  (cd "$DISTSETUP_SOURCE" && cmake --build --preset "$preset") >"$work/build.log" 2>&1 || fail "building $preset" "$(grep -v '^\[' "$work/build.log" | head -n 40)"
  mkdir -p "$work/reports"
  export ASAN_OPTIONS=log_path=$work/reports/asan UBSAN_OPTIONS=log_path=$work/reports/ubsan:print_stacktrace=1 TSAN_OPTIONS=log_path=$work/reports/tsan
  run "$preset: unit tests" 0 "$folder/bin/service_tests"
  echo "$preset: unit tests: $(grep 'passed' <<<"$said")"
  no_reports "$preset: unit tests"

  # Each program looks for the others beside itself.
  export DISTSETUP_BIN=$work/$preset/bin
  mkdir -p "$DISTSETUP_BIN"
  cp "$release/distsetup" "$release/distsetup-train" "$folder/bin/distsetup-service" "$DISTSETUP_BIN/"
  distsetup=$DISTSETUP_BIN/distsetup
  grep -qaE '__(asan|tsan)_init' "$DISTSETUP_BIN/distsetup-service" || fail "$preset: the server is not instrumented"
  start_service "$preset"
  echo secret >"$work/outside.txt"
  python3 "$DISTSETUP_SOURCE/tests/integration/service_requests.py" "$url" 1000 "$work" || fail "$preset: malformed requests" "$(tail -n 15 "$work/$preset.log")"
  stop_service "$service_pid"
  no_reports "$preset: malformed requests"
  mkdir -p "$work/$preset.jobs"
  cp -r "$work/run_fsdp.yaml" "$work/models" "$work/$preset.jobs/"
  python3 -B "$DISTSETUP_SOURCE/tests/integration/service_jobs.py" "$DISTSETUP_BIN" "$work/$preset.jobs" 12 16 || fail "$preset: jobs"
  no_reports "$preset: jobs"
  DISTSETUP_BIN=$DISTSETUP_BIN python3 -B "$DISTSETUP_SOURCE/tests/bench/service.py" --clients 16 --seconds 20 || fail "$preset: clients at once"
  no_reports "$preset: clients at once"
  export DISTSETUP_BIN=$release
done
echo "service_sanitizers: no report"
