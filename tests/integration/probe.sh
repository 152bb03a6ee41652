#!/usr/bin/env bash
# `distsetup probe` writes a machine that `plan` reads, with numbers a machine can have; it replaces no file unasked.
# shellcheck source=tests/support/job.sh
. "${DISTSETUP_SOURCE:?}/tests/support/job.sh"
cd "$work"
run "probe" 0 "$distsetup" probe --seconds 1 --output machine.yaml
run "plan on the probed machine" 0 "$distsetup" plan --model quickstart --machine machine.yaml --nodes 1 --gpus 2 --sequence-length 128 --global-batch 16 --json
printf 'mine\n' > other.yaml
run "an existing file" 1 "$distsetup" probe --seconds 1 --output other.yaml
has "an existing file" "$said" "exists with different content"
is "an existing file stays" "$(cat other.yaml)" mine
json=$("$distsetup" probe --seconds 1 --json 2> /dev/null)
number() { sed -nE "s/^  \"$1\": ([0-9.e+-]+),?$/\1/p" <<< "$json"; }
for key in cores memory_bytes triad_bytes_per_s triad_one_core_bytes_per_s loopback_bytes_per_s loopback_round_trip_s gemm_f32_flops_per_s; do
  awk -v x="$(number "$key")" 'BEGIN { exit !(x > 0) }' || fail "$key" "$json"
done
is "cores" "$(number cores)" "$(env -u OMP_NUM_THREADS -u OMP_THREAD_LIMIT nproc)"  # nproc obeys OpenMP's variables
awk -v found="$(number memory_bytes)" -v all="$(awk '/^MemTotal/ { printf "%.0f", $2 * 1024 }' /proc/meminfo)" 'BEGIN { exit !(found <= all && found > all / 100) }' || fail "memory" "$json"
# A product is at least some hundred million operations a second, a loopback at least ten megabytes: else a unit is wrong.
awk -v f="$(number gemm_f32_flops_per_s)" -v l="$(number loopback_bytes_per_s)" -v t="$(number triad_bytes_per_s)" 'BEGIN { exit !(f > 1e8 && f < 1e14 && l > 1e7 && l < 1e12 && t > 1e8 && t < 1e13) }' ||
  fail "rates" "$json"
echo "probe: all checks hold"
