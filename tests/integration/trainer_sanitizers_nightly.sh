#!/usr/bin/env bash
# The trainer under AddressSanitizer with UndefinedBehaviorSanitizer (preset `trainer-address`): its unit tests, then whole trainings on
# one rank and several, with every strategy, stages, split models and sequences, offload, checkpoints, kills and signals. Plans and the
# launcher are the release build's. A report of a sanitizer is a failure wherever it appears.
#   trainer_sanitizers_nightly.sh [NAME]...   scripts of this folder to run with that trainer, in place of the unit tests and the usual ones
# shellcheck source=tests/support/job.sh
. "${DISTSETUP_SOURCE:?}/tests/support/job.sh"
need_trainer
release=$DISTSETUP_BIN
preset=trainer-address
folder=$DISTSETUP_SOURCE/build/$preset
compiler=$(command -v clang++ || command -v g++)

cd "$DISTSETUP_SOURCE" || exit 1
[[ -e $folder/build.ninja ]] || cmake --preset "$preset" -DCMAKE_CXX_COMPILER="$compiler" -DDISTSETUP_TESTS=ON >"$work/configure.log" 2>&1 ||
  fail "configuring $preset" "$(tail -n 20 "$work/configure.log")"
cmake --build --preset "$preset" >"$work/build.log" 2>&1 || fail "building $preset" "$(grep -v '^\[' "$work/build.log" | head -n 40)"
grep -qa '__asan_init' "$folder/bin/distsetup-train" || fail "the trainer is not instrumented"
if [[ $# == 0 ]]; then
  run "unit tests" 0 ctest --preset "$preset" -j "$(nproc)"
  echo "unit tests: $(grep 'tests passed' <<<"$said")"
  set -- parity offload checkpoints fp16 guard resume
fi

# Each program looks for the others beside itself. Reports go to files: of some processes nobody reads the output.
mkdir -p "$work/reports" "$folder/mixed"
cp "$release/distsetup" "$folder/bin/distsetup-train" "$folder/mixed/"
export DISTSETUP_BIN=$folder/mixed KILLS=${KILLS:-4}
export ASAN_OPTIONS=${ASAN_OPTIONS:+$ASAN_OPTIONS:}log_path=$work/reports/asan UBSAN_OPTIONS=log_path=$work/reports/ubsan:print_stacktrace=1
for name in "$@"; do
  SECONDS=0
  "tests/integration/$name.sh" >"$work/$name.log" 2>&1 || fail "$name" "$(tail -n 40 "$work/$name.log")" "$(cat "$work"/reports/* 2>/dev/null | head -n 80)"
  for report in "$work"/reports/*; do
    [[ ! -e $report ]] || fail "$name: a report" "$(head -n 80 "$report")"
  done
  echo "$name: $SECONDS s"
done
echo "trainer_sanitizers: no report"
